"""A real OCI registry: Debian's docker-registry, on the loopback, with or without a password."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.debian import unpacked_or_skip
from tests.support.processes import Processes, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

USERNAME = "builder"
PASSWORD = "for-tests"  # noqa: S105 - of a registry that lives as long as a test
_HASH = "$2b$04$rYQN2h8Pd2VNWlJTc25dPeCexAxOcKcfrngPxHMhNqCAoJuffv6FG"
_CONFIG = """\
version: 0.1
log: {{level: warn}}
storage:
  filesystem: {{rootdirectory: {folder}/blobs}}
  delete: {{enabled: true}}
http: {{addr: "127.0.0.1:{port}"}}
"""
_AUTH = "auth: {{htpasswd: {{realm: tests, path: {folder}/htpasswd}}}}\n"


@dataclass(frozen=True, slots=True)
class DockerRegistry:
    """One that runs."""

    host: str
    folder: Path

    def blob_file(self, digest: str) -> Path:
        """Return where it keeps a blob, for a test that damages it."""
        name = digest.removeprefix("sha256:")
        return self.folder / "blobs/docker/registry/v2/blobs/sha256" / name[:2] / name / "data"


@contextlib.contextmanager
def docker_registry(folder: Path, *, with_password: bool = False) -> Iterator[DockerRegistry]:
    program = unpacked_or_skip("docker-registry") / "usr/bin/docker-registry"
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    (folder / "htpasswd").write_text(f"{USERNAME}:{_HASH}\n")
    text = _CONFIG + (_AUTH if with_password else "")
    (folder / "config.yml").write_text(text.format(folder=folder, port=port))
    processes = Processes(folder / "logs")
    try:
        processes.start("registry", [str(program), "serve", str(folder / "config.yml")])
        processes.wait_until("registry", lambda: _listens(port), "it listens")
        yield DockerRegistry(f"127.0.0.1:{port}", folder)
    finally:
        processes.stop()


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
