# Prints what is there of the agent. Arguments: its label, program, property list, credential and mark.
set -eu
sum() {
  if [ -f "$1" ]; then shasum -a 256 "$1" | cut -d ' ' -f 1; else echo absent; fi
}
printf 'program %s\n' "$(sum "$2")"
printf 'plist %s\n' "$(sum "$3")"
printf 'kubeconfig %s\n' "$(sum "$4")"
pid=$(launchctl print "system/$1" 2>/dev/null | sed -n 's/^[[:space:]]*pid = \([0-9]*\)$/\1/p' | sed -n 1p)
printf 'pid %s\n' "${pid:-none}"
# What ran long enough to be trusted when it was loaded last.
if [ -f "$5" ]; then sed 's/^/proven-/' "$5"; fi
