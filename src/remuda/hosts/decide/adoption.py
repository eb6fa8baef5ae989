"""
Which rented Mac becomes a Host's, by what name it is claimed, and how it goes back. Pure: lists in, choices out.

The provider knows no owner and no lock: a machine's name is the claim. It holds the Host's own uid, so the Mac of one
Host is never taken for that of another Host of the same name, in another cluster or a year later. A claim is made in
two steps, with a pause between: rename to a name that nobody else would choose, wait until everybody who saw the old
name has done what they would do about it, look, and only whoever still finds its own name there renames it for good.
What is not claimed by us and not in the pool we never touch: a pool whose prefix covers claims, or is covered by them,
is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from remuda.ports.machines import READY, Image, Machine

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

PENDING: Final = "claim-pending-"
"""Between the pool's prefix and something random: somebody is about to take this machine."""
PENDING_STALE: Final = timedelta(minutes=15)
"""After so long, whoever was about to take it is dead: the machine is in the pool again."""
RETURNING: Final = f"{PENDING}return-"
"""Before a claim: its Mac is on its way back, and not wiped yet. It is free for nobody, however long that takes."""
_UID_CHARS: Final = 8
_FAMILY: Final = re.compile(r"^(?:[A-Za-z]+|[0-9]+)$")
_IMAGE_NAME: Final = re.compile(r"^macos-(?P<family>[a-z]+)(?:-|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one Host is after, and the name by which its machine is its own."""

    name: str
    zone: str
    type: str
    family: str
    pool_prefix: str
    claim_prefix: str
    """Every Mac whose name begins with it is somebody's."""
    machine: str = ""
    """The id that the Host's status holds. Empty: none, or the write of it was lost."""


@dataclass(frozen=True, slots=True)
class Owned:
    """A machine is the Host's already."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class Take:
    """These can be claimed, the first one first."""

    machines: tuple[Machine, ...]


@dataclass(frozen=True, slots=True)
class NoneFree:
    """Nothing can be taken now."""

    reason: str
    why: str
    fix: str


Choice = Owned | Take | NoneFree


def claim_name(prefix: str, host: str, uid: str) -> str:
    """Return the name that a Host's machine has for as long as it is the Host's."""
    return f"{prefix}{host}-{uid.replace('-', '')[:_UID_CHARS]}"


def pending_name(pool_prefix: str, token: str) -> str:
    return f"{pool_prefix}{PENDING}{token}"


def returning_name(pool_prefix: str, claim: str) -> str:
    return f"{pool_prefix}{RETURNING}{claim}"


def free_name(pool_prefix: str, token: str) -> str:
    """Return the name of a machine that went back."""
    return f"{pool_prefix}{token}"


def choose(machines: Iterable[Machine], claim: Claim, now: datetime) -> Choice:
    """Say which machine is the Host's, or which could become it. The answer does not depend on the list's order."""
    in_order = sorted(machines, key=lambda machine: machine.id)
    named = [machine for machine in in_order if machine.name == claim.name]
    if named:
        # Of two, the one that the status names; else the first. The other one is reported as an orphan.
        return Owned(next((m for m in named if m.id == claim.machine), named[0]))
    if not claim.pool_prefix:
        return NoneFree(
            "NoAdoptPrefix",
            "spec.provider.scaleway.adoptPrefix is not set, so no Mac is known to be free",
            "Set it to the beginning of the names of the Macs that may be taken",
        )
    if overlap(claim):
        return NoneFree(
            "PrefixesOverlap",
            f"Macs whose names begin with {claim.claim_prefix!r} are Hosts', and spec.provider.scaleway.adoptPrefix"
            f" {claim.pool_prefix!r} cannot tell them from free ones",
            "Give the free Macs names that begin otherwise, or start the operator with another --claim-prefix",
        )
    if not is_family(claim.family):
        return NoneFree(
            "NotAFamily",
            f"{claim.family!r} is not a macOS release family: Macs are installed with the newest of a family",
            "Set spec.provider.scaleway.os to the family alone, such as Sequoia",
        )
    pool = [m for m in in_order if _is_free(m, claim, now)]
    fitting = [m for m in pool if m.type == claim.type and in_family(m.image, claim.family)]
    if fitting:
        return Take(tuple(fitting))
    return NoneFree(
        "NoMacFree",
        f"of {len(pool)} free Macs in zone {claim.zone} whose names begin with {claim.pool_prefix!r} none is a ready"
        f" {claim.type} with macOS {claim.family}",
        "Order one with such a name, or delete a Host that needs none",
    )


def overlap(claim: Claim) -> bool:
    """Say whether a name can begin with both prefixes: then nothing tells a free Mac from a Host's. So with none."""
    pool, claims = claim.pool_prefix, claim.claim_prefix
    return pool.startswith(claims) or claims.startswith(pool)


def _is_free(machine: Machine, claim: Claim, now: datetime) -> bool:
    """Say whether a machine is in the pool, and nobody is about to take it. There is a pool, apart from all claims."""
    if not machine.name.startswith(claim.pool_prefix):
        return False
    if not machine.delivered or machine.leaving or machine.state != READY:
        return False
    if machine.name.startswith(claim.pool_prefix + RETURNING):
        return False
    if not machine.name.startswith(claim.pool_prefix + PENDING):
        return True
    return machine.changed_at is not None and now - machine.changed_at >= PENDING_STALE


def is_returned(machine: Machine, claim: Claim) -> bool:
    """Say whether a machine is in the Host's pool, and in nobody's hands."""
    if overlap(claim):
        return False
    name, prefix = machine.name, claim.pool_prefix
    return name.startswith(prefix) and not name.startswith(prefix + PENDING)


def is_family(text: str) -> bool:
    """Say whether a text names a release family, and not one image of it: those are withdrawn one after the other."""
    return _FAMILY.fullmatch(text) is not None


def in_family(image: Image | None, family: str) -> bool:
    """Say whether an image is of a family, by what the provider says or by the image's name."""
    if image is None:
        return False
    wanted = family.casefold()
    if image.family.casefold() == wanted:
        return True
    named = _IMAGE_NAME.match(image.name)
    return named is not None and named["family"].casefold() == wanted


def newest_image(images: Iterable[Image], family: str, machine_type: str) -> Image | None:
    """Return what a machine that goes back is installed with: the newest of its family that is no beta."""
    fitting = [
        image
        for image in images
        if in_family(image, family)
        and not image.beta
        and (not image.types or machine_type in image.types)
    ]
    return max(fitting, key=lambda image: (_version(image), image.name, image.id), default=None)


def orphans(
    machines: Iterable[Machine], claims: Iterable[Claim], claim_prefix: str
) -> tuple[Machine, ...]:
    """
    Return the machines that are paid for and serve nobody: claimed by name, and no Host has that claim.

    Only what begins with our own claim prefix is looked at, or is on its way back from such a claim; the rest is
    somebody's. Of two machines with one Host's name the one that is not in its status is an orphan too.
    """
    held = {claim.name: claim.machine for claim in claims}
    found: list[Machine] = []
    first: set[str] = set()
    for machine in sorted(machines, key=lambda m: m.id):
        _, returning, returned = machine.name.partition(RETURNING)
        name = returned if returning else machine.name
        if not name.startswith(claim_prefix):
            continue
        status = held.get(name)
        if status is None or (status and status != machine.id) or name in first:
            found.append(machine)
        else:
            first.add(name)
    return tuple(found)


def _version(image: Image) -> tuple[int, ...]:
    """Order versions by their numbers: 15.10 is newer than 15.9."""
    text = image.version or image.name
    return tuple(int(number) for number in re.findall(r"\d+", text))
