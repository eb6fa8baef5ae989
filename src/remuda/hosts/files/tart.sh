# Installs Tart. Reads its release archive.
# Arguments: the version, the SHA-256 of the archive, the bundle's path and the program's path.
set -eu
version=$1
sum=$2
bundle=$3
program=$4
work=$(dirname "$bundle")/remuda-tart.new
fail() {
  printf '%s\n' "$1" >&2
  rm -rf "$work"
  exit 1
}
rm -rf "$work"
mkdir -p "$work/out" "$(dirname "$program")"
cat >"$work/archive"
seen=$(shasum -a 256 "$work/archive" | cut -d ' ' -f 1)
[ "$seen" = "$sum" ] || fail "Tart's archive did not arrive whole: its SHA-256 is $seen and should be $sum. Nothing was changed."
tar -xzf "$work/archive" -C "$work/out" || fail "Tart's archive cannot be unpacked. Nothing was changed."
new=$work/out/tart.app
[ -x "$new/Contents/MacOS/tart" ] || fail "Tart's archive holds no tart.app. Nothing was changed."
said=$("$new/Contents/MacOS/tart" --version 2>&1) || fail "The new Tart does not run: $said. Nothing was changed."
[ "$said" = "$version" ] || fail "The archive holds Tart $said and not $version. Nothing was changed."
chown -R 0:0 "$new"
# No shell can exchange two directories at once. Between these two renames there is no Tart: the host has no VMs then,
# and a run that was killed here is made again.
rm -rf "$bundle.previous"
if [ -e "$bundle" ]; then mv "$bundle" "$bundle.previous"; fi
if ! mv "$new" "$bundle"; then
  if [ -e "$bundle.previous" ]; then mv "$bundle.previous" "$bundle"; fi
  fail "The new Tart could not be put in place. The old one is back."
fi
rm -rf "$bundle.previous" "$work"
# Its rights belong to the bundle, so it is run from there, and by exec: it keeps its process and its arguments.
printf '#!/bin/sh\nexec %s/Contents/MacOS/tart "$@"\n' "$bundle" >"$program.remuda-new"
chmod 0755 "$program.remuda-new"
chown 0:0 "$program.remuda-new"
mv -f "$program.remuda-new" "$program"
