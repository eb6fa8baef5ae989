from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from remuda.ports.kube import TimedOut
from remuda.ports.wire import Request, Response
from remuda.standalone.api import BODY_SIZE_MAX, content_type_of, is_stream
from remuda.standalone.errors import StatusError
from remuda.standalone.journal import Journal
from remuda.standalone.local_wire import LocalWire
from remuda.standalone.store import Store
from remuda.standalone.streams import refused
from remuda.standalone.users import ANONYMOUS
from tests.unit.standalone.worlds import HERD, Plane, config, pod

CONFIGS = f"{HERD}/configmaps"


@pytest.fixture
async def plane() -> Plane:
    return await Plane().settle_in()


# --- Who -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/version"])
async def test_anybody_may_ask_how_the_server_is(plane: Plane, path: str) -> None:
    answer = await plane.api.handle(Request("GET", path), ANONYMOUS)

    assert answer.status == 200


@pytest.mark.parametrize("path", ["/api", "/apis", CONFIGS, "/openapi/v2", "/nowhere"])
async def test_strangers_are_told_nothing_else(plane: Plane, path: str) -> None:
    answer = await plane.api.handle(Request("GET", path), ANONYMOUS)

    assert answer.status == 401
    assert json.loads(answer.body)["reason"] == "Unauthorized"


async def test_a_wrong_token_is_refused_on_either_way(plane: Plane) -> None:
    wire = LocalWire(plane.api, "wrong")

    assert (await wire.send(Request("GET", CONFIGS), timeout_s=1)).status == 401
    watch = Request("GET", CONFIGS, (("watch", "1"),))
    async with wire.stream(watch, connect_timeout_s=1, idle_timeout_s=1) as stream:
        assert stream.status == 401
        assert json.loads(b"".join([chunk async for chunk in stream.chunks()]))["code"] == 401
    with pytest.raises(StatusError):
        plane.api.authenticate("wrong")


async def test_a_service_account_token_is_somebody(plane: Plane) -> None:
    asked = await plane.call("POST", f"{HERD}/serviceaccounts/default/token", {"spec": {}})
    wire = LocalWire(plane.api, asked.body["status"]["token"])

    answer = await wire.send(
        Request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=b"{}"),
        timeout_s=1,
    )

    who = json.loads(answer.body)["status"]["userInfo"]
    assert who["username"] == "system:serviceaccount:herd:default"


# --- What is not understood ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        pytest.param("GET", "/api/v1/unicorns", None, 404, "NotFound", id="an unknown kind"),
        pytest.param("GET", "/apis/no.such/v1/a", None, 404, "NotFound", id="an unknown group"),
        pytest.param("GET", "/nowhere", None, 404, "NotFound", id="an unknown path"),
        pytest.param("POST", "/nowhere", {}, 404, "NotFound", id="a post to nowhere"),
        pytest.param(
            "GET", f"{CONFIGS}/a/b/c", None, 404, "NotFound", id="a path that is too long"
        ),
        pytest.param(
            "GET", f"{CONFIGS}/a/log", None, 404, "NotFound", id="another kind's subresource"
        ),
        pytest.param("GET", "/api/v1/configmaps/a", None, 404, "NotFound", id="no namespace"),
        pytest.param("GET", f"{HERD}/nodes/a", None, 404, "NotFound", id="a namespace too many"),
        pytest.param(
            "POST", "/api/v1/configmaps", {}, 405, "MethodNotAllowed", id="create nowhere"
        ),
        pytest.param(
            "POST", f"{CONFIGS}/a", {}, 405, "MethodNotAllowed", id="create into an object"
        ),
        pytest.param("PUT", CONFIGS, {}, 405, "MethodNotAllowed", id="replace a collection"),
        pytest.param("BREW", CONFIGS, {}, 405, "MethodNotAllowed", id="an unknown method"),
        pytest.param("POST", CONFIGS, b"{", 400, "BadRequest", id="half of an object"),
        pytest.param("POST", CONFIGS, b"[]", 400, "BadRequest", id="a list"),
        pytest.param("POST", CONFIGS, b"\xff", 400, "BadRequest", id="no text"),
        pytest.param(
            "POST", CONFIGS, b'{"metadata": 1}', 400, "BadRequest", id="a number for metadata"
        ),
        pytest.param("POST", CONFIGS, b'{"a":' * 5000, 400, "BadRequest", id="nested without end"),
        pytest.param("POST", CONFIGS, {"kind": "Pod"}, 400, "BadRequest", id="another kind"),
        pytest.param("POST", CONFIGS, {"metadata": {"name": "A"}}, 422, "Invalid", id="a bad name"),
        pytest.param("POST", CONFIGS, {"metadata": {}}, 422, "Invalid", id="no name"),
    ],
)
async def test_refusals(
    plane: Plane,
    method: str,
    path: str,
    body: Any,  # noqa: ANN401 - JSON
    status: int,
    reason: str,
) -> None:
    answer = await plane.call(method, path, body)

    assert (answer.status, answer.body["reason"], answer.body["code"]) == (status, reason, status)
    assert answer.body["kind"] == "Status"


async def test_a_body_that_is_too_large_is_not_even_read(plane: Plane) -> None:
    answer = await plane.call("POST", CONFIGS, b"{" * (BODY_SIZE_MAX + 1))

    assert (answer.status, answer.body["reason"]) == (413, "RequestEntityTooLarge")


async def test_a_body_in_another_format_is_refused(plane: Plane) -> None:
    request = Request("POST", CONFIGS, body=b"a: b", content_type="application/yaml")

    assert (await plane.wire.send(request, timeout_s=1)).status == 415


async def test_server_side_apply_is_refused_with_a_way_out(plane: Plane) -> None:
    await plane.call("POST", CONFIGS, config("mare"))
    request = Request(
        "PATCH", f"{CONFIGS}/mare", body=b"{}", content_type="application/apply-patch+yaml"
    )

    answer = await plane.wire.send(request, timeout_s=1)

    assert answer.status == 415
    assert "use client-side apply" in json.loads(answer.body)["message"]


async def test_names_in_paths_may_be_escaped(plane: Plane) -> None:
    await plane.call("POST", CONFIGS, config("a.mare"))

    assert (await plane.call("GET", f"{CONFIGS}/a%2Emare")).status == 200


# --- Shapes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        pytest.param("application/json", "ConfigMapList", id="plain"),
        pytest.param("*/*", "ConfigMapList", id="anything"),
        pytest.param(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "Table", id="kubectl"
        ),
        pytest.param(
            "application/vnd.kubernetes.protobuf,application/json",
            "ConfigMapList",
            id="second best",
        ),
        pytest.param(
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            "PartialObjectMetadataList",
            id="metadata only",
        ),
        pytest.param(
            "application/json;as=Poem,application/json", "ConfigMapList", id="an unknown shape"
        ),
    ],
)
async def test_a_list_in_the_shape_that_is_asked_for(plane: Plane, accept: str, kind: str) -> None:
    await plane.call("POST", CONFIGS, config("mare", data={"chest": "treasure"}))

    answer = await plane.call("GET", CONFIGS, accept=accept)

    assert answer.body["kind"] == kind
    assert ("treasure" in json.dumps(answer.body)) is (kind == "ConfigMapList")


async def test_what_nobody_can_serve_is_not_acceptable(plane: Plane) -> None:
    assert (await plane.call("GET", CONFIGS, accept="text/html")).status == 406


@pytest.mark.parametrize(
    ("path", "accept", "content_type"),
    [
        pytest.param("/healthz", "*/*", "text/plain", id="health"),
        pytest.param(CONFIGS, "application/json", "application/json", id="objects"),
        pytest.param("/apis", "application/json", "application/json", id="plain discovery"),
        pytest.param(
            "/apis",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            id="aggregated discovery",
        ),
    ],
)
async def test_content_types(plane: Plane, path: str, accept: str, content_type: str) -> None:
    request = Request("GET", path, accept=accept)
    answer = await plane.wire.send(request, timeout_s=1)

    assert content_type_of(request, answer) == content_type


async def test_a_deletion_answers_with_what_became_of_the_object(plane: Plane) -> None:
    held = config("held")
    held["metadata"]["finalizers"] = ["a.io/a"]
    for obj in (config("free"), held):
        await plane.call("POST", CONFIGS, obj)
    await plane.call("POST", f"{HERD}/pods", pod("p"))

    assert (await plane.call("DELETE", f"{CONFIGS}/free")).body["status"] == "Success"
    assert (await plane.call("DELETE", f"{CONFIGS}/held")).body["kind"] == "ConfigMap"
    assert (await plane.call("DELETE", f"{HERD}/pods/p")).body["kind"] == "Pod"


@pytest.mark.parametrize(
    ("query", "body", "status"),
    [
        pytest.param({"propagationPolicy": "Nope"}, None, 422, id="an unknown cascade"),
        pytest.param(
            {}, {"propagationPolicy": "Orphan", "orphanDependents": True}, 400, id="two cascades"
        ),
        pytest.param({"gracePeriodSeconds": "x"}, None, 400, id="a grace that is no number"),
        pytest.param({"dryRun": "Maybe"}, None, 422, id="half a dry run"),
    ],
)
async def test_deletions_that_make_no_sense(
    plane: Plane,
    query: dict[str, str],
    body: Any,  # noqa: ANN401 - JSON
    status: int,
) -> None:
    await plane.call("POST", CONFIGS, config("mare"))

    assert (await plane.call("DELETE", f"{CONFIGS}/mare", body, query=query)).status == status
    assert (await plane.call("GET", f"{CONFIGS}/mare")).status == 200


# --- Streams -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "streams"),
    [
        pytest.param(Request("GET", CONFIGS, (("watch", "true"),)), True, id="a watch"),
        pytest.param(Request("GET", CONFIGS, (("watch", ""),)), True, id="a watch by name only"),
        pytest.param(Request("GET", CONFIGS, (("watch", "false"),)), False, id="no watch"),
        pytest.param(Request("GET", f"{HERD}/pods/a/log"), True, id="a log"),
        pytest.param(Request("GET", f"{CONFIGS}/log"), False, id="an object called log"),
        pytest.param(Request("POST", CONFIGS, (("watch", "true"),)), False, id="a post"),
    ],
)
def test_which_answers_go_on(request_: Request, *, streams: bool) -> None:
    assert is_stream(request_) is streams


async def test_a_watch_ends_when_its_client_leaves(plane: Plane) -> None:
    watch = Request("GET", CONFIGS, (("watch", "1"), ("resourceVersion", "3")))
    async with plane.wire.stream(watch, connect_timeout_s=1, idle_timeout_s=1) as stream:
        chunks = stream.chunks()
        await plane.call("POST", CONFIGS, config("mare"))
        event = json.loads(await anext(chunks))
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "mare")

    async with asyncio.timeout(1):
        assert [chunk async for chunk in chunks] == []


@pytest.mark.parametrize(
    ("query", "status"),
    [
        pytest.param({"resourceVersion": "x"}, 400, id="a version that is no number"),
        pytest.param({"labelSelector": "a=b=c"}, 400, id="a selector that makes no sense"),
        pytest.param({"sendInitialEvents": "true"}, 422, id="a streaming list of any age"),
        pytest.param({"resourceVersionMatch": "Exact"}, 422, id="a match without a list"),
        pytest.param(
            {
                "sendInitialEvents": "true",
                "resourceVersionMatch": "NotOlderThan",
                "resourceVersion": "99",
            },
            504,
            id="a streaming list from the future",
        ),
    ],
)
async def test_watches_that_are_refused(plane: Plane, query: dict[str, str], status: int) -> None:
    answer = await plane.call("GET", CONFIGS, query={"watch": "1", **query})

    assert answer.status == status


async def test_a_table_can_be_watched(plane: Plane) -> None:
    await plane.call("POST", CONFIGS, config("mare"))
    request = Request(
        "GET",
        CONFIGS,
        (("watch", "1"), ("timeoutSeconds", "1")),
        accept="application/json;as=Table;v=v1;g=meta.k8s.io",
    )
    async with plane.wire.stream(request, connect_timeout_s=1, idle_timeout_s=1) as stream:
        event = json.loads(await anext(stream.chunks()))

    assert (event["type"], event["object"]["kind"]) == ("ADDED", "Table")
    assert event["object"]["rows"][0]["cells"][0] == "mare"


# --- Durable -------------------------------------------------------------------------------------------------------


async def test_a_full_disk_is_said_to_the_writer_and_forgotten(tmp_path: Any) -> None:  # noqa: ANN401 - a Path
    journal = Journal(tmp_path / "data")
    plane = await Plane(Store(journal)).settle_in()
    ((pages,),) = journal._db.execute("PRAGMA page_count")  # noqa: SLF001 - a disk cannot be filled from outside
    journal._db.execute(f"PRAGMA max_page_count = {pages}")  # noqa: SLF001 - likewise
    large = config("mare", data={"x": "y" * 50_000})

    refused = await plane.call("POST", CONFIGS, large)
    journal._db.execute("PRAGMA max_page_count = 100000")  # noqa: SLF001 - likewise
    accepted = await plane.call("POST", CONFIGS, large)

    assert refused.status == 500
    assert "could not store 1 changes" in refused.message
    assert accepted.status == 201
    await plane.store.close()


async def test_a_deadline_that_passes_is_an_error_of_the_port(tmp_path: Any) -> None:  # noqa: ANN401 - a Path
    plane = await Plane(Store(Journal(tmp_path / "data"))).settle_in()
    request = Request("POST", CONFIGS, body=json.dumps(config("mare")).encode())

    with pytest.raises(TimedOut):
        await plane.wire.send(request, timeout_s=0)

    await plane.store.close()


def test_a_refusal_says_when_to_come_back() -> None:

    answer = refused(StatusError(504, "Timeout", "later", retryAfterSeconds=1))

    assert answer == Response(504, answer.body, 1.0)
