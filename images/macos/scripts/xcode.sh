#!/bin/sh
# In the VM: unpacks one Xcode and makes it ready. Reads XCODE, its version, from the environment.
set -eu
cd "$HOME"
xip --expand Xcode.xip
rm -f Xcode.xip
sudo mv Xcode*.app "/Applications/Xcode_$XCODE.app"
sudo xcode-select -s "/Applications/Xcode_$XCODE.app"
sudo xcodebuild -license accept
sudo xcodebuild -runFirstLaunch
xcodebuild -downloadPlatform iOS

# The name says one version and the archive may hold another.
found=$(xcodebuild -version | sed -n 's/^Xcode //p')
[ "$found" = "$XCODE" ] || {
  echo "this is Xcode $found and not $XCODE" >&2
  exit 1
}
swift --version
