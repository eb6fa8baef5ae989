#!/bin/sh
# In the VM: installs GitHub's runner and the guest runner. Reads ACCOUNT, RUNNER_VERSION and RUNNER_SHA256.
set -eu
home=/Users/$ACCOUNT
archive=/tmp/actions-runner.tar.gz
base=https://github.com/actions/runner/releases/download
curl -fsSL --retry 5 -o "$archive" "$base/v$RUNNER_VERSION/actions-runner-osx-arm64-$RUNNER_VERSION.tar.gz"
echo "$RUNNER_SHA256  $archive" | shasum -a 256 -c -
mkdir -p "$home/actions-runner"
tar -xzf "$archive" -C "$home/actions-runner"
rm -f "$archive"

sudo mkdir -p /usr/local/bin
sudo install -m 0755 /tmp/remuda-guest /usr/local/bin/remuda-guest
mkdir -p "$home/Library/LaunchAgents"
install -m 0644 /tmp/dev.remuda.guest.plist "$home/Library/LaunchAgents/dev.remuda.guest.plist"
plutil -lint "$home/Library/LaunchAgents/dev.remuda.guest.plist"
rm -f /tmp/remuda-guest /tmp/dev.remuda.guest.plist
