# Prints whether an account is logged in at the screen, in one line, and then /etc/kcpassword's bytes.
# Arguments: the account. What it prints is secret.
set -eu
uid=$(id -u "$1")
if launchctl print "gui/$uid" 2>/dev/null | grep '^[[:space:]]*session = Aqua$' >/dev/null; then
  echo 'session Aqua'
else
  echo 'session none'
fi
if [ -e /etc/kcpassword ]; then
  cat /etc/kcpassword
fi
