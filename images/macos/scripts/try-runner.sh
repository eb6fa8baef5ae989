#!/bin/sh
# In the VM: does once what a job will do, as the account that jobs run as. Reads ACCOUNT.
set -eu
[ "$(id -un)" = "$ACCOUNT" ]
sudo -n true
# The guest runner ends the machine with this: without the right to, a job's VM would never end.
sudo -n -l /sbin/shutdown -h now >/dev/null
git --version
xcodebuild -version
"$HOME/actions-runner/bin/Runner.Listener" --version

# A whole job, in a mailbox of its own.
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
mkdir "$box/mail" "$box/work"
printf '%s' '{"job_id":"try","kind":"local","script":"exit 7","env":{}}' >"$box/mail/job.json"
code=0
REMUDA_MAILBOX=$box/mail REMUDA_WORK=$box/work REMUDA_POWER_OFF=exit /usr/local/bin/remuda-guest || code=$?
[ "$code" = 7 ] || {
  echo "the guest runner ended a job of code 7 with code $code" >&2
  cat "$box/mail/runner.log" >&2 || true
  exit 1
}
