"""No part of a secret that a host says reaches a person: not cut, not quoted, not from inside a credential."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.system import SystemClock
from remuda.hosts.converge import Converger, StepFailed, no_vms
from remuda.hosts.decide.facts import Fact, FactUnreadable
from remuda.hosts.decide.launchd import unreadable
from remuda.hosts.decide.parts.sudo import PASSWORDLESS
from remuda.hosts.decide.running import SAID_MAX, said
from remuda.hosts.decide.step import Probe, Step
from remuda.hosts.decide.wanted import FleetConfig, OwnConfig, Wanted
from remuda.hosts.scrubbing import scrubbed, secrets_of
from remuda.model.secret import Secret
from remuda.ports.host_shell import Command, Ran, Target, Upload
from remuda.sim.host_shell import MemoryHost, MemoryShells

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from remuda.hosts.decide.facts import Facts
    from remuda.hosts.decide.step import Problem
    from remuda.ports.host_shell import HostShell
    from remuda.sim.host_shell import Called

PASSWORD = 'kan\\ar\'ie "\u00e9" vogel'  # noqa: S105 - nobody's
KEY = b"-----BEGIN EC PRIVATE KEY-----\nbm9ib2R5cyBrZXkgYXQgYWxs\n-----END EC PRIVATE KEY-----\n"
DATA = base64.b64encode(KEY).decode()
KUBECONFIG = json.dumps({"users": [{"user": {"client-key-data": DATA, "token": "canary-token"}}]})


def _parsed(ran: Ran) -> str:
    if ran.stdout.startswith(b"?"):
        raise unreadable("the word", said(ran))
    return ran.stdout.decode()


SEEN = Fact(name="seen", command=Command(words=("see",)), parse=_parsed)


def _as_said(ran: Ran) -> str:
    return said(ran) if ran.code else ""


@dataclass
class Talker:
    """A host that says everything that it was told."""

    words: bytes
    seen: bytes = b"old"

    async def shell(self) -> HostShell:
        programs: dict[str, Callable[[Called], Awaitable[Ran]]] = {
            PASSWORDLESS.command.words[0]: self._root,
            "see": self._see,
            "ask": self._fail,
            "/bin/sh": self._fail,
        }
        shells = MemoryShells()
        shells.hosts["mini", 22] = MemoryHost(
            user="m1", fingerprint="SHA256:x", keys={b"key"}, programs=programs
        )
        target = Target(address="mini", user="m1", key=Secret(b"key"), trust_first=True)
        return await shells.open(target)

    async def _root(self, called: Called) -> Ran:
        del called
        return Ran(code=0)

    async def _see(self, called: Called) -> Ran:
        del called
        return Ran(code=0, stdout=self.seen)

    async def _fail(self, called: Called) -> Ran:
        del called
        return Ran(code=1, stderr=self.words)


@dataclass(frozen=True)
class Word:
    step: Step
    name: str = "word"
    facts: tuple[Fact[object], ...] = (SEEN,)

    def fleet_state(self, config: FleetConfig) -> bytes | None:
        del config
        return None

    def steps(self, facts: Facts, wanted: Wanted) -> tuple[Step | Problem, ...]:
        del wanted
        return () if facts.of(SEEN) == "new" else (self.step,)


@pytest.fixture
def wanted(tmp_path: Path) -> Wanted:
    file = Upload(tmp_path / "none", "0" * 64, 0)
    fleet = FleetConfig(agent=file, tart=file, tart_version="1", dispatch_url="https://d")
    password, kubeconfig = Secret(PASSWORD.encode()), Secret(KUBECONFIG.encode())
    own = OwnConfig(node="mini", user="m1", fleet="f", password=password, kubeconfig=kubeconfig)
    return Wanted(fleet=fleet, own=own)


def parts_of(secret: str, length: int = 6) -> set[str]:
    """Return every piece of a secret, as it is and as Python quotes it."""
    spelled = (secret, repr(secret), secret.encode("unicode_escape").decode())
    return {text[n : n + length] for text in spelled for n in range(len(text) - length + 1)}


APPLIES = Step(name="word", reason="old", apply=(Command(words=("set",)),))
EXPLAINS = Step(
    name="word",
    reason="old",
    apply=(Command(words=("set",)),),
    explain=lambda ran: f"it said {ran.stderr.decode()[-20:]!r}",
)
CHECKS = Step(
    name="word", reason="old", verify=(Probe(command=Command(words=("ask",)), judge=_as_said),)
)


@pytest.mark.parametrize("secret", [PASSWORD, DATA, "canary-token", KEY.decode().splitlines()[1]])
@pytest.mark.parametrize("step", [APPLIES, EXPLAINS, CHECKS], ids=["said", "explained", "judged"])
async def test_no_piece_of_a_secret_is_in_an_error_wherever_it_is_cut(
    wanted: Wanted, secret: str, step: Step
) -> None:
    for after in (*range(0, 24, 3), SAID_MAX - 30, SAID_MAX - 10, SAID_MAX - 4):
        talker = Talker(b"x" * 600 + b" " + secret.encode() + b" " + b"." * after)
        run = Converger(
            host="mini",
            shell=await talker.shell(),
            wanted=wanted,
            parts=(Word(step),),
            clock=SystemClock(),
            drain=no_vms,
        )
        with pytest.raises(StepFailed) as caught:
            await run.run()
        assert [piece for piece in parts_of(secret) if piece in str(caught.value)] == []


@pytest.mark.parametrize("secret", [PASSWORD, DATA])
async def test_no_piece_of_a_secret_is_in_what_cannot_be_read(wanted: Wanted, secret: str) -> None:
    for before in range(170, 200, 7):
        talker = Talker(b"", seen=b"?" + b"x" * before + secret.encode())
        run = Converger(
            host="mini",
            shell=await talker.shell(),
            wanted=wanted,
            parts=(Word(APPLIES),),
            clock=SystemClock(),
            drain=no_vms,
        )
        with pytest.raises(FactUnreadable) as caught:
            await run.run()
        assert [piece for piece in parts_of(secret) if piece in str(caught.value)] == []


def test_what_is_inside_a_credential_is_secret_too(wanted: Wanted) -> None:
    secrets = secrets_of(wanted)
    for inside in (DATA, "canary-token", KEY.decode(), KEY.decode().splitlines()[1]):
        assert scrubbed(f"a {inside} b", secrets) == "a (hidden) b"
    yaml = "users:\n- user:\n    client-key-data: c2VjcmV0\n    token: 'canary-2'\n"
    own = OwnConfig(node="mini", user="m1", fleet="f", kubeconfig=Secret(yaml.encode()))
    found = secrets_of(Wanted(fleet=wanted.fleet, own=own))
    assert {b"c2VjcmV0", b"secret", b"canary-2"} <= {each.reveal() for each in found}
