# Has an account logged in at the screen by itself. Reads the bytes of Apple's file.
# Arguments: the account and the file.
#
# A password that macOS has not tried yet looks like one that it took: a mark beside the file says so, from before the
# file is there until its session is.
set -eu
user=$1
file=$2
uid=$(id -u "$user")
creator() {
  launchctl print "gui/$uid" 2>/dev/null | sed -n 's/^[[:space:]]*creator = //p' | sed -n 1p
}
aqua() {
  launchctl print "gui/$uid" 2>/dev/null | grep '^[[:space:]]*session = Aqua$' >/dev/null
}
sum() {
  shasum -a 256 "$file" | cut -d ' ' -f 1
}
umask 077
cat >"$file.remuda-new"
chown 0:0 "$file.remuda-new"
chmod 0600 "$file.remuda-new"
defaults write /Library/Preferences/com.apple.loginwindow autoLoginUser "$user"
before=$(creator)
: >"$file.remuda-untried"
mv -f "$file.remuda-new" "$file"
written=$(sum)
# Not a signal: a login window that is gone cannot be signalled, and launchd starts it all the same.
launchctl kickstart -k system/com.apple.loginwindow
# The old session stays visible for a moment and would pass for the new one.
tries=0
while [ -n "$before" ] && [ "$(creator)" = "$before" ] && [ "$tries" -lt 30 ]; do
  sleep 1
  tries=$((tries + 1))
done
tries=0
while [ "$tries" -lt 120 ] && [ "$(sum)" = "$written" ]; do
  if aqua && { [ -z "$before" ] || [ "$(creator)" != "$before" ]; }; then
    rm -f "$file.remuda-untried"
    exit 0
  fi
  sleep 1
  tries=$((tries + 1))
done
# Sealed, and so tried.
if [ "$(sum)" != "$written" ]; then rm -f "$file.remuda-untried"; fi
