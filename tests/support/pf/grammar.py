"""
The grammar of pf.conf, as far as our rules and Apple's need it: macros, tables, options, anchors and filter rules.

``parse`` returns what a text says or raises ``PfSyntaxError``, as ``pfctl -nf`` would fail.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING, TypeVar

from tests.support.pf.words import PfSyntaxError, Word, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
Net = IPv4Network | IPv6Network
LABEL_MAX = 63

OPTIONS, SCRUB, TRANSLATE, FILTER = range(4)
ANCHOR_KINDS = {
    "scrub-anchor": SCRUB,
    "nat-anchor": TRANSLATE,
    "rdr-anchor": TRANSLATE,
    "binat-anchor": TRANSLATE,
    "dummynet-anchor": TRANSLATE,
    "anchor": FILTER,
}
ICMP6_TYPES = {
    "echoreq": 128,
    "routersol": 133,
    "routeradv": 134,
    "neighbrsol": 135,
    "neighbradv": 136,
}


@dataclass(frozen=True, slots=True)
class Place:
    """One address of a rule or a table: a network, a table, the host itself, or anything."""

    kind: str
    """``net``, ``table``, ``self``, ``dynamic`` or ``any``."""
    net: Net | None = None
    name: str = ""
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Side:
    """One end of a packet's way, as a rule wants it."""

    places: tuple[Place, ...] = (Place("any"),)
    ports: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One filter rule. Lists stay lists: a packet matches if any of each matches."""

    line: int
    action: str
    direction: str = ""
    quick: bool = False
    interfaces: tuple[tuple[bool, str], ...] = ()
    family: str = ""
    protocols: tuple[str, ...] = ()
    source: Side = Side()
    target: Side = Side()
    flags_any: bool = False
    icmp_types: tuple[int, ...] = ()
    state: bool = True
    label: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """``anchor "name"``: the rules of other anchors are asked here."""

    line: int
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Ruleset:
    """What a text says."""

    tables: dict[str, tuple[Place, ...]] = field(default_factory=dict)
    items: list[Rule | Call] = field(default_factory=list)
    loaded: dict[str, Ruleset] = field(default_factory=dict)
    """Anchors that it loads from files."""

    @property
    def rules(self) -> list[Rule]:
        return [item for item in self.items if isinstance(item, Rule)]


def parse(text: str, *, files: Mapping[str, str] | None = None, file: str = "pf.conf") -> Ruleset:
    """Read a text. ``files`` are those that it may load anchors from."""
    return _Reader(text, file, files or {}).read()


class _Reader:
    def __init__(self, text: str, file: str, files: Mapping[str, str]) -> None:
        self._words = words_of(text, file)
        self._at = 0
        self._file, self._files = file, files
        self._macros: dict[str, list[Word]] = {}
        self._section = OPTIONS
        self._found = Ruleset()

    # --- words ---

    def _peek(self) -> Word:
        """Return the next word, with macros in their places."""
        while (word := self._words[self._at]).kind == "macro":
            if word.text not in self._macros:
                raise self._wrong(f"macro '{word.text}' not defined")
            self._words[self._at : self._at + 1] = self._macros[word.text]
        return word

    def _next(self) -> Word:
        word = self._peek()
        self._at += word.kind != "end" or self._at + 1 < len(self._words)
        return word

    def _take(self, *texts: str) -> str:
        """Take the next word if it is one of these; else return nothing."""
        word = self._peek()
        if word.kind in {"word", *"{}(),!="} and word.text in texts:
            self._at += 1
            return word.text
        return ""

    def _need(self, kind: str) -> str:
        word = self._next()
        if word.kind != kind:
            raise self._wrong(f"syntax error: {word.text!r} where a {kind} belongs")
        return word.text

    def _wrong(self, what: str) -> PfSyntaxError:
        return PfSyntaxError(
            self._file, self._words[min(self._at, len(self._words) - 1)].line, what
        )

    # --- statements ---

    def read(self) -> Ruleset:
        while self._at < len(self._words) - 1:
            if self._peek().kind == "end":
                self._at += 1
                continue
            self._statement()
            if self._peek().kind != "end":
                raise self._wrong(f"syntax error at {self._peek().text!r}")
        self._check_tables()
        return self._found

    def _statement(self) -> None:
        first = self._peek()
        if first.kind == "word" and self._words[self._at + 1].kind == "=":
            self._macro()
        elif first.text in ANCHOR_KINDS:
            self._call()
        elif first.text in {"pass", "block"}:
            self._in_section(FILTER)
            self._found.items.append(self._rule())
        elif self._take("table"):
            self._table()
        elif self._take("load"):
            self._load()
        elif self._take("set"):
            self._in_section(OPTIONS)
            self._rest_of_line()
        elif self._take("scrub"):
            self._in_section(SCRUB)
            self._rest_of_line()
        else:
            raise self._wrong(f"syntax error at {first.text!r}")

    def _rest_of_line(self) -> None:
        while self._peek().kind != "end":
            self._at += 1

    def _in_section(self, section: int) -> None:
        if section < self._section:
            order = "options, normalization, queueing, translation, filtering"
            raise self._wrong(f"Rules must be in order: {order}")
        self._section = section

    def _macro(self) -> None:
        name = self._need("word")
        self._need("=")
        value = self._need("string")
        self._macros[name] = words_of(value, self._file)[:-1]

    def _call(self) -> None:
        line, kind = self._peek().line, self._need("word")
        self._in_section(ANCHOR_KINDS[kind])
        name = self._need("string")
        self._take("all")
        self._found.items.append(Call(line, kind, name))

    def _load(self) -> None:
        if not self._take("anchor"):
            raise self._wrong("syntax error: load what?")
        name = self._need("string")
        if not self._take("from"):
            raise self._wrong("syntax error: from where?")
        path = self._need("string")
        if path not in self._files:
            raise self._wrong(f"{path}: No such file or directory")
        inner = parse(self._files[path], files=self._files, file=path)
        if name in self._found.loaded and inner.tables:
            raise self._wrong(f"cannot define table {min(inner.tables)}: Resource busy")
        self._found.loaded[name] = inner

    def _table(self) -> None:
        name = self._need("table")
        if name in self._found.tables:
            raise self._wrong(f"cannot define table {name}: Resource busy")
        while self._take("const", "persist", "counters"):
            pass
        places: tuple[Place, ...] = ()
        if self._peek().kind == "{":
            places = self._list(self._address)
        if any(place.kind in {"any", "table", "dynamic"} for place in places):
            raise self._wrong("tables hold addresses only")
        self._found.tables[name] = places

    # --- filter rules ---

    def _rule(self) -> Rule:
        line, action = self._peek().line, self._need("word")
        if action == "block":
            self._take("drop", "return", "return-rst", "return-icmp")
        bare = Rule(
            line=line,
            action=action,
            direction=self._take("in", "out"),
            quick=self._quick(),
            interfaces=self._list(self._interface) if self._take("on") else (),
            family=self._take("inet", "inet6"),
            protocols=self._list(self._protocol) if self._take("proto") else (),
            source=self._side("from"),
            target=self._side("to"),
        )
        rule = self._with_options(bare)
        self._check(rule)
        return rule

    def _quick(self) -> bool:
        self._take("log")
        return bool(self._take("quick"))

    def _interface(self) -> tuple[bool, str]:
        return bool(self._take("!")), self._need("word")

    def _protocol(self) -> str:
        name = self._need("word")
        if name not in {"tcp", "udp", "icmp", "icmp6"}:
            raise self._wrong(f"unknown protocol {name}")
        return name

    def _side(self, word: str) -> Side:
        if word == "from" and self._take("all"):
            return Side()
        if not self._take(word):
            return Side()
        places = self._list(self._address)
        return Side(places, self._list(self._port) if self._take("port") else ())

    def _address(self) -> Place:
        negated = bool(self._take("!"))
        if self._peek().kind == "table":
            return Place("table", name=self._next().text, negated=negated)
        if self._take("("):
            name = self._need("word")
            self._need(")")
            return Place("dynamic", name=name, negated=negated)
        text = self._need("word")
        if text in {"any", "self"}:
            return Place(text, negated=negated)
        try:
            return Place("net", net=ip_network(text), negated=negated)
        except ValueError:
            raise self._wrong(f"could not parse host specification {text}") from None

    def _port(self) -> tuple[int, int]:
        text = self._need("word")
        low, _, high = text.partition(":")
        try:
            found = int(low), int(high or low)
        except ValueError:
            raise self._wrong(f"unknown port {text}") from None
        if not 0 <= found[0] <= found[1] <= 65535:
            raise self._wrong(f"illegal port value {text}")
        return found

    def _list(self, one: Callable[[], T]) -> tuple[T, ...]:
        """Read one thing, or several in braces, with or without commas."""
        if not self._take("{"):
            return (one(),)
        found: list[T] = []
        while not self._take("}"):
            if self._peek().kind == "end":
                raise self._wrong("syntax error: a list without an end")
            found.append(one())
            self._take(",")
        if not found:
            raise self._wrong("syntax error: an empty list")
        return tuple(found)

    def _with_options(self, rule: Rule) -> Rule:
        while option := self._take("flags", "icmp-type", "icmp6-type", "keep", "no", "label"):
            if option == "flags":
                rule = replace(rule, flags_any=self._flags())
            elif option.startswith("icmp"):
                rule = replace(rule, icmp_types=self._list(self._icmp_type))
            elif option == "label":
                rule = replace(rule, label=self._need("string"))
            elif not self._take("state"):
                raise self._wrong(f"syntax error after {option}")
            else:
                rule = replace(rule, state=option == "keep")
        return rule

    def _flags(self) -> bool:
        text = self._need("word")
        if text not in {"any", "S/SA"}:
            raise self._wrong(f"this reader knows no flags {text}")
        return text == "any"

    def _icmp_type(self) -> int:
        text = self._need("word")
        if text not in ICMP6_TYPES:
            raise self._wrong(f"unknown icmp6-type {text}")
        return ICMP6_TYPES[text]

    def _check(self, rule: Rule) -> None:
        """Refuse what reads well and means nothing."""
        with_ports = rule.source.ports or rule.target.ports
        if with_ports and not (rule.protocols and set(rule.protocols) <= {"tcp", "udp"}):
            raise self._wrong("port only applies to tcp/udp")
        if rule.icmp_types and (rule.protocols != ("icmp6",) or rule.family != "inet6"):
            raise self._wrong("icmp6-type only applies to inet6 proto icmp6")
        if rule.flags_any and rule.protocols != ("tcp",):
            raise self._wrong("flags only apply to tcp")
        if len(rule.label) > LABEL_MAX:
            raise self._wrong(f"rule label too long (max {LABEL_MAX} chars)")
        version = {"inet": 4, "inet6": 6}.get(rule.family)
        for place in (*rule.source.places, *rule.target.places):
            if version and place.net is not None and place.net.version != version:
                raise self._wrong("address family mismatch")

    def _check_tables(self) -> None:
        for rule in self._found.rules:
            for place in (*rule.source.places, *rule.target.places):
                if place.kind == "table" and place.name not in self._found.tables:
                    raise PfSyntaxError(
                        self._file, rule.line, f"table <{place.name}> is not defined"
                    )
