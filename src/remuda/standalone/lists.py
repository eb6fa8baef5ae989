"""Lists: which version is meant, and pages of one consistent version. Pure but for what it reads from the store."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.standalone.errors import Cause, StatusError, bad_request, expired, invalid
from remuda.standalone.store import object_key

if TYPE_CHECKING:
    from remuda.standalone.objects import Obj
    from remuda.standalone.store import Store
    from remuda.standalone.watch import Selection

_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_VERSION_LENGTH_MAX = 18
_LATEST = -1
"""In a continue token: go on with whatever is there now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """What a client asked for, as it wrote it."""

    limit: int = 0
    continue_: str = ""
    resource_version: str = ""
    match: str = ""


def parse_version(text: str) -> int:
    """Read a resourceVersion; empty is 0."""
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > _VERSION_LENGTH_MAX:
        raise bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": '
            f'strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text)


def list_objects(store: Store, selection: Selection, options: ListOptions) -> Obj:
    """Return a List object: the selected objects, or one page of them."""
    _check(options)
    revision, start = _where(store, options)
    try:
        found = (
            store.objects(selection.kind, selection.namespace)
            if revision == store.revision
            else store.objects_at(selection.kind, selection.namespace, revision)
        )
    except StatusError as error:
        if not options.continue_:
            raise
        raise _expired_page(start) from error
    if start:
        keys = [_key(obj) for obj in found]
        found = found[bisect_left(keys, start) :]
    if selection.selective:
        found = [obj for obj in found if selection.matches(obj)]
    meta: Obj = {"resourceVersion": str(revision)}
    if 0 < options.limit < len(found):
        meta["continue"] = _token(revision, _key(found[options.limit]))
        if not selection.selective:  # the real server does not count what it would have to filter
            meta["remainingItemCount"] = len(found) - options.limit
        found = found[: options.limit]
    kind = selection.kind
    return {
        "kind": kind.list_kind,
        "apiVersion": kind.api_version,
        "metadata": meta,
        "items": found,
    }


def _key(obj: Obj) -> str:
    meta = obj["metadata"]
    return object_key(meta.get("namespace", ""), meta["name"])


def _check(options: ListOptions) -> None:
    fault = ""
    if options.match and options.continue_:
        fault = "resourceVersionMatch is forbidden when continue is provided"
    elif options.match and not options.resource_version:
        fault = "resourceVersionMatch is forbidden unless resourceVersion is provided"
    elif options.match == "Exact" and options.resource_version == "0":
        fault = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    if fault:
        raise options_refused("resourceVersionMatch", fault)
    if options.match not in {"", "Exact", "NotOlderThan"}:
        supported = 'supported values: "Exact", "NotOlderThan", ""'
        cause = Cause(
            "resourceVersionMatch",
            "FieldValueNotSupported",
            f'Unsupported value: "{options.match}": {supported}',
        )
        raise invalid("meta.k8s.io", "ListOptions", "", [cause])


def options_refused(field: str, why: str) -> StatusError:
    cause = Cause(field, "FieldValueForbidden", f"Forbidden: {why}")
    return invalid("meta.k8s.io", "ListOptions", "", [cause])


def _where(store: Store, options: ListOptions) -> tuple[int, str]:
    """Return the revision to read at, and the key to start from."""
    if options.continue_:
        if options.resource_version not in {"", "0"}:
            raise bad_request("specifying resource version is not allowed when using continue")
        revision, start = _read_token(options.continue_)
        return (store.revision if revision == _LATEST else revision), start
    asked = parse_version(options.resource_version)
    if asked > store.revision:
        raise too_large(asked, store.revision)
    # A limited list at a version means exactly that version, for clients older than resourceVersionMatch.
    exact = options.match == "Exact" or (not options.match and options.limit > 0 and asked > 0)
    return (asked if exact else store.revision), ""


def too_large(asked: int, current: int) -> StatusError:
    return StatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        causes=[{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        retryAfterSeconds=1,
    )


def _token(revision: int, start: str) -> str:
    plain = json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": start})
    return urlsafe_b64encode(plain.encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    try:
        plain = json.loads(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(plain["rv"]), str(plain["start"])
    except (ValueError, KeyError, TypeError) as error:
        why = "illegal base64 data at input byte 0"
        raise bad_request(f"invalid continue token: continue key is not valid: {why}") from error


def _expired_page(start: str) -> StatusError:
    error = expired(_EXPIRED)
    error.list_meta = {"continue": _token(_LATEST, start)}
    return error
