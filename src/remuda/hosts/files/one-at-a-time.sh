# Makes one change of the host at a time. Whoever lost the way here may have left one running, and two of them would
# write the same files. Arguments: the lock's file, and the program with its words, which gets stdin.
#
# The program becomes this process, so the lock is free again when the process is gone, however it ended.
set -eu
lock=$1
shift

alive() { # the process, if it lives and is one of ours: numbers are given again
  case $1 in '' | *[!0-9]*) return 0 ;; esac
  case $(ps -ww -p "$1" -o command= 2>/dev/null) in *remuda-*) printf '%s' "$1" ;; esac
}
holder() {
  alive "$(cat "$lock" 2>/dev/null)"
}
taker() { # who is just looking whether the lock is free, however slowly
  readlink "$lock.taken" 2>/dev/null || true
}

tries=0
while [ "$tries" -lt 20 ]; do
  if ln -sn "$$" "$lock.taken" 2>/dev/null; then
    if [ -z "$(holder)" ]; then
      echo "$$" >"$lock"
      rm "$lock.taken" || exit 75
      exec "$@"
    fi
    rm "$lock.taken" || exit 75
  else
    first=$(taker)
    # Whoever left it was killed in the moment of taking. One that lives is waited for.
    if [ -n "$first" ] && [ -z "$(alive "$first")" ] && [ "$(taker)" = "$first" ]; then rm -f "$lock.taken"; fi
  fi
  sleep 1
  tries=$((tries + 1))
done
by=$(holder)
printf 'Another change of this host is under way, by process %s. Nothing was changed; it can be tried again.\n' "${by:-$(taker)}" >&2
exit 75
