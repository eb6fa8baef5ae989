"""What a builder fetches: Packer and GitHub's runner, each a few lines of shell in an archive of the right shape."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

from tests.support.scripted_mac.programs.model import fail

PACKER = """#!/bin/sh
plugins=/Users/m1/Library/packer-plugins
case "$1 $2" in
"version ") echo "Packer v@VERSION@" ;;
"plugins installed") cat "$plugins" 2>/dev/null || true ;;
"plugins install") echo "$plugins/packer-plugin-tart_v${4#v}_x5.0_darwin_arm64" >>"$plugins" ;;
esac
"""
LISTENER = "#!/bin/sh\necho @VERSION@\n"
CONFIG = """#!/bin/sh
[ -n "$ACTIONS_RUNNER_INPUT_TOKEN" ] || exit 1
while [ $# -gt 0 ]; do
  case $1 in --url) url=$2 ;; --name) name=$2 ;; esac
  shift
done
printf '{"agentName": "%s", "gitHubUrl": "%s"}' "$name" "$url" >.runner
echo registered >.credentials
"""
SVC = """#!/bin/sh
label=actions.runner.acme.mini-1
plist=$HOME/Library/LaunchAgents/$label.plist
case $1 in
install)
  mkdir -p "$(dirname "$plist")"
  cat >"$plist" <<EOF
<?xml version="1.0" encoding="UTF-8"?>
<plist version="1.0"><dict><key>Label</key><string>$label</string><key>KeepAlive</key><true/>
<key>ProgramArguments</key><array><string>$PWD/bin/Runner.Listener</string></array></dict></plist>
EOF
  echo "$plist" >.service ;;
uninstall) rm -f "$plist" .service ;;
esac
"""


def curl(words: list[str]) -> int:
    """Write what is at an address into a file."""
    url, to = words[-1], Path(words[words.index("-o") + 1])
    name = url.rsplit("/", 1)[1]
    if name.startswith("packer_"):
        version = name.split("_")[1]
        held = _packer(version)
        if name.endswith("SHA256SUMS"):
            sum_ = hashlib.sha256(held).hexdigest()
            held = f"{sum_}  packer_{version}_darwin_arm64.zip\n".encode()
    elif name.startswith("actions-runner-"):
        held = _runner(name.removesuffix(".tar.gz").rsplit("-", 1)[1])
    else:
        fail(22, f"curl: (22) The requested URL returned error: 404: {url}")
    to.write_bytes(held)
    to.chmod(0o644)
    return 0


def _packer(version: str) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        about = zipfile.ZipInfo("packer", (2026, 1, 1, 0, 0, 0))
        archive.writestr(about, PACKER.replace("@VERSION@", version))
    return held.getvalue()


def _runner(version: str) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as archive:
        for name, text in (
            ("bin/Runner.Listener", LISTENER),
            ("config.sh", CONFIG),
            ("svc.sh", SVC),
        ):
            said = text.replace("@VERSION@", version).encode()
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(said), 0o755
            archive.addfile(about, io.BytesIO(said))
    return held.getvalue()
