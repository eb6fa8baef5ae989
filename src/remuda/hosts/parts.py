"""
Everything that a host is made of, in order. The first boot and drift use this one list.

The order: root first, then the session that VMs need, then what keeps them in, then what runs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.hosts.decide.parts.sudo import SudoPart
from remuda.hosts.scripts import script

if TYPE_CHECKING:
    from remuda.hosts.decide.step import Part

PARTS: Final[tuple[Part, ...]] = (SudoPart(script=script("sudoers")),)
