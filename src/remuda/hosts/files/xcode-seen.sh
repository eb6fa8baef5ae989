# Prints which Xcode is chosen, which ones there are, and whether the chosen one is ready. Arguments: where they are.
#
# Without developer tools, xcodebuild itself would open a dialogue at the screen: so only a whole Xcode is asked.
set -eu
selected=$(xcode-select -p 2>/dev/null || true)
printf 'selected %s\n' "${selected:-none}"
for app in "$1"/Xcode*.app; do
  if [ -d "$app" ]; then printf 'app %s\n' "$app"; fi
done
case $selected in
*.app/Contents/Developer)
  if "$selected/usr/bin/xcodebuild" -checkFirstLaunchStatus >/dev/null 2>&1; then
    echo 'ready yes'
  else
    echo 'ready no'
  fi
  ;;
*) echo 'ready no' ;;
esac
