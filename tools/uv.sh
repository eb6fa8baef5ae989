#!/usr/bin/env bash
# Prints the path of uv. Where there is none, puts the pinned one into .tools/ (not into the system).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=0.13.7

if command -v uv >/dev/null; then
  command -v uv
  exit 0
fi
if [ ! -x .tools/bin/uv ]; then
  {
    if ! python3 -c 'import ensurepip' 2>/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
      # Debian ships Python without venv.
      apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv
    fi
    if ! python3 -m venv .tools; then
      echo "remuda: cannot make a virtual environment: python3 has no venv module." \
        "Install it (Debian: apt-get install python3-venv) or install uv, and run make again."
      exit 1
    fi
    .tools/bin/python -m pip install --quiet --disable-pip-version-check "uv==$version"
  } >&2
fi
echo "$PWD/.tools/bin/uv"
