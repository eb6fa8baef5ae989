"""Places that guests may reach, as a line of text: shorter to read in tables."""

from __future__ import annotations

from ipaddress import ip_network

from remuda.hosts.decide.wanted import Allowed


def a_place(text: str) -> Allowed:
    """Return what ``10.1.2.0/24 tcp 443`` or ``10.1.2.3/32 udp 5000-5010`` says."""
    network, protocol, ports = text.split()
    low, _, high = ports.partition("-")
    return Allowed(
        network=ip_network(network), protocol=protocol, ports=(int(low), int(high or low))
    )
