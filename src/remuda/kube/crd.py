"""
CustomResourceDefinitions, and their reference page, made from the types of our own resources.

What a field means, its bounds, its default and its rules stand in the type; nothing is repeated here but what a type
cannot say: short names, printer columns, the scale subresource. Pure: the caller writes the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import yaml
from msgspec import NODEFAULT, inspect

from remuda.kube.fields import Rule, Section
from remuda.kube.host import HOST
from remuda.kube.meta import Condition, Resource
from remuda.kube.runner_pool import RUNNER_POOL

if TYPE_CHECKING:
    from remuda.kube.kinds import Kind

Schema: TypeAlias = dict[str, Any]

GENERATED = "Generated from src/remuda/kube by `make generate`; do not edit."


@dataclass(frozen=True, slots=True)
class Column:
    """One column of ``kubectl get``. Wide ones show only with ``-o wide``."""

    name: str
    type: str
    json_path: str
    description: str
    wide: bool = False

    def manifest(self) -> Schema:
        wide = {"priority": 1} if self.wide else {}
        return {
            "name": self.name,
            "type": self.type,
            "jsonPath": self.json_path,
            "description": self.description,
            **wide,
        }


@dataclass(frozen=True, slots=True)
class Definition:
    """What a CRD says beside its schema."""

    kind: Kind[Resource]
    singular: str
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]
    scale: Schema | None = None

    @property
    def file_name(self) -> str:
        return f"{self.kind.group}_{self.kind.plural}.yaml"


_AGE = Column("Age", "date", ".metadata.creationTimestamp", "When it was created.")

DEFINITIONS = (
    Definition(
        RUNNER_POOL,
        singular="runnerpool",
        short_names=("rpool",),
        columns=(
            Column("Desired", "integer", ".spec.replicas", "Runners wanted, busy ones included."),
            Column("Warm", "integer", ".status.warm", "Idle runners that can take a job at once."),
            Column("Busy", "integer", ".status.busy", "Runners that hold a job."),
            Column("Starting", "integer", ".status.starting", "Runners that are not warm yet."),
            Column("Stale", "integer", ".status.stale", "Runners made from an older template."),
            _AGE,
            Column("Image", "string", ".spec.image", "The runner image.", wide=True),
        ),
        scale={
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    ),
    Definition(
        HOST,
        singular="host",
        short_names=("rhost",),
        columns=(
            Column("Role", "string", ".spec.role", "Whether it runs jobs or builds images."),
            Column("Fleet", "string", ".spec.fleet", "Its capacity domain."),
            Column("Phase", "string", ".status.phase", "How far its bootstrap is."),
            _AGE,
            Column("Address", "string", ".status.address", "The address in use.", wide=True),
        ),
    ),
)

_CONDITION: Schema = {
    "type": "object",
    "description": "One statement about the object, with the reason for it.",
    "required": ["type", "status", "reason", "lastTransitionTime"],
    "properties": {
        "type": {
            "type": "string",
            "description": "What it is about, such as Ready.",
            "maxLength": 316,
        },
        "status": {
            "type": "string",
            "description": "Whether it holds.",
            "enum": ["True", "False", "Unknown"],
        },
        "reason": {
            "type": "string",
            "description": "Why, in one word for programs.",
            "maxLength": 1024,
        },
        "message": {
            "type": "string",
            "description": "Why, in a sentence for people.",
            "maxLength": 32768,
        },
        "lastTransitionTime": {
            "type": "string",
            "format": "date-time",
            "description": "When status last changed.",
        },
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "minimum": 0,
            "description": "The generation of the spec that this is about.",
        },
    },
}


# --- From types to schemas -------------------------------------------------------------------------------------------


def schema_of(kind: Kind[Resource]) -> Schema:
    """Return the structural OpenAPI v3 schema of a whole object."""
    info = inspect.type_info(kind.type)
    assert isinstance(info, inspect.StructType)
    fields = tuple(f for f in info.fields if f.name != "metadata")
    return _object(
        info.cls,
        {
            "apiVersion": {"type": "string", "description": "The version of this kind's schema."},
            "kind": {"type": "string", "description": f"Always {kind.name}."},
            "metadata": {"type": "object"},
            **_fields(info.cls, fields),
        },
        required=[field.encode_name for field in fields if field.required],
    ) | {"description": (kind.type.__doc__ or "").strip()}


def _fields(cls: type, fields: tuple[inspect.Field, ...]) -> Schema:
    """Only a Section's defaults are the API's; elsewhere "" or () stands for "not there"."""
    if not issubclass(cls, Section):
        return {field.encode_name: _schema(field.type) for field in fields}
    return {field.encode_name: _schema(field.type) | _default(field) for field in fields}


def _default(field: inspect.Field) -> Schema:
    """
    Spell a default out in full, the inner ones included.

    The API server checks a default against the rules before it would fill the inner defaults in.
    """
    if field.default is NODEFAULT:
        return {}
    return {"default": msgspec.json.decode(msgspec.json.encode(field.default))}


def _schema(info: inspect.Type) -> Schema:
    match info:
        case inspect.Metadata(type=inner, extra_json_schema=extra):
            return _schema(inner) | (extra or {})
        case inspect.StructType(cls=cls) if cls is Condition:
            return dict(_CONDITION)
        case inspect.StructType(cls=cls, fields=fields):
            return _object(
                cls,
                _fields(cls, fields),
                required=[f.encode_name for f in fields if f.required],
            )
        case inspect.VarTupleType(item_type=item):
            return {"type": "array", "items": _schema(item)}
        case inspect.UnionType(types=types):
            return _union(types)
        case _:
            return _plain(info)


def _union(types: tuple[inspect.Type, ...]) -> Schema:
    """Kubernetes knows two unions: with null, which we spell as absence, and of a number with a string."""
    present = [one for one in types if not isinstance(one, inspect.NoneType)]
    if len(present) == 1:
        return _schema(present[0])
    assert {type(one) for one in present} == {inspect.IntType, inspect.StrType}, present
    return {"x-kubernetes-int-or-string": True}


def _plain(info: inspect.Type) -> Schema:
    match info:
        case inspect.StrType():
            return {"type": "string"}
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.IntType():
            return {"type": "integer"}
        case inspect.DictType():
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        case inspect.DateTimeType():
            return {"type": "string", "format": "date-time"}
        case inspect.EnumType(cls=cls):
            return {"type": "string", "enum": [member.value for member in cls]}
        case _:
            raise TypeError(f"no CRD schema for {info!r}")


def _object(cls: type, properties: Schema, *, required: list[str]) -> Schema:
    rules: tuple[Rule, ...] = getattr(cls, "rules", ())
    return {
        "type": "object",
        **({"required": required} if required else {}),
        **({"x-kubernetes-validations": [r.schema() for r in rules]} if rules else {}),
        "properties": properties,
    }


# --- Whole documents -------------------------------------------------------------------------------------------------


def manifests() -> tuple[Schema, ...]:
    """Return our CustomResourceDefinitions."""
    return tuple(_manifest(definition) for definition in DEFINITIONS)


def _manifest(definition: Definition) -> Schema:
    kind = definition.kind
    subresources: Schema = {"status": {}}
    if definition.scale:
        subresources["scale"] = definition.scale
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": definition.singular,
                "shortNames": list(definition.short_names),
                "categories": ["remuda"],
            },
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [c.manifest() for c in definition.columns],
                    "subresources": subresources,
                    "schema": {"openAPIV3Schema": schema_of(kind)},
                }
            ],
        },
    }


def render_yaml() -> dict[str, str]:
    """Return the CRD files by name."""
    return {
        definition.file_name: f"# {GENERATED}\n"
        + yaml.safe_dump(_manifest(definition), sort_keys=False, width=120, allow_unicode=True)
        for definition in DEFINITIONS
    }


# --- The reference page ----------------------------------------------------------------------------------------------


def reference_markdown() -> str:
    """Return docs/reference/resources.md: every field of every resource, and every rule."""
    parts = [
        f"<!-- {GENERATED} -->",
        "# Custom resources",
        "",
        "Each field as `kubectl explain` shows it. A default is filled in by the API server,",
        "so `kubectl get -o yaml` shows what is in force.",
    ]
    for definition in DEFINITIONS:
        parts += ["", *_reference_of(definition)]
    return "\n".join(parts) + "\n"


def _reference_of(definition: Definition) -> list[str]:
    kind = definition.kind
    schema = schema_of(kind)
    names = ", ".join(f"`{name}`" for name in definition.short_names)
    rows, rules = _walk(schema, "")
    return [
        f"## {kind.name}",
        "",
        f"`{kind.api_version}`, short name {names}. {schema['description']}",
        "",
        "| field | type | default | bounds | meaning |",
        "|---|---|---|---|---|",
        *rows,
        "",
        "Rules across fields:",
        "",
        *(f"- `{path or 'the object'}`: {message}" for path, message in rules),
    ]


def _walk(schema: Schema, path: str) -> tuple[list[str], list[tuple[str, str]]]:
    rows: list[str] = []
    rules = [(path, rule["message"]) for rule in schema.get("x-kubernetes-validations", [])]
    required = schema.get("required", [])
    for name, child in schema.get("properties", {}).items():
        if not path and name in ("apiVersion", "kind", "metadata"):
            continue
        inner_path = f"{path}.{name}" if path else name
        rows.append(_row(inner_path, child, required=name in required))
        inner = child.get("items", child)
        more_rows, more_rules = _walk(inner, f"{inner_path}[]" if "items" in child else inner_path)
        rows += more_rows
        if inner is not child:
            rules += [(inner_path, r["message"]) for r in child.get("x-kubernetes-validations", [])]
        rules += more_rules
    return rows, rules


def _row(path: str, schema: Schema, *, required: bool) -> str:
    default = "required" if required else ""
    if "default" in schema and "properties" not in schema:
        default = f"`{msgspec.json.encode(schema['default']).decode()}`"
    return f"| `{path}` | {_type_name(schema)} | {default} | {_bounds(schema)} | {schema['description']} |"


def _type_name(schema: Schema) -> str:
    if "enum" in schema:
        return " \\| ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if schema["type"] == "array":
        return f"list of {_type_name(schema['items'])}"
    return str(
        schema.get("format", schema["type"]) if schema["type"] == "string" else schema["type"]
    )


_BOUNDS = {
    "minimum": "≥ {}", "maximum": "≤ {}", "minLength": "length ≥ {}", "maxLength": "length ≤ {}",
    "minItems": "at least {}", "maxItems": "at most {}",
}  # fmt: skip


def _bounds(schema: Schema) -> str:
    return ", ".join(text.format(schema[key]) for key, text in _BOUNDS.items() if key in schema)
