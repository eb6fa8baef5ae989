# Registers GitHub's runner and loads it where the account is logged in. Reads the registration token.
# Arguments: its directory, the organisation's URL, the runner's name, its labels and its version. Run as its account.
set -eu
directory=$1 url=$2 name=$3 labels=$4 version=$5
IFS= read -r token || [ -n "$token" ]
if [ -z "$token" ]; then
  echo 'There is no registration token.' >&2
  exit 1
fi
exec </dev/null
cd "$directory"
uid=$(id -u)
if [ ! -x ./config.sh ] || [ ! -x ./bin/Runner.Listener ] || [ "$(./bin/Runner.Listener --version 2>/dev/null)" != "$version" ]; then
  archive=actions-runner-osx-arm64-$version.tar.gz
  curl -fsSL --retry 3 --connect-timeout 20 -o "$archive" "https://github.com/actions/runner/releases/download/v$version/$archive"
  tar -xzf "$archive"
  rm -f "$archive"
fi
# What is left of an earlier registration: it was found broken, or another's.
if [ -f .service ]; then
  launchctl bootout "gui/$uid/$(basename "$(cat .service)" .plist)" 2>/dev/null || true
  ./svc.sh uninstall >/dev/null 2>&1 || rm -f "$(cat .service)"
fi
rm -f .service .runner .credentials .credentials_rsaparams
# In the environment of this one command, which the runner itself clears: an argument would be seen by everybody.
ACTIONS_RUNNER_INPUT_TOKEN=$token ./config.sh --unattended --replace --url "$url" --name "$name" --labels "$labels" --work _work
token=
./svc.sh install
printf '%s\n' /usr/local/bin:/opt/homebrew/bin:/usr/bin:/bin:/usr/sbin:/sbin >.path
plist=$(cat .service)
service=$(basename "$plist" .plist)
launchctl bootstrap "gui/$uid" "$plist" 2>/dev/null || true
launchctl kickstart "gui/$uid/$service"
