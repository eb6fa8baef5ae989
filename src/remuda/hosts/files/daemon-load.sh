# Hands a daemon to launchd. Arguments: its label, its property list and the directory of logs.
set -eu
# launchd makes a log file, but no directory for it.
mkdir -p "$3"
launchctl enable "system/$1"
tries=0
# Shortly after it was taken out, launchd refuses it with "5: Input/output error".
until problem=$(launchctl bootstrap system "$2" 2>&1); do
  if launchctl print "system/$1" >/dev/null 2>&1; then
    exit 0
  fi
  if [ "$tries" -ge 5 ]; then
    printf 'launchd does not take %s: %s\n' "$1" "$problem" >&2
    exit 1
  fi
  sleep 1
  tries=$((tries + 1))
done
