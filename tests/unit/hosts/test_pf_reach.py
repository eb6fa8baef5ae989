"""What a guest reaches, by an independent reader of pf's rules and a judge of packets."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

import pytest

from remuda.hosts.decide import pf, pf_conf
from remuda.model.errors import BadInput
from tests.support.pf.grammar import Call, Rule, Ruleset, parse
from tests.support.pf.judge import Filter, Packet, a_packet
from tests.support.pf.places import a_place
from tests.support.pf.words import PfSyntaxError

if TYPE_CHECKING:
    from remuda.hosts.decide.wanted import Network

APPLE = """\
#
# Default PF configuration file.
#
scrub-anchor "com.apple/*"
nat-anchor "com.apple/*"
rdr-anchor "com.apple/*"
dummynet-anchor "com.apple/*"
anchor "com.apple/*"
load anchor "com.apple" from "/etc/pf.anchors/com.apple"
"""
HOST = tuple(
    ip_address(each)
    for each in ("127.0.0.1", "::1", "10.20.30.40", "198.200.1.9", "2001:41d0::9", "192.168.64.1")
)
PLACES = tuple(
    map(a_place, ("10.1.2.0/24 tcp 443", "10.0.0.0/8 tcp 20-30", "fd12::/48 udp 5000-5010"))
)
RULES = parse(pf.runners(PLACES).text)
MAIN = parse(APPLE, files={"/etc/pf.anchors/com.apple": ""})
GUEST, GUEST6 = "192.168.64.7", "fd4b:1::7"
SIBLING, SIBLING6 = "192.168.64.8", "fd4b:1::8"


def a_filter(rules: Ruleset | None = None, guard: Ruleset | None = None) -> Filter:
    """Return the pf of a host between the step that made the rules live and the next boot."""
    anchors = {
        "com.apple/remuda.runners": RULES if rules is None else rules,
        "com.apple/remuda.sshguard": guard or Ruleset(),
    }
    return Filter(MAIN, anchors, HOST)


def a_guest_packet(target: str, protocol: str = "tcp", port: int = 443) -> Packet:
    source = GUEST if ip_address(target).version == 4 else GUEST6
    return a_packet(source, target, protocol=protocol, port=port)


REACHED = [
    ("1.1.1.1", "tcp", 443, "the internet"),
    ("1.1.1.1", "udp", 53, "a resolver of the internet"),
    ("140.82.121.4", "tcp", 22, "git over SSH"),
    ("11.0.0.1", "tcp", 80, "just after 10/8"),
    ("9.255.255.255", "tcp", 80, "just before 10/8"),
    ("172.15.255.255", "tcp", 80, "just before 172.16/12"),
    ("172.32.0.1", "tcp", 80, "just after 172.16/12"),
    ("192.167.255.255", "tcp", 80, "just before 192.168/16"),
    ("192.169.0.1", "tcp", 80, "just after 192.168/16"),
    ("100.63.255.255", "tcp", 80, "just before 100.64/10"),
    ("100.128.0.1", "tcp", 80, "just after 100.64/10"),
    ("169.253.255.255", "tcp", 80, "just before 169.254/16"),
    ("2606:4700::1111", "tcp", 443, "the internet over IPv6"),
    ("64:ff9b::101:101", "tcp", 443, "the internet through NAT64"),
    ("192.168.64.1", "udp", 53, "names from the gateway"),
    ("192.168.64.1", "tcp", 53, "long names from the gateway"),
    ("192.168.65.1", "udp", 53, "the gateway of the next subnet"),
    ("10.1.2.3", "tcp", 443, "what is configured"),
    ("10.200.0.1", "tcp", 22, "SSH that is configured, not the host's"),
    ("fd12::5", "udp", 5005, "what is configured of IPv6"),
]
CLOSED = [
    ("10.1.2.3", "tcp", 444, "another port than what is configured"),
    ("10.1.2.3", "udp", 443, "another protocol"),
    ("10.1.3.3", "tcp", 443, "another network"),
    ("10.0.0.1", "tcp", 80, "10/8"),
    ("172.16.0.1", "tcp", 80, "172.16/12"),
    ("172.31.255.255", "tcp", 80, "its end"),
    ("192.168.1.1", "tcp", 80, "the office's router"),
    ("192.168.64.1", "tcp", 22, "SSH of the gateway"),
    ("192.168.64.1", "tcp", 8080, "the agent at the gateway"),
    ("192.168.64.1", "udp", 67, "leases from no client's port"),
    (SIBLING, "tcp", 80, "another guest"),
    (SIBLING, "tcp", 22, "SSH of another guest"),
    ("10.20.30.40", "tcp", 22, "SSH of the host, inside of what is configured"),
    ("198.200.1.9", "tcp", 443, "the host by its public address"),
    ("198.200.1.9", "tcp", 22, "SSH of the host by its public address"),
    ("127.0.0.1", "tcp", 80, "loopback"),
    ("100.64.0.1", "tcp", 443, "carriers' and VPNs' addresses"),
    ("100.100.100.100", "udp", 53, "names of a VPN"),
    ("169.254.169.254", "tcp", 80, "a cloud's credentials"),
    ("169.254.0.1", "tcp", 80, "link-local"),
    ("224.0.0.251", "udp", 5353, "multicast"),
    ("255.255.255.255", "udp", 9, "everybody"),
    ("0.0.0.1", "tcp", 80, "no address"),
    ("198.18.0.1", "tcp", 80, "benchmark networks"),
    ("::1", "tcp", 80, "loopback of IPv6"),
    ("fe80::1", "tcp", 80, "link-local of IPv6"),
    ("fd12::5", "tcp", 5005, "another protocol of IPv6"),
    ("fd12:1::5", "udp", 5005, "another network of IPv6"),
    ("fc00::1", "tcp", 443, "private IPv6"),
    (SIBLING6, "tcp", 22, "SSH of another guest over IPv6"),
    ("fec0::1", "tcp", 443, "site-local IPv6"),
    ("ff02::fb", "udp", 5353, "multicast of IPv6"),
    ("2001:41d0::9", "tcp", 443, "the host by its public IPv6 address"),
    ("::ffff:10.0.0.1", "tcp", 443, "IPv4 in IPv6"),
    ("::10.0.0.1", "tcp", 443, "IPv4 in IPv6, as it was"),
    ("64:ff9b::a9fe:a9fe", "tcp", 80, "a cloud's credentials through NAT64"),
    ("64:ff9b::c0a8:101", "tcp", 80, "the office's router through NAT64"),
    ("2002:a00:1::1", "tcp", 80, "10/8 through 6to4"),
    ("2001:0:53aa::1", "tcp", 80, "Teredo"),
]


def test_the_table_has_enough_targets_of_both_kinds() -> None:
    targets = [ip_address(target) for target, *_ in REACHED + CLOSED]
    assert len(targets) >= 40
    assert sum(target.version == 6 for target in targets) >= 15


@pytest.mark.parametrize(
    ("target", "protocol", "port"), [pytest.param(*row[:3], id=row[3]) for row in REACHED]
)
def test_a_guest_reaches(target: str, protocol: str, port: int) -> None:
    assert a_filter().passes(a_guest_packet(target, protocol, port))


@pytest.mark.parametrize(
    ("target", "protocol", "port"), [pytest.param(*row[:3], id=row[3]) for row in CLOSED]
)
@pytest.mark.parametrize("interface", ["bridge100", "bridge107"])
def test_a_guest_does_not_reach(target: str, protocol: str, port: int, interface: str) -> None:
    packet = replace(a_guest_packet(target, protocol, port), interface=interface)
    assert not a_filter().passes(packet)


@pytest.mark.parametrize(
    "target", [row[0] for row in CLOSED if ip_address(row[0]).version == 4 and "port" not in row[3]]
)
def test_behind_a_bridge_that_nobody_foresaw_a_guest_reaches_nothing_closed(target: str) -> None:
    assert not a_filter().passes(replace(a_guest_packet(target, port=80), interface="bridge140"))


@pytest.mark.parametrize(
    "source", ["10.9.9.9", "8.8.8.8", "192.168.70.2", "2606:4700::1", "fe80::7"]
)
@pytest.mark.parametrize("port", [443, 22])
def test_a_guest_with_a_foreign_address_reaches_nothing(source: str, port: int) -> None:
    target = "1.1.1.1" if ip_address(source).version == 4 else "2606:4700::1111"
    assert not a_filter().passes(a_packet(source, target, port=port))


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(
            a_packet("0.0.0.0", "255.255.255.255", protocol="udp", from_port=68, port=67),  # noqa: S104 - of DHCP
            id="asks for a lease",
        ),
        pytest.param(
            a_packet(GUEST, "192.168.64.1", protocol="udp", from_port=68, port=67),
            id="renews its lease",
        ),
        pytest.param(
            a_packet("fe80::7", "ff02::1:ff00:1", protocol="icmp6", icmp_type=135),
            id="looks for a neighbour",
        ),
        pytest.param(
            a_packet("fe80::7", "fe80::1", protocol="icmp6", icmp_type=136),
            id="answers a neighbour",
        ),
        pytest.param(
            a_packet("fe80::7", "ff02::2", protocol="icmp6", icmp_type=133), id="looks for a router"
        ),
    ],
)
def test_what_a_guest_needs_for_a_network_at_all(packet: Packet) -> None:
    assert a_filter().passes(packet)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        pytest.param("192.168.64.1", GUEST, id="from the gateway's address"),
        pytest.param("10.20.30.40", GUEST, id="from another address of the host"),
    ],
)
def test_the_host_opens_a_connection_to_a_guest_and_gets_its_answer(
    source: str, target: str
) -> None:
    wall = a_filter()
    out = a_packet(source, target, direction="out", port=5900)
    assert not wall.passes(out.answer())
    assert wall.passes(out)
    assert wall.passes(out.answer())


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(a_packet("192.168.64.1", "192.168.64.1", interface="lo0"), id="to itself"),
        pytest.param(
            a_packet("203.0.113.5", "10.20.30.40", interface="en0", port=22), id="from outside"
        ),
        pytest.param(
            a_packet(
                "fd7a:115c::5",
                "10.20.30.40".replace("10.20.30.40", "2001:41d0::9"),
                interface="utun3",
            ),
            id="from a VPN's peer",
        ),
    ],
)
def test_the_host_is_left_alone(packet: Packet) -> None:
    assert a_filter().passes(packet)


def _everything(wall: Filter) -> list[bool]:
    """Return what becomes of every packet that these tests know, each on a pf that remembers nothing."""
    packets = [a_guest_packet(*row[:3]) for row in REACHED + CLOSED]
    packets += [replace(packet, interface="bridge140") for packet in packets]
    packets += [
        a_packet("0.0.0.0", "255.255.255.255", protocol="udp", from_port=68, port=67),  # noqa: S104 - of DHCP
        a_packet(GUEST, "192.168.64.1", protocol="udp", from_port=68, port=67),
        a_packet("fe80::7", "ff02::2", protocol="icmp6", icmp_type=133),
        a_packet("8.8.8.8", "1.1.1.1"),
    ]
    seen = [_alone(wall).passes(packet) for packet in packets]
    # The second gateway is up since a moment ago, so the table of the host's addresses does not have it.
    for source in ("192.168.65.1", "10.20.30.40"):
        talk, fresh = a_packet(source, GUEST, direction="out", port=5900), _alone(wall)
        fresh.passes(talk)
        seen.append(fresh.passes(talk.answer()))
    return seen


def _alone(wall: Filter) -> Filter:
    return Filter(wall.main, wall.anchors, wall.own)


@cache
def _whole() -> list[bool]:
    return _everything(a_filter())


@pytest.mark.parametrize("number", range(len(RULES.rules)))
def test_no_rule_can_be_left_out(number: int) -> None:
    left: list[Rule | Call] = [item for item in RULES.items if item is not RULES.rules[number]]
    assert _everything(a_filter(Ruleset(RULES.tables, left))) != _whole()


def test_a_dynamic_self_would_have_protected_nothing() -> None:
    """It reads so well that somebody will want it back: macOS's kernel has no addresses for it."""
    text = pf.runners(PLACES).text.replace("<remuda_host> label", "(self) label")
    assert a_filter(parse(text)).passes(a_guest_packet("198.200.1.9"))


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.0/8 icmp 1",
        "10.0.0.0/8 tcp 0",
        "10.0.0.0/8 tcp 65536",
        "10.0.0.0/8 tcp 9-3",
        "0.0.0.0/0 tcp 443",
        "8.0.0.0/6 tcp 443",
        "1.1.1.1/32 tcp 443",
        "127.0.0.0/8 tcp 443",
        "::/0 tcp 443",
        "::1/128 tcp 443",
        "224.0.0.0/4 udp 5353",
        "192.168.64.0/24 tcp 22",
        "192.168.0.0/16 tcp 1-1024",
        "fd00::/8 tcp 22",
    ],
)
def test_what_cannot_be_allowed_is_refused_and_not_left_out(text: str) -> None:
    with pytest.raises(BadInput):
        pf.runners([*PLACES, a_place(text)])


def test_the_order_and_the_doubles_of_what_is_configured_change_nothing() -> None:
    assert pf.runners([*reversed(PLACES), *PLACES]) == pf.runners(PLACES)


def test_labels_tell_other_rules_from_these() -> None:
    assert pf.runners(PLACES).labels != pf.runners(PLACES[:1]).labels
    assert len(pf.runners(PLACES).labels) == len(RULES.rules)


def test_all_of_pf_conf_reads_and_a_doubled_block_does_not() -> None:
    files = {
        "/etc/pf.anchors/com.apple": "",
        "/etc/pf.anchors/remuda.runners": pf.runners(PLACES).text,
    }
    conf = pf_conf.with_block(APPLE)
    after_boot = parse(conf, files=files)
    wall = Filter(after_boot, {"remuda.runners": after_boot.loaded["remuda.runners"]}, HOST)
    assert _everything(wall) == _whole()

    with pytest.raises(PfSyntaxError, match="Resource busy"):
        parse(conf + pf_conf.BLOCK, files=files)


# --- who may open SSH ----------------------------------------------------------------------------------------------

OFFICE = (ip_network("203.0.112.0/24"), ip_network("2a01:1::/32"), ip_network("192.168.0.0/16"))
SESSION = ip_address("51.15.0.9")


def _guarded(*sources: Network, session: pf.Address | None = SESSION) -> Filter:
    return a_filter(guard=parse(pf.ssh_guard(sources, session).text))


@pytest.mark.parametrize(
    ("source", "target", "interface"),
    [
        pytest.param("127.0.0.1", "127.0.0.1", "lo0", id="the host itself"),
        pytest.param("203.0.112.7", "198.200.1.9", "en0", id="a configured source"),
        pytest.param("2a01:1::7", "2001:41d0::9", "en0", id="a configured source of IPv6"),
        pytest.param("51.15.0.9", "198.200.1.9", "en0", id="the session that applies it"),
        pytest.param(GUEST, "140.82.121.4", "bridge100", id="a guest to a forge"),
        pytest.param(
            GUEST, "140.82.121.4", "bridge140", id="a guest behind another bridge to a forge"
        ),
        pytest.param(GUEST6, "2606:4700::1111", "bridge100", id="a guest over IPv6 to a forge"),
    ],
)
@pytest.mark.parametrize("opening", [True, False], ids=["new", "open already"])
def test_the_guard_lets_in(source: str, target: str, interface: str, *, opening: bool) -> None:
    packet = a_packet(source, target, interface=interface, port=22, opening=opening)
    assert _guarded(*OFFICE).passes(packet)


@pytest.mark.parametrize(
    ("source", "target", "interface"),
    [
        pytest.param("51.15.0.10", "198.200.1.9", "en0", id="a neighbour of the session"),
        pytest.param("2a02::1", "2001:41d0::9", "en0", id="anybody over IPv6"),
        pytest.param(
            "51.15.0.10", "198.200.7.7", "en0", id="an address that the host got a moment ago"
        ),
        pytest.param(GUEST, "198.200.1.9", "bridge100", id="a guest"),
        pytest.param(
            GUEST,
            "192.168.64.1",
            "bridge100",
            id="a guest, at the gateway, whose network is allowed",
        ),
        pytest.param(GUEST, SIBLING, "bridge100", id="a guest to its sibling"),
        pytest.param(GUEST6, SIBLING6, "bridge100", id="a guest to its sibling over IPv6"),
        pytest.param(GUEST, "198.200.1.9", "bridge140", id="a guest behind another bridge"),
        pytest.param(
            GUEST, SIBLING, "bridge140", id="a guest behind another bridge to its sibling"
        ),
    ],
)
@pytest.mark.parametrize("runners", [True, False], ids=["with the firewall", "alone"])
def test_the_guard_keeps_out(source: str, target: str, interface: str, *, runners: bool) -> None:
    wall = _guarded(*OFFICE)
    if not runners:
        wall.anchors["com.apple/remuda.runners"] = Ruleset()
    assert not wall.passes(a_packet(source, target, interface=interface, port=22))


def test_the_guard_is_about_ssh_only() -> None:
    assert _guarded(*OFFICE).passes(
        a_packet("51.15.0.10", "198.200.1.9", interface="en0", port=443)
    )


def test_without_sources_anybody_gets_in_but_guests() -> None:
    wall = _guarded()
    assert wall.passes(a_packet("51.15.0.10", "198.200.1.9", interface="en0", port=22))
    assert not wall.passes(a_packet(GUEST, "198.200.1.9", port=22))


def test_a_session_that_the_sources_cover_leaves_no_trace() -> None:
    covered = ip_address("203.0.112.7")
    assert pf.ssh_guard(OFFICE, covered) == pf.ssh_guard(OFFICE, None)
    assert pf.ssh_guard(OFFICE, ip_address("127.0.0.1")) == pf.ssh_guard(OFFICE, None)
    assert pf.ssh_guard(OFFICE, SESSION) != pf.ssh_guard(OFFICE, None)


@pytest.mark.parametrize(
    ("connection", "source"),
    [
        ("203.0.113.9 50122 10.0.0.2 22\n", "203.0.113.9"),
        ("2a01::5 50122 2a01::2 22\n", "2a01::5"),
        ("fe80::5%en0 50122 fe80::2%en0 22\n", "fe80::5"),
        ("::ffff:203.0.113.9 50122 ::ffff:10.0.0.2 22\n", "203.0.113.9"),
    ],
)
def test_where_a_session_comes_from(connection: str, source: str) -> None:
    assert pf.session_source(connection) == ip_address(source)


@pytest.mark.parametrize("connection", ["", "\n", "UNKNOWN 1 2 3", "; pass 1 2 3"])
def test_a_session_from_nowhere(connection: str) -> None:
    assert pf.session_source(connection) is None


GUARD = parse(pf.ssh_guard(OFFICE[:2], SESSION).text)


@pytest.mark.parametrize("number", range(len(GUARD.rules)))
def test_no_rule_of_the_guard_can_be_left_out(number: int) -> None:
    left: list[Rule | Call] = [item for item in GUARD.items if item is not GUARD.rules[number]]
    assert _ssh(Ruleset(GUARD.tables, left)) != _ssh(GUARD)


def _ssh(guard: Ruleset) -> list[bool]:
    wall = a_filter(Ruleset(), guard)
    pairs = [
        ("127.0.0.1", "127.0.0.1", "lo0"),
        ("203.0.112.7", "198.200.1.9", "en0"),
        ("51.15.0.10", "198.200.1.9", "en0"),
        *(
            (source, target, bridge)
            for bridge in ("bridge100", "bridge140")
            for source, target in [
                (GUEST, "198.200.1.9"),
                (GUEST, SIBLING),
                (GUEST, "140.82.121.4"),
                (GUEST6, SIBLING6),
            ]
        ),
        (GUEST6, "2606:4700::1111", "bridge100"),
        ("10.7.7.7", "198.200.1.9", "bridge100"),
    ]
    return [wall.passes(a_packet(a, b, interface=c, port=22)) for a, b, c in pairs]
