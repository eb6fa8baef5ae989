#!/bin/sh
# On a builder, before a build: deletes the VMs of builds before and, while there is not enough room, what was pulled. Argument:
# how many GB must be free, by default 300. Never on a host that runs jobs: it deletes every local VM.
set -eu
need_gb=${1:-300}

free_gb() {
  df -Pk "${TART_HOME:-$HOME}" | awk 'NR == 2 { print int($4 / 1000000) }'
}

tart list --source local --quiet | while IFS= read -r vm; do
  [ -n "$vm" ] || continue
  echo "deleting the VM $vm"
  tart stop "$vm" --timeout 30 >/dev/null 2>&1 || true # most of them do not run
  tart delete "$vm"
done

for days in 1 0; do
  free=$(free_gb)
  [ "$free" -lt "$need_gb" ] || break
  echo "$free GB are free and $need_gb are needed: deleting images that were not used for $days day(s)"
  tart prune --entries caches --older-than "$days"
done

free=$(free_gb)
if [ "$free" -lt "$need_gb" ]; then
  echo "Only $free GB are free and a build needs $need_gb, although every VM and image of Tart is deleted." >&2
  echo "Look at what else fills the disk: du -xhd 2 /Users | sort -h" >&2
  exit 1
fi
echo "$free GB are free"
