#!/bin/sh
# Keeps rules of pf live: run at boot, every minute, and whenever they change. Arguments: the anchor's name; the folder of
# the anchors' files; pf.conf. Nothing is loaded that is live already, and all of pf.conf only where no rule is: that would
# drop what macOS itself put in for the network of running VMs.
set -u
name=$1 folder=${2:-/etc/pf.anchors} conf=${3:-/etc/pf.conf}
file=$folder/$name
live=com.apple/$name

say() {
  echo "remuda-pf $name: $*" >&2
}

labels() {
  sed -n 's/.* label "\([^"]*\)".*/\1/p' | sort -u
}

is_live() { # the anchor
  [ "$(pfctl -a "$1" -sr 2>/dev/null | labels)" = "$(labels <"$file")" ]
}

keep() { # the anchor
  if ! is_live "$1"; then
    pfctl -a "$1" -f "$file" || say "pf did not take the rules for $1"
    is_live "$1" || return 1
  fi
  # The host's addresses change, and the kernel does not follow them by itself.
  pfctl -q -a "$1" -t remuda_host -T replace self || pfctl -a "$1" -f "$file"
}

if [ -e "$file.armed" ]; then
  # Somebody tries new rules and has not confirmed them yet. After five minutes nobody will.
  [ -z "$(find "$file.armed" -mmin +5 2>/dev/null)" ] && exit 0
  rm -f "$file.armed" "$file.pending"
  [ -e "$file" ] || pfctl -q -a "$live" -F rules
fi
if [ ! -e "$file" ]; then
  say "there are no rules in $file: what is live stays"
  exit 1
fi

if [ -z "$(pfctl -sr 2>/dev/null)$(pfctl -sn 2>/dev/null)" ]; then
  say "pf has no rules at all: loading $conf"
  pfctl -f "$conf" || say "pf did not take $conf"
fi
# Enabled for whoever holds a token. Without one of our own, pf stops when the last VM gives up its own.
pfctl -s References 2>/dev/null | awk '$2 == "pfctl" { found = 1 } END { exit !found }' || pfctl -E

failed=0
keep "$live" || failed=1
if pfctl -sr 2>/dev/null | grep -q "^anchor \"$name\""; then
  keep "$name" || failed=1
fi
pfctl -sr 2>/dev/null | grep -q '^anchor "com.apple/\*"' || {
  say "the main rules of pf do not call com.apple/*, so nothing of this works"
  failed=1
}
exit "$failed"
