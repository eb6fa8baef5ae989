"""Where one runner should not, or should rather, be placed: node affinity added to a finished Pod spec. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

Json = dict[str, Any]

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Placement:
    """Which hosts this one runner keeps away from, and which it should try. Not part of the template or its hash."""

    avoid: tuple[str, ...] = ()
    prefer: str = ""
    """A host to try; it wins over the others, for a runner that probes an avoided host."""
    shun: tuple[str, ...] = ()
    """Hosts to go to only if no other has room: they are suspected, not proven, to start nothing."""


def placed(spec: Json, placement: Placement) -> Json:
    """Return the spec with the placement in it; what it shares with the given one is not changed."""
    avoid = sorted(set(placement.avoid) - {placement.prefer})
    shun = sorted(set(placement.shun) - {placement.prefer, *avoid})
    if not avoid and not shun and not placement.prefer:
        return spec
    affinity = dict(spec.get("affinity") or {})
    node = dict(affinity.get("nodeAffinity") or {})
    if avoid:
        # A field may be compared with one value only, so there is one expression for each host.
        node[REQUIRED] = _everywhere_but(node.get(REQUIRED), [_named("NotIn", n) for n in avoid])
    for _ in range(2 if shun else 0):
        # Twice: weights add up, and this must count for more than the image that a host holds.
        node[PREFERRED] = _wishing(node, [_named("NotIn", name) for name in shun])
    if placement.prefer:
        node[PREFERRED] = _wishing(node, [_named("In", placement.prefer)])
    affinity["nodeAffinity"] = node
    return {**spec, "affinity": affinity}


def _wishing(node: Json, fields: list[Json]) -> list[Json]:
    return [*(node.get(PREFERRED) or []), {"weight": 100, "preference": {"matchFields": fields}}]


def _everywhere_but(required: Json | None, unwanted: list[Json]) -> Json:
    """Add the expressions to every term: terms are alternatives, and one without them would let the host back in."""
    if required is None:
        return {"nodeSelectorTerms": [{"matchFields": unwanted}]}
    terms = required.get("nodeSelectorTerms") or []
    return {**required, "nodeSelectorTerms": [_narrowed(term, unwanted) for term in terms]}


def _narrowed(term: Json, unwanted: list[Json]) -> Json:
    if not any(term.values()):
        return term  # an empty term matches no host; with an expression in it it would match many
    return {**term, "matchFields": [*(term.get("matchFields") or []), *unwanted]}


def _named(operator: str, host: str) -> Json:
    return {"key": "metadata.name", "operator": operator, "values": [host]}
