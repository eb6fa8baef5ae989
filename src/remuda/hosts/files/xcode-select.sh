# Chooses an Xcode and accepts its licence. Arguments: the application.
set -eu
xcode-select -s "$1/Contents/Developer"
xcodebuild -license accept
xcodebuild -runFirstLaunch
