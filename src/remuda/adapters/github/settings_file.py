"""
Settings of GitHub in a file, as ``remuda setup github`` leaves them: the same variables, one in a line.

    REMUDA_GITHUB_APP_ID=123
    REMUDA_GITHUB_PRIVATE_KEY_FILE=app-123.pem

Names of files without a slash in front are beside that file, so that the folder can be moved, or mounted as a Secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.adapters.github.settings import (
    APP_ID,
    PRIVATE_KEY_FILE,
    VARIABLES,
    WEBHOOK_SECRET_FILE,
)
from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MAX_BYTES: Final = 64 * 1024


def with_file(env: Mapping[str, str], file: Path) -> dict[str, str]:
    """
    Return the environment with what a file adds to it.

    What the environment says goes before what the file says; if it names an App, the file is of another one, and
    nothing of it is taken. Raises BadInput if the file cannot be used.
    """
    if env.get(APP_ID, "").strip():
        return dict(env)
    return {**read_file(file), **{name: value for name, value in env.items() if value.strip()}}


def read_file(file: Path) -> dict[str, str]:
    """Read the variables. Raises BadInput, which quotes no value."""
    fix = "Write it anew with remuda setup github --replace, or correct that line"
    try:
        with file.open("rb") as opened:
            text = opened.read(_MAX_BYTES).decode("utf-8")
    except (OSError, ValueError) as error:
        why = (isinstance(error, OSError) and error.strerror) or "it is not text"
        raise BadInput(
            f"The settings of GitHub in {file} cannot be read",
            why=str(why),
            fix="Check the path and that this user may read it, or write it with remuda setup github",
        ) from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals or name not in VARIABLES:
            known = f"it is not one of {', '.join(VARIABLES)}, with = behind it"
            raise BadInput(f"Line {number} of {file} cannot be used", why=known, fix=fix)
        found[name] = _unquoted(value)
    for name in (PRIVATE_KEY_FILE, WEBHOOK_SECRET_FILE):
        if found.get(name):
            found[name] = str(file.absolute().parent / found[name])
    return found


def _unquoted(value: str) -> str:
    """Take off quotes, which shells and other readers of such files need for some values."""
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value
