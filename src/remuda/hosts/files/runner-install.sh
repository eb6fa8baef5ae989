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
# An earlier registration is in the way of a new one, and is laid aside until that is there: the token may be no good.
before=.remuda-before
put_back() {
  for file in .runner .credentials .credentials_rsaparams .remuda-labels; do
    if [ -e "$before/$file" ]; then mv -f "$before/$file" "$file"; fi
  done
  rm -rf "$before"
}
if [ -d "$before" ]; then put_back; fi
mkdir "$before"
for file in .runner .credentials .credentials_rsaparams .remuda-labels; do
  if [ -e "$file" ]; then mv -f "$file" "$before/$file"; fi
done
# In the environment of this one command, which the runner itself clears: an argument would be seen by everybody.
if ! ACTIONS_RUNNER_INPUT_TOKEN=$token ./config.sh --unattended --replace --url "$url" --name "$name" --labels "$labels" --work _work; then
  put_back
  echo 'GitHub did not register the runner. What was there before is as it was.' >&2
  exit 1
fi
token=
# The runner itself does not write down with which labels it was registered.
printf '%s\n' "$labels" >.remuda-labels
if [ -f .service ]; then
  old=gui/$uid/$(basename "$(cat .service)" .plist)
  launchctl bootout "$old" 2>/dev/null || true
  tries=0
  while launchctl print "$old" >/dev/null 2>&1 && [ "$tries" -lt 60 ]; do
    sleep 1
    tries=$((tries + 1))
  done
  rm -f "$(cat .service)" .service
fi
./svc.sh install
printf '%s\n' /usr/local/bin:/opt/homebrew/bin:/usr/bin:/bin:/usr/sbin:/sbin >.path
plist=$(cat .service)
service=$(basename "$plist" .plist)
launchctl bootstrap "gui/$uid" "$plist" 2>/dev/null || true
launchctl kickstart "gui/$uid/$service"
rm -rf "$before"
