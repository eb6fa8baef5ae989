"""
Merge patches (RFC 7386) and JSON patches (RFC 6902) on plain JSON.

Nothing given is ever changed: the result shares what the patch did not touch. Errors are ``PatchError``.
"""

from __future__ import annotations

from typing import Any

import msgspec


class PatchError(ValueError):
    """The patch is well-formed but cannot be applied to this object."""


class MalformedPatch(ValueError):
    """The bytes are not a patch at all."""


def merge(target: Any, patch: Any) -> Any:  # noqa: ANN401 - JSON
    """Apply a merge patch: objects merge, None removes a key, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merge(result.get(key), value)
        else:
            result[key] = value
    return result


class Operation(msgspec.Struct, frozen=True):
    """One operation of a JSON patch, as it is written."""

    op: str
    path: str
    value: Any = msgspec.UNSET
    from_: str | None = msgspec.field(default=None, name="from")


_AT_END = ("-",)

_operations = msgspec.json.Decoder(list[Operation])


def parse_json_patch(body: bytes) -> list[Operation]:
    try:
        return _operations.decode(body)
    except msgspec.DecodeError as error:
        raise MalformedPatch(str(error)) from error


def apply_json_patch(document: Any, operations: list[Operation]) -> Any:  # noqa: ANN401 - JSON
    """Apply all operations in order, or raise PatchError and leave no trace."""
    for operation in operations:
        document = _apply(document, operation)
    return document


def _apply(document: Any, operation: Operation) -> Any:  # noqa: ANN401 - JSON
    path = _tokens(operation.path)
    match operation.op:
        case "add":
            return _add(document, path, _value(operation))
        case "remove":
            return _remove(document, path)
        case "replace":
            return _replace(document, path, _value(operation))
        case "move":
            return _move(document, _tokens(_from(operation)), path)
        case "copy":
            return _add(document, path, _find(document, _tokens(_from(operation))))
        case "test":
            return _test(document, path, _value(operation))
        case other:
            raise PatchError(f"Unexpected kind: {other}")


def _move(document: Any, source: tuple[str, ...], path: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    if path[: len(source)] == source and path != source:
        raise PatchError(f'cannot move "/{"/".join(source)}" into its own child')
    return _add(_remove(document, source), path, _find(document, source))


def _test(document: Any, path: tuple[str, ...], value: Any) -> Any:  # noqa: ANN401 - JSON
    holder = _find(document, path[:-1])
    if path and isinstance(holder, dict) and path[-1] not in holder and value is None:
        return document  # to the API server, an absent member is null
    if not _same(_find(document, path), value):
        raise PatchError(f"testing value /{'/'.join(path)} failed")
    return document


def _value(operation: Operation) -> Any:  # noqa: ANN401 - JSON
    if operation.value is msgspec.UNSET:
        raise PatchError(f'operation "{operation.op}" at "{operation.path}" has no value')
    return operation.value


def _from(operation: Operation) -> str:
    if operation.from_ is None:
        raise PatchError(f'operation "{operation.op}" at "{operation.path}" has no "from"')
    return operation.from_


def _tokens(pointer: str) -> tuple[str, ...]:
    """Split a JSON pointer. ``~1`` is a slash and ``~0`` a tilde, in that order (RFC 6901 §4)."""
    if not pointer:
        return ()
    if not pointer.startswith("/"):
        raise PatchError(f'the pointer "{pointer}" does not start with "/"')
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/"))


def _index(text: str, length: int) -> int:
    """Read an array index; RFC 6901 allows no sign and no leading zero."""
    if not text.isascii() or not text.isdigit() or (text[0] == "0" and text != "0"):
        raise PatchError(f'"{text}" is not an array index')
    position = int(text)
    if position >= length:
        raise PatchError(f"array index {position} is out of bounds (length {length})")
    return position


def _child(container: Any, token: str) -> Any:  # noqa: ANN401 - JSON
    if isinstance(container, dict):
        if token not in container:
            raise PatchError(f'there is no "{token}"')
        return container[token]
    if isinstance(container, list):
        return container[_index(token, len(container))]
    raise PatchError(f'"{token}" is looked for in what is neither object nor array')


def _find(document: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    for token in path:
        document = _child(document, token)
    return document


def _with(container: Any, token: str, child: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a copy of ``container`` whose existing ``token`` is ``child``."""
    if isinstance(container, dict):
        return container | {token: child}
    position = _index(token, len(container))
    return [*container[:position], child, *container[position + 1 :]]


def _add(document: Any, path: tuple[str, ...], value: Any) -> Any:  # noqa: ANN401 - JSON
    if not path:
        return value
    token, rest = path[0], path[1:]
    if rest:
        return _with(document, token, _add(_child(document, token), rest, value))
    if isinstance(document, dict):
        return document | {token: value}
    if isinstance(document, list):
        end = len(document)
        position = end if token in _AT_END else _index(token, end + 1)
        return [*document[:position], value, *document[position:]]
    raise PatchError(f'"{token}" cannot be added to what is neither object nor array')


def _remove(document: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    if not path:
        raise PatchError("the whole document cannot be removed")
    token, rest = path[0], path[1:]
    child = _child(document, token)
    if rest:
        return _with(document, token, _remove(child, rest))
    if isinstance(document, dict):
        return {key: value for key, value in document.items() if key != token}
    position = _index(token, len(document))
    return [*document[:position], *document[position + 1 :]]


def _replace(document: Any, path: tuple[str, ...], value: Any) -> Any:  # noqa: ANN401 - JSON
    if not path:
        return value
    token, rest = path[0], path[1:]
    if not rest and isinstance(document, dict):
        return document | {token: value}  # the API server replaces an absent member too
    child = _child(document, token)
    return _with(document, token, _replace(child, rest, value))


def _same(one: Any, other: Any) -> bool:  # noqa: ANN401 - JSON
    """Compare as JSON does: 1 equals 1.0, but true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
