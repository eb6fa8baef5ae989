# Lays the agent's new program beside the old one. Reads it. Arguments: the program's path and its SHA-256.
set -eu
program=$1
sum=$2
staged=$program.staged
mkdir -p "$(dirname "$program")"
# Always a new file: macOS remembers the signature of a file that was written over, and kills what does not match it.
rm -f "$staged"
umask 022
cat >"$staged"
seen=$(shasum -a 256 "$staged" | cut -d ' ' -f 1)
if [ "$seen" != "$sum" ]; then
  rm -f "$staged"
  printf 'The agent did not arrive whole: its SHA-256 is %s and should be %s. Nothing was changed.\n' "$seen" "$sum" >&2
  exit 1
fi
chown 0:0 "$staged"
chmod 0755 "$staged"
# Apple silicon runs nothing unsigned. What is signed already is left as it is; and whether a program that cannot be
# signed runs all the same, as a script does, is proven when it is loaded.
if ! codesign --verify "$staged" 2>/dev/null; then
  codesign --force --sign - "$staged" 2>/dev/null || true
fi
