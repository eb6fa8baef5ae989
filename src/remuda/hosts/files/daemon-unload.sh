# Takes a daemon out of launchd, and is content if it is out already. Arguments: its label.
set -eu
launchctl bootout "system/$1" 2>/dev/null || true
tries=0
while launchctl print "system/$1" >/dev/null 2>&1; do
  if [ "$tries" -ge 30 ]; then
    printf 'launchd does not let go of %s.\n' "$1" >&2
    exit 1
  fi
  sleep 1
  tries=$((tries + 1))
done
