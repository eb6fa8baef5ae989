# Puts a file in its place at once, or not at all. Reads its content.
# Arguments: the path, the mode, the owner, and, if it shall be checked, the SHA-256 of the content.
set -eu
path=$1
mode=$2
owner=$3
sum=${4:-}
new=$path.remuda-new
mkdir -p "$(dirname "$path")"
umask 077
cat >"$new"
if [ -n "$sum" ]; then
  seen=$(shasum -a 256 "$new" | cut -d ' ' -f 1)
  if [ "$seen" != "$sum" ]; then
    rm -f "$new"
    printf '%s did not arrive whole: its SHA-256 is %s and should be %s. Nothing was changed.\n' "$path" "$seen" "$sum" >&2
    exit 1
  fi
fi
chmod "$mode" "$new"
chown "$owner" "$new"
mv -f "$new" "$path"
