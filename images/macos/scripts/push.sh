#!/bin/sh
# On a builder: pushes a VM to a registry and deletes it, whatever came of the push.
#
#   push.sh VM REFERENCE
#
# An image has thousands of layers, and registries slow down whoever pushes them. What was pushed stays pushed, so each
# attempt goes on where the last one ended.
#
# TART_REGISTRY_HOSTNAME, TART_REGISTRY_USERNAME and TART_REGISTRY_PASSWORD log in: a job of launchd has no keychain.
# PUSH_ATTEMPTS (8), PUSH_CONCURRENCY (4), PUSH_CHUNK_MB (3) and PUSH_WAITS ("60 120 180 300", in seconds) may be set.
#
# Ends with 0; 64: called wrongly; 75: try again later, the registry is busy or out of reach; 77: it does not let us in.
set -u
[ $# = 2 ] || {
  echo "usage: push.sh VM REFERENCE" >&2
  exit 64
}
vm=$1 reference=$2
attempts=${PUSH_ATTEMPTS:-8}
waits=${PUSH_WAITS:-60 120 180 300}
log=$(mktemp)
TART_NO_AUTO_PRUNE=1 # or Tart deletes the very image that it pushes
export TART_NO_AUTO_PRUNE

ended() {
  rm -f "$log"
  tart delete "$vm" || echo "the VM $vm could not be deleted: it takes the room of the next build" >&2
}
trap ended EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Some registries say "denied" to whoever is too fast. So what speaks of a limit is looked for first: taken for a wrong
# password, it would end a push of hours.
why() {
  if grep -Eqi 'rate.?limit|too ?many ?requests|(^|[^0-9])429([^0-9]|$)|slow down' "$log"; then
    echo limited
  elif grep -Eqi 'unauthorized|denied|forbidden|authentication|(^|[^0-9])40[13]([^0-9]|$)' "$log"; then
    echo refused
  else
    echo failed
  fi
}

wait_s() { # which attempt: seconds, and up to half as many more, so that builders do not come back all at once
  # shellcheck disable=SC2086 # a list of numbers
  set -- "$1" $waits
  n=$1
  shift
  [ "$n" -le $# ] || n=$#
  shift $((n - 1))
  seed=$(od -An -N4 -tu4 /dev/urandom)
  awk -v base="$1" -v seed="$seed" 'BEGIN { srand(seed); print int(base * (1 + rand() / 2)) }'
}

attempt=1
while :; do
  echo "pushing $vm to $reference: attempt $attempt of $attempts"
  if tart push --concurrency "${PUSH_CONCURRENCY:-4}" --chunk-size "${PUSH_CHUNK_MB:-3}" "$vm" "$reference" >"$log" 2>&1; then
    cat "$log"
    exit 0
  fi
  cat "$log" >&2
  said=$(why)
  if [ "$said" = refused ]; then
    echo "The registry does not let us push $reference. Look at TART_REGISTRY_USERNAME and the token's rights." >&2
    exit 77
  fi
  if [ "$attempt" -ge "$attempts" ]; then
    echo "$attempts attempts were not enough ($said). What was pushed stays: run it again later." >&2
    exit 75
  fi
  pause=$(wait_s "$attempt")
  echo "attempt $attempt $said: going on in $pause s" >&2
  sleep "$pause" &
  wait $! # a signal ends the wait, and not only after it
  attempt=$((attempt + 1))
done
