"""Two ways to a host that the suite runs over: SSH to a real server, and the twin in memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import asyncssh

from remuda.adapters.ssh import SshSettings, SshShells
from remuda.model.secret import Secret
from remuda.ports.host_shell import Ran, Target
from remuda.sim.host_shell import Called, MemoryHost, MemoryShells

if TYPE_CHECKING:
    from remuda.ports.host_shell import HostShells
    from tests.support.scripted_mac.place import Place

FLOOD_BYTES = 3 * 1024 * 1024
PROGRAMS = {
    "words": 'shift 0; for word in "$@"; do printf "%s\\0" "$word"; done',
    "fails": "echo out; echo err >&2; exit 3",
    "flood": f"head -c {FLOOD_BYTES} /dev/zero; head -c {FLOOD_BYTES} /dev/zero >&2",
    "ignores-stdin": "exit 5",
    "reads": "exec cat",
    "who": "exec id -u",
    "hangs": 'echo "$$" >/tmp/hangs-"$1"; exec sleep 600',
}
"""What both have in ``/contract``. The real ones are these shell scripts."""


class Way(Protocol):
    """What the suite needs to know of one of them."""

    def shells(self) -> HostShells: ...

    def target(self, **changed: object) -> Target: ...

    @property
    def password(self) -> str: ...

    def forgo_root(self) -> None: ...

    def other_key(self) -> Secret:
        """Return a key that this host does not take."""
        ...


@dataclass
class OverSsh:
    """The real thing."""

    place: Place

    @property
    def password(self) -> str:
        return self.place.password

    def shells(self) -> HostShells:
        return SshShells(SshSettings(connect_s=60.0, login_s=60.0))

    def target(self, **changed: object) -> Target:
        return self.place.target(**changed)

    def forgo_root(self) -> None:
        (self.place.root / "private/etc/sudoers.d/m1-nopasswd").unlink()

    def other_key(self) -> Secret:
        return Secret(asyncssh.generate_private_key("ssh-ed25519").export_private_key())

    def prepare(self) -> None:
        """Put the programs of the suite there, and give root."""
        folder = self.place.root / "contract"
        folder.mkdir(exist_ok=True)
        for name, text in PROGRAMS.items():
            (folder / name).write_text(f"#!/usr/libexec/bash\n{text}\n")
            (folder / name).chmod(0o755)
        rule = self.place.root / "private/etc/sudoers.d/m1-nopasswd"
        rule.write_text("m1 ALL=(ALL) NOPASSWD: ALL\n")
        rule.chmod(0o440)


@dataclass
class InMemory:
    """The twin."""

    password: str = "swordfish '"  # noqa: S105 - of a host that is not there
    host: MemoryHost = field(init=False)
    opened: MemoryShells = field(default_factory=MemoryShells)

    def __post_init__(self) -> None:
        programs = {
            f"/contract/{name}": getattr(self, f"_{name.replace('-', '_')}") for name in PROGRAMS
        }
        self.host = MemoryHost(
            user="m1",
            fingerprint="SHA256:" + "A" * 43,
            keys={b"a private key"},
            password=self.password.encode(),
            programs=programs,
        )
        self.opened.hosts["127.0.0.1", 22] = self.host

    def shells(self) -> HostShells:
        return self.opened

    def target(self, **changed: object) -> Target:
        usual: dict[str, object] = {
            "address": "127.0.0.1",
            "user": "m1",
            "key": Secret(b"a private key"),
            "fingerprint": self.host.fingerprint,
        }
        return Target(**{**usual, **changed})  # type: ignore[arg-type]

    def forgo_root(self) -> None:
        self.host.rooted = False

    def other_key(self) -> Secret:
        return Secret(b"another private key")

    async def _words(self, called: Called) -> Ran:
        said = b"".join(word.encode(errors="surrogateescape") + b"\0" for word in called.words[1:])
        return Ran(code=0, stdout=said)

    async def _fails(self, called: Called) -> Ran:
        del called
        return Ran(code=3, stdout=b"out\n", stderr=b"err\n")

    async def _flood(self, called: Called) -> Ran:
        del called
        return Ran(code=0, stdout=bytes(FLOOD_BYTES), stderr=bytes(FLOOD_BYTES))

    async def _ignores_stdin(self, called: Called) -> Ran:
        del called
        return Ran(code=5)

    async def _reads(self, called: Called) -> Ran:
        return Ran(code=0, stdout=called.stdin)

    async def _who(self, called: Called) -> Ran:
        return Ran(code=0, stdout=b"0\n" if called.root else b"501\n")

    async def _hangs(self, called: Called) -> Ran:
        del called
        await asyncio.Event().wait()
        raise AssertionError
