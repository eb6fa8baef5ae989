"""The real kubectl, as people type it."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tests.support.control_plane import NoBinaries, find_assets
from tests.support.processes import end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TIMEOUT_S = 60


def found() -> dict[str, str]:
    """Return the kubectls of this machine: the one of the pinned release, and the one that is installed, if any."""
    programs = {}
    with suppress(NoBinaries):
        programs["pinned"] = str(find_assets() / "kubectl")
    if installed := shutil.which("kubectl"):
        programs["installed"] = installed
    return programs


class Kubectl:
    """One kubectl on one control plane."""

    def __init__(self, program: str, kubeconfig: Path) -> None:
        self._command = [program, "--kubeconfig", str(kubeconfig)]

    def __call__(
        self, *arguments: str, stdin: str = "", fails: bool = False, editor: str = ""
    ) -> str:
        """Run it, and return all that it prints. It must succeed, or fail if that is expected."""
        answer = subprocess.run(  # noqa: S603 - our own kubectl
            [*self._command, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
            env={**os.environ, "EDITOR": editor} if editor else None,
        )
        printed = answer.stdout + answer.stderr
        assert (answer.returncode != 0) is fails, printed
        return printed

    @contextmanager
    def following(self, *arguments: str) -> Iterator[Iterator[str]]:
        """Run what goes on by itself, such as ``get --watch``; its lines as they come."""
        process = subprocess.Popen(  # noqa: S603 - our own kubectl
            [*self._command, *arguments], stdout=subprocess.PIPE, start_new_session=True
        )
        assert process.stdout is not None
        try:
            yield (line.decode().rstrip() for line in process.stdout)
        finally:
            end(process)
            process.stdout.close()
