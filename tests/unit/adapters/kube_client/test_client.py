from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from remuda.adapters.kube_client import ClientSettings, KubeClient
from remuda.kube.core import LEASE, NODE, POD, Container, Node, Pod, PodSpec
from remuda.kube.meta import ObjectMeta
from remuda.kube.patches import JsonPatch, MergePatch
from remuda.ports.kube import (
    AlreadyExists,
    Bookmark,
    BoundPod,
    Cascade,
    Change,
    Conflict,
    Expired,
    Invalid,
    KubeError,
    Manifest,
    NotFound,
    Query,
    Refused,
    Seen,
    Throttled,
    TimedOut,
    Unavailable,
)
from remuda.ports.wire import Request, Response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.kube.patches import Patch


class ScriptedWire:
    """Answers with what it was given, in order, and keeps what it was asked."""

    def __init__(self, *answers: Response | list[bytes]) -> None:
        self._answers = list(answers)
        self.asked: list[Request] = []

    async def send(self, request: Request, *, timeout_s: float) -> Response:
        assert timeout_s > 0
        self.asked.append(request)
        answer = self._answers.pop(0)
        assert isinstance(answer, Response)
        return answer

    @asynccontextmanager
    async def stream(
        self, request: Request, *, connect_timeout_s: float, idle_timeout_s: float
    ) -> AsyncIterator[ScriptedStream]:
        assert connect_timeout_s > 0
        assert idle_timeout_s > 60, "a quiet server sends a bookmark about once a minute"
        self.asked.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Response):
            yield ScriptedStream(answer.status, [answer.body])
        else:
            yield ScriptedStream(200, answer)

    async def close(self) -> None:
        pass

    @property
    def last(self) -> dict[str, Any]:
        body: dict[str, Any] = msgspec.json.decode(self.asked[-1].body)
        return body


class ScriptedStream:
    def __init__(self, status: int, chunks: list[bytes]) -> None:
        self.status = status
        self._chunks = chunks

    async def chunks(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


def ok(body: object) -> Response:
    return Response(200, msgspec.json.encode(body))


def status(code: int, reason: str = "", message: str = "no", **details: object) -> Response:
    body = {
        "kind": "Status",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }
    return Response(code, msgspec.json.encode(body))


def pod(name: str, version: str = "1") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ci", "resourceVersion": version}}


def page(*names: str, version: str = "7", following: str = "") -> Response:
    metadata = {"resourceVersion": version, "continue": following}
    return ok({"metadata": metadata, "items": [pod(name) for name in names]})


# --- Lists ----------------------------------------------------------------------------------------


async def test_a_list_is_read_in_pages_to_its_end() -> None:
    wire = ScriptedWire(page("a", "b", following="x"), page("c", version="7"))

    listing = await KubeClient(wire).list(POD, Query(namespace="ci", labels="a=b", fields="c=d"))

    assert [p.name for p in listing.items] == ["a", "b", "c"]
    assert listing.resource_version == "7"
    assert wire.asked[0].path == "/api/v1/namespaces/ci/pods"
    selectors = (("labelSelector", "a=b"), ("fieldSelector", "c=d"), ("limit", "500"))
    assert wire.asked[0].query == selectors
    assert wire.asked[1].query == (*selectors, ("continue", "x"))


async def test_a_list_whose_version_expires_between_pages_starts_over() -> None:
    wire = ScriptedWire(page("gone", following="x"), status(410), page("a", "b"))

    listing = await KubeClient(wire).list(POD)

    assert [p.name for p in listing.items] == ["a", "b"]


async def test_a_list_that_always_expires_is_asked_for_all_at_once_and_then_given_up() -> None:
    settings = ClientSettings(list_restarts_max=2)
    wire = ScriptedWire(*[page("a", following="x"), status(410)] * 2, page("a", "b"))

    listing = await KubeClient(wire, settings).list(POD)

    assert [p.name for p in listing.items] == ["a", "b"]
    assert wire.asked[-1].query == ()
    with pytest.raises(Expired):
        await KubeClient(ScriptedWire(*[status(410)] * 3), settings).list(POD)


# --- Writes ---------------------------------------------------------------------------------------


async def test_a_created_object_carries_its_kind_and_nothing_that_was_not_set() -> None:
    wire = ScriptedWire(ok(pod("a")))
    wanted = Pod(
        metadata=ObjectMeta(name="a", namespace="ci"),
        spec=PodSpec(containers=(Container(name="c"),), active_deadline_seconds=0),
    )

    await KubeClient(wire).create(POD, wanted)

    assert wire.asked[0].method == "POST"
    assert wire.asked[0].path == "/api/v1/namespaces/ci/pods"
    assert wire.last == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "ci"},
        "spec": {"containers": [{"name": "c"}], "activeDeadlineSeconds": 0},
    }


async def test_an_object_with_nothing_set_is_still_valid_json() -> None:
    wire = ScriptedWire(ok({"metadata": {"name": "x"}}))

    await KubeClient(wire).create(NODE, Node())

    assert wire.last == {"apiVersion": "v1", "kind": "Node"}


async def test_a_manifest_is_sent_as_it_is() -> None:
    wire = ScriptedWire(ok(pod("a")))

    await KubeClient(wire).create(POD, Manifest(b'{"spec":{"unknown":1}}', "ci"))

    assert wire.asked[0].body == b'{"spec":{"unknown":1}}'
    assert wire.asked[0].path == "/api/v1/namespaces/ci/pods"


async def test_a_delete_carries_what_was_seen() -> None:
    wire = ScriptedWire(ok({}), ok({}), ok({}))
    kube = KubeClient(wire)

    await kube.delete(POD, "a", namespace="ci", seen=Seen(uid="u", resource_version="5"))
    assert wire.last["preconditions"] == {"uid": "u", "resourceVersion": "5"}
    assert wire.last["propagationPolicy"] == "Background"
    await kube.delete(
        POD, "a", namespace="ci", seen=Seen(uid="u"), cascade=Cascade.FOREGROUND, grace_s=0
    )
    assert wire.last["preconditions"] == {"uid": "u"}
    assert wire.last["gracePeriodSeconds"] == 0
    await kube.delete(POD, "a", namespace="ci")
    assert "preconditions" not in wire.last
    assert "gracePeriodSeconds" not in wire.last


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a%2fb"])
async def test_a_name_that_leads_elsewhere_is_not_sent(name: str) -> None:
    wire = ScriptedWire()

    with pytest.raises(Invalid, match="cannot be a name"):
        await KubeClient(wire).delete(POD, name, namespace="ci")
    assert wire.asked == []


# --- Refusals -------------------------------------------------------------------------------------

TEST = JsonPatch(({"op": "test", "path": "/a", "value": 1},))
NO_TEST = JsonPatch(({"op": "remove", "path": "/a"},))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(status(400, "BadRequest"), Invalid, id="a bad request"),
        pytest.param(status(401, "Unauthorized"), Refused, id="nobody we know"),
        pytest.param(status(403, "Forbidden"), Refused, id="not allowed"),
        pytest.param(status(404, "NotFound"), NotFound, id="no such object"),
        pytest.param(Response(404, b"404 page not found\n"), NotFound, id="no such kind"),
        pytest.param(status(408, "Timeout"), TimedOut, id="the server gave up waiting"),
        pytest.param(status(409, "AlreadyExists"), AlreadyExists, id="the name is taken"),
        pytest.param(status(409, "Conflict"), Conflict, id="another version"),
        pytest.param(status(410, "Expired"), Expired, id="too old"),
        pytest.param(status(413, "RequestEntityTooLarge"), Invalid, id="too large"),
        pytest.param(status(415, "UnsupportedMediaType"), Invalid, id="another patch type"),
        pytest.param(status(422, "Invalid", name="a"), Invalid, id="a broken rule"),
        pytest.param(status(429, "TooManyRequests"), Throttled, id="too much"),
        pytest.param(status(500, "InternalError"), Unavailable, id="its own fault"),
        pytest.param(status(503, "ServiceUnavailable"), Unavailable, id="starting up"),
        pytest.param(Response(502, b"<html>Bad Gateway"), Unavailable, id="a proxy's answer"),
        pytest.param(Response(302, b""), Unavailable, id="a login page in between"),
        pytest.param(
            Response(503, b'{"code":16,"message":"no upstream"}'),
            Unavailable,
            id="a gateway whose JSON has codes of its own",
        ),
        pytest.param(Response(401, b'{"code":200}'), Refused, id="a body that contradicts it"),
        pytest.param(status(504, "Timeout"), TimedOut, id="perhaps applied"),
        pytest.param(Response(200, b"<html>hello"), Unavailable, id="something else answers"),
        pytest.param(Response(200, b'{"metadata":"\xff"}'), Unavailable, id="not even text"),
    ],
)
async def test_each_answer_is_the_error_that_says_what_to_do(
    answer: Response, error: type[KubeError]
) -> None:
    with pytest.raises(KubeError) as caught:
        await KubeClient(ScriptedWire(answer)).get(POD, "a", namespace="ci")
    assert type(caught.value) is error
    assert caught.value.what.startswith("Pod ci/a was not read")


@pytest.mark.parametrize(
    ("patch", "answer", "error"),
    [
        pytest.param(TEST, status(422, "Invalid"), Conflict, id="a failed test is a conflict"),
        pytest.param(
            TEST,
            status(422, "Invalid", name="a", causes=[{"field": "spec"}]),
            Invalid,
            id="a rule is not",
        ),
        pytest.param(NO_TEST, status(422, "Invalid"), Invalid, id="no test, no conflict"),
        pytest.param(MergePatch({}), status(422, "Invalid"), Invalid, id="nor a merge patch"),
        pytest.param(TEST, status(404, "NotFound"), NotFound, id="gone is gone"),
    ],
)
async def test_a_patch_that_does_not_apply(
    patch: Patch, answer: Response, error: type[KubeError]
) -> None:
    with pytest.raises(KubeError) as caught:
        await KubeClient(ScriptedWire(answer)).patch(LEASE, "a", patch, namespace="ci")
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("answer", "wait_s"),
    [
        (status(429), 1.0),
        (status(429, retryAfterSeconds=7), 7.0),
        (Response(429, b"slow down", retry_after_s=3.0), 3.0),
        (Response(429, b"slow down", retry_after_s=float("inf")), 300.0),
        (status(429, retryAfterSeconds=10**9), 300.0),
    ],
)
async def test_a_server_says_how_long_to_wait(answer: Response, wait_s: float) -> None:
    with pytest.raises(Throttled) as caught:
        await KubeClient(ScriptedWire(answer)).get(POD, "a", namespace="ci")
    assert caught.value.retry_after_s == wait_s


async def test_an_event_without_end_is_given_up() -> None:
    async with KubeClient(ScriptedWire([b"x" * 2**20] * 100)).watch(POD, Query()) as batches:
        with pytest.raises(Unavailable, match="an event of more than 16777216 bytes"):
            async for _ in batches:
                pass


async def test_an_error_text_is_one_that_a_person_can_act_on() -> None:
    wire = ScriptedWire(status(403, "Forbidden", 'pods "a" is forbidden: User "x" cannot get it.'))

    with pytest.raises(Refused) as caught:
        await KubeClient(wire).get(POD, "a", namespace="ci")
    assert str(caught.value) == (
        'Pod ci/a was not read: pods "a" is forbidden: User "x" cannot get it. '
        "Grant the permission; 'kubectl auth can-i' shows what is granted."
    )


# --- Watches --------------------------------------------------------------------------------------


def line(change: str, obj: object) -> bytes:
    return msgspec.json.encode({"type": change, "object": obj}) + b"\n"


LINES = (
    line("ADDED", pod("a", "1"))
    + line("MODIFIED", pod("a" * 3000, "2"))
    + line("BOOKMARK", {"metadata": {"resourceVersion": "5", "annotations": {"k8s.io/initial-events-end": "true"}}})
    + line("DELETED", pod("a", "6"))
    + line("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
)  # fmt: skip


async def watched(*chunks: bytes, found: list[object] | None = None) -> list[object]:
    found = [] if found is None else found
    async with KubeClient(ScriptedWire(list(chunks))).watch(POD, Query()) as batches:
        async for batch in batches:
            for event in batch:
                if isinstance(event, Bookmark):
                    found.append((event.resource_version, event.initial_events_end))
                else:
                    found.append((event.change, event.object.resource_version))
    return found


@pytest.mark.parametrize("size", [1, 2, 7, 100, 4096, 10**6])
async def test_events_are_whole_however_the_bytes_are_cut(size: int) -> None:
    chunks = [LINES[i : i + size] for i in range(0, len(LINES), size)]

    assert await watched(*chunks) == [
        (Change.ADDED, "1"),
        (Change.MODIFIED, "2"),
        ("5", True),
        (Change.DELETED, "6"),
        ("9", False),
    ]


async def test_what_a_watch_asks_for() -> None:
    wire = ScriptedWire([], [])
    kube = KubeClient(wire)

    async with kube.watch(POD, Query(namespace="ci"), since="5"):
        pass
    async with kube.watch(POD, Query(labels="a"), streaming_list=True):
        pass
    asked = [dict(request.query) for request in wire.asked]
    assert asked[0]["resourceVersion"] == "5"
    assert "sendInitialEvents" not in asked[0]
    assert asked[1]["sendInitialEvents"] == "true"
    assert asked[1]["resourceVersionMatch"] == "NotOlderThan"
    assert "resourceVersion" not in asked[1]
    for options in asked:
        assert (options["watch"], options["allowWatchBookmarks"]) == ("true", "true")
        assert 0 < int(options["timeoutSeconds"]) <= 600


@pytest.mark.parametrize(
    ("code", "error"), [(410, Expired), (500, Unavailable), (504, TimedOut), (422, Invalid)]
)
async def test_an_error_event_raises_after_the_events_before_it(
    code: int, error: type[KubeError]
) -> None:
    chunk = line("ADDED", pod("a")) + line(
        "ERROR", {"kind": "Status", "code": code, "message": "x"}
    )
    found: list[object] = []

    with pytest.raises(KubeError) as caught:
        await watched(chunk, found=found)
    assert type(caught.value) is error
    assert found == [(Change.ADDED, "1")]


@pytest.mark.parametrize(
    "chunk",
    [
        pytest.param(b'{"type":"ADDED","object":{"metadata":{"name":"a"', id="cut in an event"),
        pytest.param(b"hello\n", id="not JSON"),
        pytest.param(line("ADDED", {"metadata": {"name": 1}}), id="not a Pod"),
        pytest.param(line("RENAMED", pod("a")), id="a change that does not exist"),
    ],
)
async def test_half_or_wrong_events_make_the_watch_fail(chunk: bytes) -> None:
    with pytest.raises(Unavailable):
        await watched(line("ADDED", pod("b")), chunk)


async def test_a_refused_watch_raises_before_anything_is_yielded() -> None:
    with pytest.raises(Expired):
        async with KubeClient(ScriptedWire(status(410))).watch(POD, Query(), since="1"):
            pytest.fail("it was not refused")


# --- Questions ------------------------------------------------------------------------------------


def review(**answer: object) -> Response:
    return ok({"status": answer})


USER = {
    "username": "system:serviceaccount:ci:a",
    "uid": "u",
    "groups": ["g"],
    "extra": {
        "authentication.kubernetes.io/pod-name": ["a"],
        "authentication.kubernetes.io/pod-uid": ["p"],
    },
}


async def test_a_token_is_asked_for_and_never_shown() -> None:
    wire = ScriptedWire(
        ok({"status": {"token": "s3cret", "expirationTimestamp": "2026-11-15T21:00:00Z"}})
    )

    token = await KubeClient(wire).request_token(
        "a", namespace="ci", audience="x", expiration_s=600, pod=BoundPod("a", "p")
    )

    assert token.text == "s3cret"
    assert "s3cret" not in repr(token)
    assert wire.asked[0].path == "/api/v1/namespaces/ci/serviceaccounts/a/token"
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "p"}
    assert wire.last["spec"] == {
        "audiences": ["x"],
        "expirationSeconds": 600,
        "boundObjectRef": reference,
    }


async def test_a_reviewed_token_names_its_pod() -> None:
    wire = ScriptedWire(review(authenticated=True, user=USER, audiences=["x"]))

    subject = await KubeClient(wire).review_token("t", audience="x")

    assert subject is not None
    assert (subject.username, subject.pod_name, subject.pod_uid) == (USER["username"], "a", "p")
    assert wire.last["spec"] == {"token": "t", "audiences": ["x"]}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(review(user={}, error="expired"), id="not authenticated"),
        pytest.param(review(authenticated=True, user=USER), id="absent audiences fail closed"),
        pytest.param(review(authenticated=True, user=USER, audiences=[]), id="so do empty ones"),
        pytest.param(review(authenticated=True, user=USER, audiences=["y"]), id="and other ones"),
    ],
)
async def test_a_token_that_is_not_valid_for_the_audience_is_nobodys(answer: Response) -> None:
    assert await KubeClient(ScriptedWire(answer)).review_token("t", audience="x") is None


async def test_what_we_may_do() -> None:
    wire = ScriptedWire(review(allowed=True), review())
    kube = KubeClient(wire)

    assert await kube.may_i("patch", LEASE, namespace="ci", subresource="status")
    assert wire.last["spec"]["resourceAttributes"] == {
        "namespace": "ci",
        "verb": "patch",
        "group": "coordination.k8s.io",
        "version": "v1",
        "resource": "leases",
        "subresource": "status",
    }
    assert not await kube.may_i("patch", LEASE)
