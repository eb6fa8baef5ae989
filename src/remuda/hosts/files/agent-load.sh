# Loads the agent, proves that it stays up, and puts the one before back if it does not. Reads the property list.
#
# Arguments: label, program, property list, credential, mark, account, log, data directory, the SHA-256 of the program
# as it arrived, "new" if there is a staged program, "new" if there is a staged credential, how long it must stay up
# and how long that may take, in seconds.
#
# The mark says which files ran well together. What it does not name is not proven and never becomes "previous".
set -eu
label=$1 program=$2 plist=$3 kubeconfig=$4 mark=$5 user=$6 log=$7 data=$8 arrived=$9
shift 9
with_program=$1 with_kubeconfig=$2 stable_s=$3 wait_s=$4

sum() {
  if [ -f "$1" ]; then shasum -a 256 "$1" | cut -d ' ' -f 1; else echo absent; fi
}
marked() {
  if [ -f "$mark" ]; then sed -n "s/^$1 //p" "$mark"; fi
}
pid() {
  launchctl print "system/$label" 2>/dev/null | sed -n 's/^[[:space:]]*pid = \([0-9]*\)$/\1/p' | sed -n 1p
}
copy() { # keeps mode, owner and times, and is there at once or not at all
  [ -f "$1" ] || return 0
  cp -p "$1" "$2.remuda-new"
  mv -f "$2.remuda-new" "$2"
}

start() { # the argument: whether launchd must read the property list again
  if [ "$1" = same ] && [ -n "$(pid)" ]; then
    # Loading a job over and over makes macOS distrust it, and then it is not kept alive any more.
    launchctl kickstart -k "system/$label"
    return
  fi
  launchctl bootout "system/$label" 2>/dev/null || true
  tries=0
  while launchctl print "system/$label" >/dev/null 2>&1 && [ "$tries" -lt 60 ]; do
    sleep 1
    tries=$((tries + 1))
  done
  launchctl enable "system/$label"
  tries=0
  # Shortly after it was taken out, launchd refuses it with "5: Input/output error".
  until launchctl bootstrap system "$plist" 2>&1; do
    if [ "$tries" -ge 5 ]; then return 1; fi
    sleep 1
    tries=$((tries + 1))
  done
}

stays() { # the argument: the process before. True when a new one is there and stays the same.
  waited=0
  steady=0
  last=
  while [ "$waited" -lt "$wait_s" ]; do
    now=$(pid)
    if [ -n "$now" ] && [ "$now" != "$1" ] && [ "$now" = "$last" ]; then
      steady=$((steady + 1))
      if [ "$steady" -ge "$stable_s" ]; then return 0; fi
    else
      steady=0
    fi
    last=$now
    sleep 1
    waited=$((waited + 1))
  done
  return 1
}

prove() { # the argument: the SHA-256 of the program as it arrived
  {
    printf 'program %s\n' "$(sum "$program")"
    printf 'arrived %s\n' "$1"
    printf 'plist %s\n' "$(sum "$plist")"
    printf 'kubeconfig %s\n' "$(sum "$kubeconfig")"
  } >"$mark.remuda-new"
  mv -f "$mark.remuda-new" "$mark"
}

umask 022
mkdir -p "$(dirname "$mark")" "$(dirname "$log")" "$data"
chown "$user" "$data"
chmod 0700 "$data"
[ -e "$log" ] || : >"$log"
chown "$user" "$log"
cat >"$plist.staged"
chown 0:0 "$plist.staged"
chmod 0644 "$plist.staged"

if [ "$(marked program)" = "$(sum "$program")" ] && [ "$(marked plist)" = "$(sum "$plist")" ] &&
  [ "$(marked kubeconfig)" = "$(sum "$kubeconfig")" ]; then
  for file in "$program" "$plist" "$kubeconfig" "$mark"; do copy "$file" "$file.previous"; done
fi
rm -f "$mark"
before=$(pid)
how=same
cmp -s "$plist" "$plist.staged" || how=new
mv -f "$plist.staged" "$plist"
if [ "$with_program" = new ]; then mv -f "$program.staged" "$program"; else rm -f "$program.staged"; fi
if [ "$with_kubeconfig" = new ]; then mv -f "$kubeconfig.staged" "$kubeconfig"; else rm -f "$kubeconfig.staged"; fi
written=$(wc -c <"$log")

if problem=$(start "$how"); then
  problem=
  if stays "$before"; then
    prove "$arrived"
    exit 0
  fi
else
  problem="launchd does not take it: $problem"
fi

# The tail of what this one logged, before the one that is put back logs more.
tail=$(tail -c "+$((written + 1))" "$log" | tail -n 15)
printf 'The agent does not stay up for %s seconds.\n' "$stable_s" >&2
if [ -n "$problem" ]; then printf '%s\n' "$problem" >&2; fi
if [ -f "$mark.previous" ]; then
  for file in "$program" "$plist" "$kubeconfig"; do copy "$file.previous" "$file"; done
  before=$(pid)
  if start new >/dev/null && stays "$before"; then
    copy "$mark.previous" "$mark"
    printf 'The agent from before is back and runs.\n' >&2
  else
    printf 'The agent from before is back, and does not stay up either.\n' >&2
  fi
else
  printf 'There is none from before on this host. launchd goes on trying this one.\n' >&2
fi
printf 'What it logged last:\n%s\n' "${tail:-nothing}" >&2
exit 1
