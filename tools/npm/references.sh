#!/usr/bin/env bash
# Prints the folder of GitHub's own descriptions of its API and its messages, fetched by npm as the lock file says.
#
# They are for the tests only and are not part of this repository. They are kept outside of git, under the lock file's
# checksum. Exits with 1, and says why, where they cannot be had: then the tests that need them are skipped, except
# under CI=true, where they fail.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
sum=$(cksum < "$here/package-lock.json" | tr ' ' -)
home=${REMUDA_NPM_REFERENCES:-$here/../../.tools/npm}/$sum

if [ ! -d "$home" ]; then
  if ! command -v npm > /dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
      echo "references: installing npm" >&2
      { apt-get update -qq && apt-get install -qq -y --no-install-recommends npm; } > /dev/null
    else
      echo "references: npm is not here, and without root on Debian it is not installed by itself" >&2
      exit 1
    fi
  fi
  mkdir -p "$(dirname "$home")"
  fresh=$(mktemp -d "$(dirname "$home")/fresh.XXXXXX")
  trap 'rm -rf "$fresh"' EXIT
  cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$fresh"
  (cd "$fresh" && npm ci --silent --fetch-retries=2 --fetch-timeout=60000) >&2 || {
    echo "references: npm could not fetch them" >&2
    exit 1
  }
  # Nine tenths of it are the same documents again, with every reference written out.
  find "$fresh" -name '*.deref.json' -delete
  [ -d "$home" ] || mv "$fresh" "$home" # another run may have been first
  chmod 755 "$home"
fi
echo "$home/node_modules"
