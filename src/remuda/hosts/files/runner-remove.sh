# Takes GitHub's runner off a host that builds no images any more. Arguments: its directory. Run as its account.
# It needs no token: GitHub is asked to forget it when the Host is deleted, and else forgets it by itself. Content if there is none.
set -eu
if [ ! -d "$1" ]; then exit 0; fi
cd "$1"
if [ -f .service ]; then
  launchctl bootout "gui/$(id -u)/$(basename "$(cat .service)" .plist)" 2>/dev/null || true
  rm -f "$(cat .service)"
fi
rm -rf .service .runner .credentials .credentials_rsaparams .remuda-labels .remuda-before
