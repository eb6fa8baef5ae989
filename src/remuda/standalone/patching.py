"""Patch bytes applied to a stored object, by content type; refusals in the API server's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from remuda.standalone.errors import StatusError, bad_request, unsupported_media_type
from remuda.standalone.patches import (
    MalformedPatch,
    PatchError,
    apply_json_patch,
    merge,
    parse_json_patch,
)
from remuda.standalone.strategic import strategic_merge

if TYPE_CHECKING:
    from remuda.standalone.kinds import ResourceKind
    from remuda.standalone.objects import Obj

_decode = msgspec.json.Decoder().decode
_APPLY_REFUSED = (
    "server-side apply is not offered by this control plane: use client-side apply (kubectl apply without "
    "--server-side), a merge patch or a JSON patch"
)
_UNKNOWN_FORMAT = (
    "the body of the request was in an unknown format - accepted media types include: "
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
)
_JSON_PATCH_LENGTH_MAX = 10_000


def check_content_type(content_type: str, *, strategic: bool) -> str:
    """
    Return the sort of patch, without parameters, for ``patched``; refuse one that is not offered.

    It is the first thing that a server looks at.
    """
    match content_type.partition(";")[0].strip():
        case "application/merge-patch+json" | "application/json-patch+json" as sort:
            return sort
        case "application/strategic-merge-patch+json" as sort if strategic:
            return sort
        case "application/apply-patch+yaml" | "application/apply-patch+cbor":
            raise unsupported_media_type(_APPLY_REFUSED)
        case _:
            # The real server has another text for each of the two sorts of kinds.
            raise unsupported_media_type(
                "415: Unsupported Media Type" if strategic else _UNKNOWN_FORMAT
            )


def patched(old: Obj, body: bytes, sort: str, *, strategic: ResourceKind | None) -> Obj:
    """
    Return a new object. ``strategic`` is the kind if strategic merge patches are offered for it.

    ``sort`` is what ``check_content_type`` returned.
    """
    match sort:
        case "application/merge-patch+json":
            result = merge(old, _object(body))
        case "application/json-patch+json":
            result = _json_patched(old, body)
        case _:
            assert strategic is not None, "checked above"
            try:
                result = strategic_merge(old, _object(body), strategic)
            except PatchError as error:
                raise bad_request(str(error)) from error
    if not isinstance(result, dict):
        raise bad_request("the patched object is not an object")
    return result


def _object(body: bytes) -> Any:  # noqa: ANN401 - JSON
    try:
        patch = _decode(body)
    except msgspec.DecodeError as error:
        raise bad_request("invalid JSON patch") from error
    if not isinstance(patch, dict):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        )
    return patch


def _json_patched(old: Obj, body: bytes) -> Any:  # noqa: ANN401 - JSON
    try:
        operations = parse_json_patch(body)
    except MalformedPatch as error:
        raise bad_request(f"error decoding patch: {error}") from error
    if len(operations) > _JSON_PATCH_LENGTH_MAX:
        raise StatusError(
            413,
            "RequestEntityTooLarge",
            f"The allowed maximum operations in a JSON patch is {_JSON_PATCH_LENGTH_MAX}, got {len(operations)}",
        )
    try:
        return apply_json_patch(old, operations)
    except PatchError as error:
        raise StatusError(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
            causes=[{"message": str(error)}],
        ) from error
