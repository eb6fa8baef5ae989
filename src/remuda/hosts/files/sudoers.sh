# Grants one account root without a password. Run by "sudo -S": the password was read before this began.
# Arguments: the file below /etc/sudoers.d, and its line. Reads nothing.
set -eu
exec </dev/null
path=$1
line=$2
# Sudo ignores a file with a dot in its name, so a half written one means nothing.
new=$path.remuda-new
mkdir -p "$(dirname "$path")"
umask 077
printf '%s\n' "$line" >"$new"
# A file that sudo cannot read locks everybody out of root: it is judged before it counts.
if ! problem=$(visudo -cf "$new" 2>&1); then
  rm -f "$new"
  printf 'The line for sudoers is not valid, and nothing was changed: %s\n' "$problem" >&2
  exit 1
fi
chmod 0440 "$new"
chown 0:0 "$new"
mv -f "$new" "$path"
