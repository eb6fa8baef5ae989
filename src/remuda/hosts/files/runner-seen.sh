# Prints how GitHub's runner is registered and whether it is loaded. Arguments: its directory. Run as its account.
set -eu
cd "$1" 2>/dev/null || { echo 'configured no'; echo 'service none'; echo 'loaded no'; exit 0; }
# While one is laid aside, another is being made, or whoever made it was killed.
if [ -f .runner ] && [ -f .credentials ] && [ ! -d .remuda-before ]; then echo 'configured yes'; else echo 'configured no'; fi
service=none
if [ -f .service ]; then service=$(basename "$(cat .service)" .plist); fi
printf 'service %s\n' "$service"
if [ "$service" != none ] && launchctl print "gui/$(id -u)/$service" >/dev/null 2>&1; then
  echo 'loaded yes'
else
  echo 'loaded no'
fi
if [ -f .remuda-labels ]; then printf 'labels %s\n' "$(cat .remuda-labels)"; fi
if [ -f .runner ]; then cat .runner; fi
