"""
Build the agent as one executable file, from this checkout and the versions in uv.lock.

    python tools/build_agent.py --into build/remuda-agent                           # for this machine
    python tools/build_agent.py --into build/remuda-agent --platform macos-arm64    # for Mac hosts, from anywhere
    python tools/build_agent.py --into build/remuda-agent --platform macos-arm64 --with-python

Macs have no Python of their own: ``--with-python`` puts one into the file, which is fetched from GitHub. Without it the
file needs a Python 3.11 on the host. Every wheel is checked against its hash in uv.lock, and nothing is compiled. The
same checkout gives the same file again, so a fleet does not roll for a build alone.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from hashlib import file_digest
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PYTHON: Final = "3.11"
PLATFORMS: Final = {
    # macOS 12 is the oldest that our hosts' Tart runs on; pex names platforms by interpreter as well.
    "macos-arm64": ("macosx-12.0-arm64-cp-3.11.9-cp311", "macos-aarch64"),
}
THIS: Final = "this"


def main() -> int:
    options = _options()
    into: Path = options.into.absolute()
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="remuda-agent-") as folder:
        scratch = Path(folder)
        try:
            built = _build(scratch, options.platform, with_python=options.with_python)
        except subprocess.CalledProcessError as error:
            print(
                f"The agent was not built: {Path(error.cmd[0]).name} ended with code {error.returncode}.",
                file=sys.stderr,
            )
            print("What it said is above. Nothing was written.", file=sys.stderr)
            return 1
        # Renamed into place: whoever reads the old file meanwhile has all of it.
        new = into.with_name(f".{into.name}.new")
        shutil.copyfile(built, new)
        new.chmod(0o755)
        new.replace(into)
    with into.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    print(f"{into}: {into.stat().st_size} bytes for {options.platform}, sha256 {digest}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--into", type=Path, required=True, help="the file to write")
    parser.add_argument(
        "--platform",
        choices=[THIS, *PLATFORMS],
        default=THIS,
        help="for what kind of host (default: this machine's)",
    )
    parser.add_argument(
        "--with-python",
        action="store_true",
        help="put a Python into the file, for hosts that have none, as Macs do",
    )
    return parser.parse_args()


def _build(scratch: Path, platform: str, *, with_python: bool) -> Path:
    """Build in a scratch folder and return the file."""
    _uv("build", "--wheel", "--out-dir", scratch, ROOT)
    (wheel,) = scratch.glob("*.whl")
    pinned = scratch / "requirements.txt"
    # What the agent needs and nothing of the server's; the index is the caller's own setting.
    _uv(
        *("export", "--locked", "--no-dev", "--extra", "agent", "--no-emit-project", "--no-header"),
        *("--project", ROOT, "--output-file", pinned),
    )
    sources = (
        _from_environment(scratch, pinned, wheel)
        if platform == THIS
        else _from_index(scratch, pinned, wheel, PLATFORMS[platform][0])
    )
    file = scratch / "agent.pex"
    scie: tuple[str, ...] = ()
    if with_python:
        scie = ("--scie", "eager", "--scie-only", "--scie-python-version", PYTHON)
        scie += () if platform == THIS else ("--scie-platform", PLATFORMS[platform][1])
    _run(_program("pex"), *sources, "--script", "remuda", "--output-file", file, *scie)
    return scratch / "agent" if with_python else file


def _from_environment(scratch: Path, pinned: Path, wheel: Path) -> tuple[str | Path, ...]:
    """For this machine: uv installs what it mostly has already, and pex packs that."""
    environment = scratch / "environment"
    _uv("venv", "--python", sys.executable, environment)
    python = environment / "bin/python"
    _uv("pip", "install", "--python", python, "--require-hashes", "--no-build", "-r", pinned)
    version = wheel.name.split("-")[1]
    # By its name and not by its path, which would be written into the file and differ each time.
    found = ("--no-index", "--find-links", scratch, f"remuda=={version}")
    _uv("pip", "install", "--python", python, "--no-deps", *found)
    return (f"remuda[agent]=={version}", "--venv-repository", environment)


def _from_index(scratch: Path, pinned: Path, wheel: Path, platform: str) -> tuple[str | Path, ...]:
    """For another machine: pex fetches that one's wheels, each of which must have its hash in uv.lock."""
    with wheel.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    everything = scratch / "with-agent.txt"
    own = f"remuda=={wheel.name.split('-')[1]} --hash=sha256:{digest}\n"
    everything.write_text(pinned.read_text() + own)
    where = ("--find-links", scratch, "-r", everything, "--intransitive")
    return (*where, "--wheel", "--no-build", "--platform", platform)


def _uv(*words: str | Path) -> None:
    uv = (
        shutil.which("uv")
        or subprocess.run(  # noqa: S603 - our own script
            [str(ROOT / "tools/uv.sh")], check=True, capture_output=True, text=True
        ).stdout.strip()
    )
    _run(uv, words[0], "--quiet", *words[1:])


def _program(name: str) -> Path:
    """Return a program of the environment that runs this."""
    return Path(sys.executable).with_name(name)


def _run(program: str | Path, *words: str | Path) -> None:
    """Run a program; it shows what it says when it fails."""
    ran = subprocess.run(  # noqa: S603 - uv and pex, with words of our own
        [str(program), *map(str, words)], check=False, capture_output=True, text=True
    )
    if ran.returncode:
        sys.stderr.write(ran.stdout + ran.stderr)
    ran.check_returncode()


if __name__ == "__main__":
    sys.exit(main())
