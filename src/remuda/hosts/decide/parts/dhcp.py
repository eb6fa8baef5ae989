"""
How long guests' addresses are leased.

macOS leases an address for a day and has 253 of them. A host whose VMs live for minutes has none left by the evening,
and new VMs then wait for an address for ever.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.hosts.decide.facts import Fact
from remuda.hosts.decide.launchd import unreadable
from remuda.hosts.decide.running import said
from remuda.hosts.decide.step import Probe, Problem, Step
from remuda.model.errors import BadInput
from remuda.ports.host_shell import Command

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.hosts.decide.facts import Facts
    from remuda.hosts.decide.wanted import FleetConfig, Wanted
    from remuda.ports.host_shell import Ran

NAME: Final = "dhcp"
FILE: Final = "/Library/Preferences/SystemConfiguration/com.apple.InternetSharing.default.plist"
KEY: Final = "DHCPLeaseTimeSecs"
LEASE_S: Final = (60, 86_400)
_SHOWN: Final = re.compile(rf"\b{KEY}\b\"?\s*=\s*\"?(\d+)\"?;")


def _lease(ran: Ran) -> int | None:
    """Read what ``defaults read`` shows of the dictionary ``bootpd``. None: nothing is said of leases."""
    shown = ran.stdout.decode(errors="replace")
    if ran.code != 0:
        if b"does not exist" in ran.stderr:
            return None
        raise unreadable("its leases (defaults)", said(ran))
    found = _SHOWN.search(shown)
    return int(found[1]) if found else None


LEASE: Final = Fact(
    name="dhcp-lease",
    command=Command(words=("defaults", "read", FILE, "bootpd"), root=True),
    parse=_lease,
)


@dataclass(frozen=True, slots=True)
class DhcpPart:
    """One number in a preference of bootpd. It counts from the next time that a first VM starts on the host."""

    name: str = NAME
    facts: tuple[Fact[object], ...] = (LEASE,)

    def fleet_state(self, config: FleetConfig) -> bytes | None:
        return str(_checked(config.dhcp_lease_s)).encode()

    def steps(self, facts: Facts, wanted: Wanted) -> tuple[Step | Problem, ...]:
        seconds, seen = _checked(wanted.fleet.dhcp_lease_s), facts.of(LEASE)
        if seen == seconds:
            return ()
        words = ("defaults", "write", FILE, "bootpd", "-dict-add", KEY, "-int", str(seconds))
        shown = "a day, as nothing is set" if seen is None else f"{seen} s"
        return (
            Step(
                name="dhcp-lease",
                reason=f"addresses of guests are leased for {shown}: a busy host runs out of them",
                diff=(*(() if seen is None else (f"- {KEY} {seen}",)), f"+ {KEY} {seconds}"),
                apply=(Command(words=words, root=True),),
                verify=(Probe(command=LEASE.command, judge=_judge(seconds)),),
            ),
        )


def _checked(seconds: int) -> int:
    low, high = LEASE_S
    if not low <= seconds <= high:
        raise BadInput(
            f"Addresses of guests cannot be leased for {seconds} s",
            why=f"it must be {low} to {high} s: a shorter lease ends under a running job, a longer one is macOS's own",
            fix="600 s is good for jobs of any length, as guests renew their leases",
        )
    return seconds


def _judge(seconds: int) -> Callable[[Ran], str]:
    def judged(ran: Ran) -> str:
        seen = _lease(ran)
        return "" if seen == seconds else f"{KEY} is {seen} and did not become {seconds}"

    return judged
