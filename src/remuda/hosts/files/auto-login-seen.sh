# Prints in one line whether an account is logged in at the screen and by the password in the file, in another for whom the automatic login is, and then
# the bytes of Apple's file.
# Arguments: the account and the file. What it prints is secret.
set -eu
uid=$(id -u "$1")
if [ -e "$2.remuda-untried" ]; then
  echo 'session untried'
elif launchctl print "gui/$uid" 2>/dev/null | grep '^[[:space:]]*session = Aqua$' >/dev/null; then
  echo 'session Aqua'
else
  echo 'session none'
fi
printf 'user %s\n' "$(defaults read /Library/Preferences/com.apple.loginwindow autoLoginUser 2>/dev/null || true)"
if [ -e "$2" ]; then
  cat "$2"
fi
