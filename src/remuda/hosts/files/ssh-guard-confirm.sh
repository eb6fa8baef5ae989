# Keeps the rules for SSH that are being tried: whoever can still say so is not locked out. Arguments: the file, the anchor.
set -eu
file=$1 anchor=$2
labels() {
  sed -n 's/.* label "\([^"]*\)".*/\1/p' | sort -u
}
if [ ! -e "$file.armed" ] || [ ! -e "$file.pending" ]; then
  echo "no rules are being tried any more: they were taken back" >&2
  exit 1
fi
if [ "$(pfctl -a "$anchor" -sr | labels)" != "$(labels <"$file.pending")" ]; then
  echo "the rules that are being tried are not live" >&2
  exit 1
fi
sync
mv -f "$file.pending" "$file"
rm -f "$file.armed"
