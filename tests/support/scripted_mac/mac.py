"""A scripted Mac as tests hold it: states to go back to, what years of other tools did to it, and runs of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.hosts.decide import kcpassword
from remuda.model.secret import Secret
from remuda.ports.host_shell import Command
from tests.support.scripted_mac import snapshots, states
from tests.support.scripted_mac.bootstrapping import Run, Wish

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.scripted_mac.place import Place
    from tests.support.scripted_mac.snapshots import Snapshot

LEGACY = (
    "# remuda: guests are held back\n"
    'anchor "remuda.runners"\n'
    'load anchor "remuda.runners" from "/etc/pf.anchors/remuda.runners"\n'
)


@dataclass
class Mac:
    """A scripted Mac with two states to go back to: as it was delivered, and bootstrapped."""

    place: Place
    folder: Path
    fresh: Snapshot
    whole: Snapshot | None = None
    steps: tuple[str, ...] = ()
    """Those that made a fresh one whole."""

    def wish(self, **changed: object) -> Wish:
        usual: dict[str, object] = {"folder": self.folder, "password": self.place.password}
        return Wish(**{**usual, **changed})  # type: ignore[arg-type]

    def run(self, **changed: object) -> Run:
        return Run(self.place, self.wish(**changed).wanted())

    async def bootstrapped(self) -> Snapshot:
        """Make it what it should be, the first time by a run and then by a copy of that."""
        if self.whole is None:
            snapshots.put_back(self.place, self.fresh)
            self.steps = (await self.run().converge()).changed
            self.whole = snapshots.taken(self.place)
        snapshots.put_back(self.place, self.whole)
        return self.whole

    def file(self, path: str) -> bytes:
        return self.place.path(path).read_bytes()

    def state(self, **changed: object) -> dict[str, object]:
        found = {**states.read(self.place), **changed}
        if changed:
            states.write(self.place, found)
        return found

    async def reboot(self) -> None:
        run = self.run()
        shells, shell = await run.opened()
        assert (await shell.run(Command(words=("/sbin/reboot",), root=True))).code == 0
        await shells.close(shell)


def conf(*blocks: str) -> Callable[[Mac], None]:
    """Have these blocks at the end of Apple's lines."""

    def made(mac: Mac) -> None:
        kept = mac.fresh["private/etc/pf.conf"][3].decode()
        mac.place.path("/private/etc/pf.conf").write_text(kept + "".join(blocks))

    return made


def sealed(mac: Mac) -> None:
    mac.place.path("/private/etc/kcpassword").write_bytes(
        kcpassword.encode(Secret(b"<sealed>")).reveal()
    )
    mac.state(aqua=False)


def without_loginwindow(mac: Mac) -> None:
    mac.state(aqua=False, loginwindow=None)


def prepared_by_another(mac: Mac) -> None:
    """Be a Mac as its owner left it: sudo asks for nothing, so a password that is long out of date is not noticed."""
    snapshots.put_back(mac.place, mac.fresh)
    rule = mac.place.path("/private/etc/sudoers.d/m1-nopasswd")
    rule.write_text("m1 ALL=(ALL) NOPASSWD: ALL\n")
    rule.chmod(0o440)
