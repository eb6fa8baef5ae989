# Has launchd take a job's file anew. Arguments: the job's label, its file, the folder of its log.
set -eu
label=$1 plist=$2 logs=$3
mkdir -p "$logs"
launchctl enable "system/$label"
launchctl bootout "system/$label" 2>/dev/null || true
# The old job takes a moment to go, and until then launchd refuses the new one.
tries=0
until launchctl bootstrap system "$plist"; do
  tries=$((tries + 1))
  [ "$tries" -lt 10 ] || exit 1
  sleep 1
done
