# Takes the agent off a host that leaves its fleet: it would make its Node again and take jobs. VMs are left alone.
#
# Arguments: its label, and the files without which it does not start again. Content if all that is done already.
set -eu
label=$1
shift
launchctl bootout "system/$label" 2>/dev/null || true
tries=0
while launchctl print "system/$label" >/dev/null 2>&1; do
  if [ "$tries" -ge 30 ]; then
    printf 'launchd does not let go of %s.\n' "$label" >&2
    exit 1
  fi
  sleep 1
  tries=$((tries + 1))
done
rm -f -- "$@"
