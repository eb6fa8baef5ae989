"""The scripts that run on hosts, read from the package. The only place that reads them: decisions get their texts."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def script(name: str) -> str:
    """Return a script's text, such as ``put-file``."""
    return files("remuda.hosts").joinpath("files", f"{name}.sh").read_text(encoding="utf-8")
