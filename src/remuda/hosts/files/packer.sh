# Installs Packer from its maker's releases. Arguments: the version and the program's path.
#
# It is checked against the list of checksums of the same release: against damage, not against its maker.
set -eu
version=$1
program=$2
name=packer_${version}_darwin_arm64.zip
from=https://releases.hashicorp.com/packer/$version
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
curl -fsSL --retry 3 --connect-timeout 20 -o "$work/$name" "$from/$name"
curl -fsSL --retry 3 --connect-timeout 20 -o "$work/sums" "$from/packer_${version}_SHA256SUMS"
wanted=$(sed -n "s/^\([0-9a-f]*\)  $name\$/\1/p" "$work/sums")
seen=$(shasum -a 256 "$work/$name" | cut -d ' ' -f 1)
if [ -z "$wanted" ] || [ "$seen" != "$wanted" ]; then
  printf 'Packer %s did not arrive whole: its SHA-256 is %s and should be %s. Nothing was changed.\n' "$version" "$seen" "${wanted:-in the release}" >&2
  exit 1
fi
mkdir -p "$(dirname "$program")"
unzip -p "$work/$name" packer >"$program.remuda-new"
chmod 0755 "$program.remuda-new"
mv -f "$program.remuda-new" "$program"
