# Makes one change of the host at a time. Whoever lost the way here may have left one running, and two of them would
# write the same files. Arguments: the lock's file, and the program with its words, which gets stdin.
#
# The program becomes this process, so the lock is free again when the process is gone, however it ended.
set -eu
lock=$1
shift

holder() { # the process that has the lock, if it lives and is one of ours: numbers are given again
  held=$(cat "$lock" 2>/dev/null) || return 0
  case $held in '' | *[!0-9]*) return 0 ;; esac
  case $(ps -ww -p "$held" -o command= 2>/dev/null) in *remuda-*) printf '%s' "$held" ;; esac
}

tries=0
while [ "$tries" -lt 20 ]; do
  if mkdir "$lock.taken" 2>/dev/null; then
    if [ -z "$(holder)" ]; then
      echo "$$" >"$lock"
      rmdir "$lock.taken" || exit 75
      exec "$@"
    fi
    rmdir "$lock.taken" || exit 75
  elif [ "$tries" -eq 10 ]; then
    # To take it takes a moment: whoever left this directory was killed in that moment.
    rmdir "$lock.taken" 2>/dev/null || true
  fi
  sleep 1
  tries=$((tries + 1))
done
printf 'Another change of this host is under way, by process %s. Nothing was changed; it can be tried again.\n' "$(holder)" >&2
exit 75
