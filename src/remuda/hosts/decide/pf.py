"""
The rules of pf that Remuda keeps on a host: what guests may reach, and who may open SSH. Pure: text goes out.

Three facts of macOS shape them. Its kernel knows no interface groups, so the bridges of vmnet are named one by one, and
a second set of rules goes by the guests' addresses for a bridge that nobody foresaw. Its dynamic ``(self)`` stands for
an interface that has no address and so matches nothing: the host's addresses are in a table instead, filled when the
rules are loaded and again every minute. And it prints rules in its own words, so each rule has a label with a hash of
the whole text: that is how live rules are told from those of yesterday.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final

from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.hosts.decide.wanted import Allowed, Network

Address = IPv4Address | IPv6Address

RUNNERS: Final = "remuda.runners"
SSH_GUARD: Final = "remuda.sshguard"
ANCHORS_FOLDER: Final = "/etc/pf.anchors"

HOST_TABLE: Final = "remuda_host"
"""The table with the host's own addresses, which are filled in anew while the rules are live."""
BRIDGES: Final = tuple(f"bridge{number}" for number in range(100, 108))
"""The interfaces that vmnet makes, from the first VM on. bridge0 is Thunderbolt's."""
GUESTS_V4: Final = IPv4Network("192.168.64.0/22")
"""Where vmnet puts guests: the first /24, and the next ones if that is taken."""
GUESTS_V6: Final = IPv6Network("fd00::/8")
"""vmnet's prefix is random and unique-local. Peers of a VPN have such addresses as well: used with a bridge only."""
GATEWAYS: Final = tuple(next(net.hosts()) for net in GUESTS_V4.subnets(new_prefix=24))
"""The host, as its guests see it: it leases addresses and answers names."""

CLOSED_V4: Final = tuple(
    IPv4Network(net)
    for net in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # of carriers, and of VPNs
        "127.0.0.0/8",
        "169.254.0.0/16",  # also where clouds answer for credentials
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
_NAT64: Final = IPv6Network("64:ff9b::/96")
CLOSED_V6: Final = (
    *(
        IPv6Network(net)
        for net in (
            "::/96",  # loopback, and IPv4 as it was once written
            "::ffff:0:0/96",  # IPv4 in IPv6
            "64:ff9b:1::/48",  # a site's own NAT64
            "100::/64",
            "2001::/32",  # Teredo and 6to4 carry IPv4 past us
            "2001:db8::/32",
            "2002::/16",
            "fc00::/7",
            "fe80::/10",
            "fec0::/10",
            "ff00::/8",
        )
    ),
    *(
        IPv6Network((int(_NAT64.network_address) | int(net.network_address), 96 + net.prefixlen))
        for net in CLOSED_V4
    ),
)
"""NAT64 leads to the internet, and so stays open but for what it says of closed IPv4 addresses."""

NEIGHBOURS: Final = "{ fe80::/10 ff02::/16 fd00::/8 }"
_DISCOVERY: Final = "icmp6-type { routersol neighbrsol neighbradv }"
_NEVER: Final = tuple(
    ip_network(net) for net in ("127.0.0.0/8", "::/96", "::ffff:0:0/96", "224.0.0.0/4", "ff00::/8")
)
SSH_PORT: Final = 22
PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True)
class Anchor:
    """Rules with a name: the file that holds them, and where they are live at once."""

    name: str
    text: str

    @property
    def file(self) -> str:
        """Where the host keeps them."""
        return f"{ANCHORS_FOLDER}/{self.name}"

    @property
    def live(self) -> str:
        """
        Return the anchor in which they work as soon as they are loaded.

        Apple's main rules call ``com.apple/*``. An anchor of our own would only be called after all of pf.conf is
        loaded, which drops the rules that vmnet's NAT put in by itself.
        """
        return f"com.apple/{self.name}"

    @property
    def labels(self) -> frozenset[str]:
        """Return the names of the rules."""
        return labels(self.text)


def labels(rules: str) -> frozenset[str]:
    """Return the labels in rules, in our words or in pfctl's."""
    return frozenset(re.findall(r'label "([^"]*)"', rules))


def runners(places: Iterable[Allowed]) -> Anchor:
    """
    Return the rules for guests: the internet, names and addresses from their gateway, what is configured, nothing else.

    Raises ``BadInput`` for what would open more than one private service.

    The first rule that matches decides, as all of them are ``quick``. What none of them matches goes on to other rules.
    """
    order = sorted({_checked(place) for place in places}, key=_in_order)
    return _anchor(
        RUNNERS,
        (_IF, _GUESTS, _GATEWAYS, _CLOSED, _HOST),
        (
            # The host may open connections to guests: without these its guests' answers were blocked below.
            "pass out quick on $remuda_if inet from <remuda_gateways> to <remuda_guests> keep state",
            "pass out quick on $remuda_if inet from <remuda_host> to <remuda_guests> keep state",
            # Nothing that is configured opens SSH to the host: this comes before it.
            _no_ssh("on $remuda_if", "any", "<remuda_host>"),
            "pass in quick on $remuda_if inet proto udp from any port 68 to 255.255.255.255 port 67",
            "pass in quick on $remuda_if inet proto udp from <remuda_guests> port 68 to <remuda_gateways> port 67",
            "pass in quick on $remuda_if inet proto { tcp udp } from <remuda_guests> to <remuda_gateways> port 53",
            # Without these three kinds, neighbours of IPv6 do not find each other.
            f"pass in quick on $remuda_if inet6 proto icmp6 from any to {NEIGHBOURS} {_DISCOVERY}",
            *(_pass_to(place) for place in order),
            "block return in quick on $remuda_if from any to <remuda_host>",
            "block return in quick on $remuda_if from any to <remuda_closed>",
            "block drop in quick on $remuda_if from ! <remuda_guests> to any",
            "block return in quick on ! lo0 inet from <remuda_guests> to <remuda_host>",
            "block return in quick on ! lo0 inet from <remuda_guests> to <remuda_closed>",
        ),
    )


def ssh_guard(sources: Iterable[Network], session: Address | None) -> Anchor:
    """
    Return the rules for SSH: never from a guest to the host or its siblings; if sources are named, from them only.

    ``session`` is where the one comes from who applies the rules. It is let in as well, unless a source covers it. The
    rules keep no state, so each packet of an open session is judged as a new one would be.
    """
    nets = sorted(set(sources), key=str)
    own = () if not nets or session is None or admitted(session, nets) else (session,)
    limit = "proto tcp from any to any port 22"
    egress = (
        f"pass in quick on $remuda_if {limit} flags any no state",
        "pass in quick on ! lo0 inet proto tcp from <remuda_guests> to any port 22 flags any no state",
        "pass in quick proto tcp from <remuda_ssh> to any port 22 flags any no state",
        f"block drop in quick {limit}",
    )
    sources_table = _table("remuda_ssh", (*nets, *own))
    return _anchor(
        SSH_GUARD,
        (_IF, _GUESTS, _HOST, *((sources_table,) if nets else ())),
        (
            f"pass in quick on lo0 {limit} flags any no state",
            _no_ssh("on $remuda_if", "any", "<remuda_host>"),
            _no_ssh("on $remuda_if", "any", "<remuda_guests>"),
            _no_ssh("on ! lo0 inet", "<remuda_guests>", "<remuda_host>"),
            _no_ssh("on ! lo0 inet", "<remuda_guests>", "<remuda_guests>"),
            *(egress if nets else ()),
        ),
    )


def admitted(session: Address, sources: Iterable[Network]) -> bool:
    """Tell whether the sources or the loopback cover a session."""
    return session.is_loopback or any(session in net for net in sources)


def session_source(connection: str) -> Address | None:
    """Return where a session comes from, from its SSH_CONNECTION. None: that says nothing."""
    words = connection.split()
    try:
        address = ip_address(words[0].partition("%")[0])
    except (IndexError, ValueError):
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _checked(place: Allowed) -> Allowed:
    """Refuse what would open more than one private service. A firewall with a rule less is better than one too many."""
    low, high = place.ports
    closed = CLOSED_V4 if isinstance(place.network, IPv4Network) else CLOSED_V6
    wrong = ("", "")
    if place.protocol not in {"tcp", "udp"}:
        wrong = ("only tcp and udp have ports", "Name one of them")
    elif not 0 < low <= high <= PORT_MAX:
        wrong = ("these are no ports", "Write them as 443 or 5000-5010, of 1 to 65535")
    elif any(_overlap(place.network, net) for net in _NEVER):
        wrong = (
            "it leads to the host itself or to everybody at once",
            "Name the service's own address",
        )
    elif not any(_within(place.network, net) for net in closed):
        wrong = (
            "it is not within one private network: the internet is open anyway, and more would open hosts as well",
            "Name the private network, or leave it out",
        )
    elif _opens_ssh_of_guests(place):
        wrong = (
            "guests never open SSH to each other",
            "Leave port 22 out, or name another network",
        )
    if wrong[0]:
        text = f"{place.network} {place.protocol} {low}-{high}"
        raise BadInput(f"Guests cannot be allowed {text}", why=wrong[0], fix=wrong[1])
    return place


def _opens_ssh_of_guests(place: Allowed) -> bool:
    low, high = place.ports
    ssh = place.protocol == "tcp" and low <= SSH_PORT <= high
    return ssh and any(_overlap(place.network, net) for net in (GUESTS_V4, GUESTS_V6))


def _overlap(one: Network, other: Network) -> bool:
    return one.version == other.version and one.overlaps(other)


def _within(one: Network, other: Network) -> bool:
    if isinstance(one, IPv4Network):
        return isinstance(other, IPv4Network) and one.subnet_of(other)
    return isinstance(other, IPv6Network) and one.subnet_of(other)


def _in_order(place: Allowed) -> tuple[int, int, int, str, tuple[int, int]]:
    net = place.network
    return net.version, int(net.network_address), net.prefixlen, place.protocol, place.ports


def _no_ssh(where: str, source: str, place: str) -> str:
    return f"block return in quick {where} proto tcp from {source} to {place} port {SSH_PORT}"


def _pass_to(place: Allowed) -> str:
    low, high = place.ports
    family = "inet" if isinstance(place.network, IPv4Network) else "inet6"
    return (
        f"pass in quick on $remuda_if {family} proto {place.protocol} from <remuda_guests>"
        f" to {place.network} port {low}:{high}"
    )


def _table(name: str, entries: Iterable[Network | Address]) -> str:
    return f"table <{name}> const {{ {' '.join(str(entry) for entry in entries)} }}"


_IF: Final = f'remuda_if = "{{ {" ".join(BRIDGES)} }}"'
_GUESTS: Final = _table("remuda_guests", (GUESTS_V4, GUESTS_V6))
_GATEWAYS: Final = _table("remuda_gateways", GATEWAYS)
_CLOSED: Final = _table("remuda_closed", (*CLOSED_V4, *CLOSED_V6))
_HOST: Final = f"table <{HOST_TABLE}> {{ self }}"


def _anchor(name: str, definitions: Iterable[str], rules: Iterable[str]) -> Anchor:
    heads, bodies = tuple(definitions), tuple(rules)
    mark = sha256("\n".join((*heads, *bodies)).encode()).hexdigest()[:12]
    lines = (
        f"# Written by Remuda for {name}. What is changed here by hand is written anew.",
        *heads,
        *(f'{rule} label "{name}:{mark}:{number:02}"' for number, rule in enumerate(bodies)),
    )
    return Anchor(name, "\n".join(lines) + "\n")
