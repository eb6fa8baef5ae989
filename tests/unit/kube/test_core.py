from __future__ import annotations

from typing import Any, get_args, get_origin

import pytest
from msgspec.structs import fields

from remuda.kube import core, meta
from remuda.kube.meta import Part

MUTABLE = (dict, list, set)
PARTS: dict[str, type[Part]] = {
    part.__name__: part
    for module in (core, meta)
    for part in vars(module).values()
    if isinstance(part, type) and issubclass(part, Part)
}


def mutable_in(type_: Any) -> bool:  # noqa: ANN401 - any type that msgspec decodes
    return get_origin(type_) in MUTABLE or any(mutable_in(inner) for inner in get_args(type_))


@pytest.mark.parametrize("name", sorted(PARTS))
def test_mypy_lets_nobody_change_what_objects_share(name: str) -> None:
    assert [field.name for field in fields(PARTS[name]) if mutable_in(field.type)] == []
