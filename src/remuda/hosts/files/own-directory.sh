# Makes a directory that belongs to an account. Arguments: the directory and the account.
set -eu
mkdir -p "$1"
chown "$2" "$1"
