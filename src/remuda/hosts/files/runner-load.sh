# Loads GitHub's runner, which is registered already, where the account is logged in. Arguments: its directory. Run as its
# account.
set -eu
cd "$1"
exec </dev/null
uid=$(id -u)
plist=$(cat .service)
if [ ! -f "$plist" ]; then
  rm -f .service
  ./svc.sh install
  plist=$(cat .service)
fi
launchctl bootstrap "gui/$uid" "$plist" 2>/dev/null || true
launchctl kickstart "gui/$uid/$(basename "$plist" .plist)"
