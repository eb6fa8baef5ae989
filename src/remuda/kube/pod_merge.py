"""
Merge a pool's partial Pod template into a Pod: strategic, by name. Pure; refuses what does not fit, never crashes.

- Maps merge key by key, the template wins; null takes a key away.
- Containers merge by name. Volumes and variables replace those of their name, mounts those of their path.
- Tolerations, and every list below ``affinity``, are added to ours. All other lists are replaced.
- An init container of the template goes before the poller: nothing stands between a taken job and its runner.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

import msgspec

from remuda.kube.names import POLLER
from remuda.model.errors import RemudaError, Retry

Json = dict[str, Any]

TEMPLATE_BYTES_MAX: Final = 64 * 1024
DEPTH_MAX: Final = 40
_INTEGERS: Final = range(-(2**63), 2**63)
_NONE: Final[Mapping[str, str]] = {}
_OF_CONTAINER: Final = {"env": "name", "volumeMounts": "mountPath"}
_OF_SPEC: Final = {"containers": "name", "initContainers": "name", "volumes": "name"}
"""Lists whose entries have names, and what holds the name. Elsewhere the same word is only a key: a label ``env``."""
_WHOLE: Final = frozenset({"volumes", *_OF_CONTAINER})
"""Those whose entries are replaced whole: two kinds of volume, or a value and its source, do not go together."""


class TemplateRefused(RemudaError):
    """No runner can be made from this pool's spec. Only a changed spec helps; runners that exist are left alone."""

    retry = Retry.NEVER


def refused(path: str, why: str, fix: str) -> TemplateRefused:
    return TemplateRefused(f"spec.template.{path}" if path else "spec.template", why=why, fix=fix)


def checked(template: object) -> Json:
    """Return the template if it is JSON of a sane size; its shape is looked at where it is merged."""
    if not isinstance(template, Mapping):
        raise refused("", "it is not a map", "Write a partial Pod template: metadata and spec")
    _check_values(template)
    if len(msgspec.json.encode(template)) > TEMPLATE_BYTES_MAX:
        why = f"it is larger than {TEMPLATE_BYTES_MAX} bytes, and every runner's Pod would carry it"
        raise refused("", why, "Put what is large into the image or a ConfigMap")
    return dict(template)


def _check_values(template: Mapping[str, Any]) -> None:
    """Walk without recursion: what is nested too deep must be refused, not followed."""
    left: list[tuple[str, object, int]] = [("", template, 0)]
    while left:
        path, value, depth = left.pop()
        if depth > DEPTH_MAX:
            raise refused("", f"it is nested deeper than {DEPTH_MAX} levels", "Make it flatter")
        if isinstance(value, Mapping):
            left += [(_below(path, key), inner, depth + 1) for key, inner in value.items()]
        elif isinstance(value, list | tuple):
            left += [(f"{path}[{n}]", inner, depth + 1) for n, inner in enumerate(value)]
        elif not _is_plain(value):
            raise refused(path, "it is no value that JSON has", "Write a string, number or bool")


def _below(path: str, key: object) -> str:
    if not isinstance(key, str) or not _is_plain(key):
        raise refused(path, "a key is not text", "Quote the key")
    if key.startswith("$"):
        why = f"{key} is a directive of kubectl's patches, which templates do not have"
        raise refused(path, why, "Write the fields that the Pod should have; null takes one away")
    return f"{path}.{key}" if path else key


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)
    if isinstance(value, bool) or value is None:
        return True
    if isinstance(value, int):
        return value in _INTEGERS
    return isinstance(value, float) and isfinite(value)


def merged_spec(base: Json, template: Json) -> Json:
    """Return a Pod's spec with a template's spec in it."""
    return merged(base, template, "spec", named=_OF_SPEC)


def merged(
    base: Json,
    template: Json,
    path: str,
    *,
    named: Mapping[str, str] = _NONE,
    add: bool = False,
) -> Json:
    """Return the base with the template in it. Parts that the template does not touch are shared, not copied."""
    result = dict(base)
    for key, value in template.items():
        here, old = f"{path}.{key}", base.get(key)
        if value is None:
            _may_go(old, here)
            result.pop(key, None)
        elif isinstance(old, dict):
            result[key] = merged(old, _as_map(value, here), here, add=add or key == "affinity")
        elif key in named:
            found = _as_list(value, here)
            result[key] = _by_name(named[key], old or [], found, here, deep=key not in _WHOLE)
        elif isinstance(old, list):
            found = _as_list(value, here)
            more = [item for item in found if item not in old]
            result[key] = [*old, *more] if add or key == "tolerations" else found
        else:
            result[key] = value
    return result


def _may_go(old: object, path: str) -> None:
    if isinstance(old, list):
        why = "null would take away what a runner is made of"
        raise refused(path, why, "Leave the field out, or name the entries to change")


def _by_name(key: str, old: list[Json], new: list[Any], path: str, *, deep: bool) -> list[Json]:
    found: dict[str, Json] = {item[key]: item for item in old}
    for number, item in enumerate(new):
        name = _as_map(item, f"{path}[{number}]").get(key)
        if not isinstance(name, str) or not name:
            at = f"{path}[{number}].{key}"
            raise refused(at, "it is missing or not text", f"Give it a {key}")
        before = found.get(name, {}) if deep else {}
        named = _OF_CONTAINER if deep else _NONE
        found[name] = merged(before, item, f"{path}[{name}]", named=named)
    return [*(v for k, v in found.items() if k != POLLER or not deep), *_last(found, deep=deep)]


def _last(found: dict[str, Json], *, deep: bool) -> list[Json]:
    return [found[POLLER]] if deep and POLLER in found else []


def _as_map(value: object, path: str) -> Json:
    if not isinstance(value, dict):
        raise refused(path, "a map belongs here", "Write it as in a Pod")
    return value


def _as_list(value: object, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise refused(path, "a list belongs here", "Write it as in a Pod")
    return value
