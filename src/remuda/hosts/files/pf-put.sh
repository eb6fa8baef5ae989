# Puts a file in place, whole or not at all, and only if pf can read it. Reads the content.
# Arguments: the path; its mode, empty to keep mode and owner as they are; how it is checked (none, anchor, conf); for an
# anchor its name; and the SHA-256 of the file that the content was made from, empty if that does not matter.
set -eu
path=$1 mode=$2 check=$3 anchor=$4 seen=$5
new=$path.remuda-new
sum() {
  if command -v shasum >/dev/null; then shasum -a 256; else sha256sum; fi | cut -d ' ' -f 1
}
mkdir -p "$(dirname "$path")"
rm -f "$new"
trap 'rm -f "$new"' EXIT
if [ -z "$mode" ]; then
  cp -p "$path" "$new"
else
  : >"$new"
  chmod "$mode" "$new"
fi
cat >"$new"
case $check in
anchor) pfctl -n -a "$anchor" -f "$new" ;;
conf) pfctl -nf "$new" ;;
esac
if [ -n "$seen" ] && [ "$(sum <"$path")" != "$seen" ]; then
  echo "$path was changed by somebody else in this moment: nothing was written" >&2
  exit 75
fi
# What is renamed must be on the disk first, or a power cut leaves an empty file.
sync
mv -f "$new" "$path"
