"""
How our custom resources describe their own fields: text, bounds and rules, in the type and nowhere else.

``remuda.kube.crd`` reads this to write the CRD. Bounds bind the API server, not our decoder: an object that was stored
before a bound was tightened must not stop a whole list from being read, so ``msgspec``'s own constraints stay unused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from remuda.kube.meta import Part

if TYPE_CHECKING:
    from remuda.kube.patches import JsonValue

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """
    One CEL rule (``x-kubernetes-validations``) that an object must keep.

    A rule that reads ``oldSelf`` holds between two versions of an object and is not asked when the object is created.
    """

    cel: str
    message: str
    """What is wrong, why, and what to do: it is all that the person with the manifest gets to see."""
    field_path: str = ""
    """Which field to point at, relative to the type that carries the rule, such as ``.maxReplicas``."""
    reason: str = "FieldValueInvalid"

    def schema(self) -> dict[str, JsonValue]:
        optional = {"fieldPath": self.field_path} if self.field_path else {}
        return {"rule": self.cel, "message": self.message, "reason": self.reason, **optional}


def described(text: str, *, rules: tuple[Rule, ...] = (), **keywords: Any) -> msgspec.Meta:  # noqa: ANN401 - JSON
    """
    Describe one field for ``kubectl explain`` and bound it, in OpenAPI's own keywords (``minimum``, ``maxLength``).

    ``list_type`` and ``list_map_keys`` become the ``x-kubernetes-`` keys of the same names.
    """
    schema: dict[str, Any] = {"description": text}
    for key, value in keywords.items():
        schema[_EXTENSIONS.get(key, key)] = value
    if rules:
        schema["x-kubernetes-validations"] = [rule.schema() for rule in rules]
    return msgspec.Meta(extra_json_schema=schema)


_EXTENSIONS = {
    "list_type": "x-kubernetes-list-type",
    "list_map_keys": "x-kubernetes-list-map-keys",
    "map_type": "x-kubernetes-map-type",
}


class Section(Part, frozen=True, omit_defaults=False):
    """
    A piece of a spec whose fields have defaults: ``= 5`` here is the CRD's ``default: 5``, written once.

    The API server fills defaults in, so a controller reads plain numbers. Every value is written back as it is: an
    explicit 0 stays 0, and a patch names the new value even if that is the default.
    """


QUANTITY = (
    r"^(0*[1-9][0-9]*(\.[0-9]*)?|0*\.0*[1-9][0-9]*)"
    r"(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"
)
"""A quantity above zero. ``remuda.kube.quantity`` reads it."""

MEMORY = r"^(0*[1-9][0-9]*(\.[0-9]*)?|0*\.0*[1-9][0-9]*)(M|G|T|Mi|Gi|Ti)$"
"""A quantity above zero that names its unit: a bare number of bytes is nearly always a slip."""
