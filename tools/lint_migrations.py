"""
Lint migrations with squawk: what would lock a table that is in use, or break the version that still runs.

Those that run in a transaction are linted as such, the others as they are. Usage: lint_migrations.py [FOLDER]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from remuda.adapters.postgres.migration_plan import Fault, migrations_of

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ROOT / "src" / "remuda" / "adapters" / "postgres" / "migrations"
SQUAWK = Path(sys.executable).parent / "squawk"


def main(folder: Path) -> int:
    files = {file.name: file.read_text(encoding="utf-8") for file in folder.glob("*.sql")}
    found = migrations_of(files)
    if isinstance(found, Fault):
        print(f"{found.why}. {found.fix}.")
        return 1
    if torn := [str(m) for m in found if m.in_transaction and "CONCURRENTLY" in m.sql.upper()]:
        print(
            f"{', '.join(torn)}: CONCURRENTLY cannot run in a transaction: say so in the first line."
        )
        return 1
    together = [folder / f"{m}.sql" for m in found if m.in_transaction]
    apart = [folder / f"{m}.sql" for m in found if not m.in_transaction]
    return _squawk(["--assume-in-transaction"], together) or _squawk([], apart)


def _squawk(options: list[str], files: list[Path]) -> int:
    if not files:
        return 0
    command = [str(SQUAWK), "--config", str(ROOT / ".squawk.toml"), *options, *map(str, files)]
    return subprocess.run(command, cwd=ROOT, timeout=60, check=False).returncode  # noqa: S603 - of our own venv


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else SHIPPED))
