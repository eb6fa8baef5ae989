# Takes GitHub's runner off a host that builds no images any more. Arguments: its directory. Run as its account.
# GitHub forgets a runner that stays away; here it needs no token.
set -eu
cd "$1"
if [ -f .service ]; then
  launchctl bootout "gui/$(id -u)/$(basename "$(cat .service)" .plist)" 2>/dev/null || true
  rm -f "$(cat .service)"
fi
rm -rf .service .runner .credentials .credentials_rsaparams .remuda-labels .remuda-before
