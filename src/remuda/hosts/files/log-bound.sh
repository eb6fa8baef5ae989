#!/bin/sh
# Keeps log files small. Run by launchd each minute. Arguments: the directory, and how many bytes one log may take.
#
# launchd opens a job's log once and keeps it open, for appending. A renamed file would go on growing under its new name
# and the new one would stay empty; a truncated one is written to from its beginning. So the newest half is copied
# aside, and the file is emptied where it is. What is written between the two is lost: a few lines at most.
set -eu
directory=$1
half=$(($2 / 2))
for log in "$directory"/*.log; do
  # Not through a link: this runs as root.
  if [ ! -f "$log" ] || [ -L "$log" ]; then continue; fi
  size=$(wc -c <"$log")
  if [ "$size" -le "$half" ]; then continue; fi
  rm -f "$log.1.new"
  tail -c "$half" "$log" >"$log.1.new"
  : >"$log"
  mv -f "$log.1.new" "$log.1"
done
