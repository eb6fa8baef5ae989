# Tries new rules for SSH: they are live at once and taken back by themselves, unless they are confirmed in time. Reads them.
# Arguments: the file that holds the confirmed ones, the anchor, for how many seconds, and whence the caller's session is.
set -eu
file=$1 anchor=$2 seconds=$3 session=$4
me=$$.$(date +%s)
mkdir -p "$(dirname "$file")"
cat >"$file.pending"
chmod 0644 "$file.pending"
pfctl -n -a "$anchor" -f "$file.pending"
echo "$me" >"$file.armed"

revert() {
  if [ -e "$file" ]; then
    pfctl -a "$anchor" -f "$file"
  else
    pfctl -a "$anchor" -F rules
  fi
  rm -f "$file.armed" "$file.pending"
}

# It outlives the session: if the rules lock the caller out, the session is what ends.
(
  trap '' HUP
  left=$seconds
  while [ "$left" -gt 0 ]; do
    sleep 1
    [ "$(cat "$file.armed" 2>/dev/null)" = "$me" ] || exit 0
    left=$((left - 1))
  done
  revert
) </dev/null >/dev/null 2>&1 &

pfctl -a "$anchor" -f "$file.pending" || {
  revert
  exit 1
}
# What pf remembers of open connections would let them through past the rules: then an open session would prove nothing.
[ -z "$session" ] || pfctl -k "$session" || true
