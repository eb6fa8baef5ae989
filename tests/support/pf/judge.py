"""
What pf would do with a packet: the last rule that matches decides, or the first that says ``quick``.

A rule's ``quick`` ends everything, also when it stands in an anchor. What no rule matches passes. ``(self)`` and other
dynamic addresses match nothing, as in the kernel of macOS: ``(self)`` stands there for an interface without addresses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING

from tests.support.pf.grammar import Call, Place, Rule, Ruleset, Side

if TYPE_CHECKING:
    from collections.abc import Iterator

Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """One packet, where pf looks at it."""

    source: Address
    target: Address
    interface: str = "bridge100"
    direction: str = "in"
    protocol: str = "tcp"
    port: int = 443
    from_port: int = 50000
    icmp_type: int = 0
    opening: bool = True
    """Of TCP: whether it opens a connection. Otherwise it belongs to one that is open already."""

    def answer(self) -> Packet:
        """Return the packet that comes back, at the same interface."""
        return Packet(
            source=self.target,
            target=self.source,
            interface=self.interface,
            direction="out" if self.direction == "in" else "in",
            protocol=self.protocol,
            port=self.from_port,
            from_port=self.port,
            opening=False,
        )


def a_packet(source: str, target: str, **more: object) -> Packet:
    """Return a packet between two addresses."""
    return Packet(source=ip_address(source), target=ip_address(target), **more)  # type: ignore[arg-type]


@dataclass(slots=True)
class Filter:
    """A host's pf: the main rules, the anchors, and the host's own addresses when they were loaded."""

    main: Ruleset
    anchors: dict[str, Ruleset] = field(default_factory=dict)
    own: tuple[Address, ...] = ()
    states: set[Packet] = field(default_factory=set)

    def passes(self, packet: Packet) -> bool:
        """Tell whether a packet passes, and remember what pf would."""
        if packet in self.states:
            return True
        decided: Rule | None = None
        for rule, rules in self._asked(self.main):
            if self._matches(rule, packet, rules):
                decided = rule
                if rule.quick:
                    break
        if decided is None:
            return True
        if decided.action == "pass" and decided.state:
            self.states.add(packet.answer())
        return decided.action == "pass"

    def _asked(self, rules: Ruleset) -> Iterator[tuple[Rule, Ruleset]]:
        for item in rules.items:
            if isinstance(item, Rule):
                yield item, rules
            elif item.kind == "anchor":
                for name in self._called(item):
                    yield from self._asked(self.anchors[name])

    def _called(self, call: Call) -> list[str]:
        return sorted(name for name in self.anchors if fnmatchcase(name, call.name))

    def _matches(self, rule: Rule, packet: Packet, rules: Ruleset) -> bool:
        return (
            rule.direction in {"", packet.direction}
            and _interface(rule, packet)
            and rule.family in {"", "inet" if packet.target.version == 4 else "inet6"}
            and (not rule.protocols or packet.protocol in rule.protocols)
            and self._side(rule.source, packet.source, packet.from_port, rules)
            and self._side(rule.target, packet.target, packet.port, rules)
            and (not rule.icmp_types or packet.icmp_type in rule.icmp_types)
            and _opens(rule, packet)
        )

    def _side(self, side: Side, address: Address, port: int, rules: Ruleset) -> bool:
        return any(self._within(place, address, rules) for place in side.places) and (
            not side.ports or any(low <= port <= high for low, high in side.ports)
        )

    def _within(self, place: Place, address: Address, rules: Ruleset) -> bool:
        if place.kind == "table":
            # The narrowest entry counts; none of ours is negated.
            inside = any(self._within(entry, address, rules) for entry in rules.tables[place.name])
        elif place.kind == "self":
            inside = address in self.own
        elif place.kind == "net":
            assert place.net is not None
            inside = address in place.net
        else:
            inside = place.kind == "any"
        return inside is not place.negated


def _interface(rule: Rule, packet: Packet) -> bool:
    return not rule.interfaces or any(
        (name == packet.interface) is not negated for negated, name in rule.interfaces
    )


def _opens(rule: Rule, packet: Packet) -> bool:
    """Tell whether the flags match: a pass that keeps state begins with a connection's first packet only."""
    stateful = rule.action == "pass" and rule.state and not rule.flags_any
    return packet.opening or packet.protocol != "tcp" or not stateful
