# Prints what is there of a small daemon. Arguments: its label, its program and its property list.
set -eu
sum() {
  if [ -f "$1" ]; then shasum -a 256 "$1" | cut -d ' ' -f 1; else echo absent; fi
}
printf 'program %s\n' "$(sum "$2")"
printf 'plist %s\n' "$(sum "$3")"
if launchctl print "system/$1" >/dev/null 2>&1; then echo 'loaded yes'; else echo 'loaded no'; fi
