"""The API's description: complete, true of what is served, and fresh in the docs."""

from __future__ import annotations

from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from remuda.dispatch.api.document import document, openapi_json, reference_markdown
from tests.support.api import Office, api_story

ROOT = Path(__file__).resolve().parents[4]
DOCUMENT = document()
OPERATIONS = [
    pytest.param(path, method, operation, id=f"{method.upper()} {path}")
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
]
OPEN = {"/healthz", "/readyz", "/metrics", "/webhooks/github"}
"""What needs no token: the forge signs what it sends, and the rest tells nothing secret."""


@pytest.mark.parametrize(
    ("file", "text"),
    [("openapi.json", openapi_json), ("http-api.md", reference_markdown)],
)
def test_the_reference_is_fresh(file: str, text: Any) -> None:  # noqa: ANN401 - a generator
    assert (ROOT / "docs/reference" / file).read_text() == text(), "run: make generate"


@api_story
async def test_the_document_is_that_of_a_running_server(office: Office) -> None:
    assert await office.get("/openapi.json", "") == DOCUMENT


@api_story
async def test_every_route_that_is_served_is_in_the_document(office: Office) -> None:
    served = {
        (getattr(route, "path_format", route.path), method.lower())  # type: ignore[attr-defined]
        for route in office.app.routes
        for method in getattr(route, "methods", None) or ()
        if method != "HEAD"
    }
    described = {(path, m) for path, ops in DOCUMENT["paths"].items() for m in ops}

    assert served - described == {("/openapi.json", "get")}
    assert described <= served


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS)
def test_every_operation_is_described(path: str, method: str, operation: dict[str, Any]) -> None:
    del method
    assert operation["summary"]
    assert len(operation["tags"]) == 1
    assert operation["tags"][0] in {tag["name"] for tag in DOCUMENT["tags"]}
    answers = operation["responses"]
    assert {"500", "503"} <= set(answers)
    for status, answer in answers.items():
        assert answer["description"]
        assert answer["description"] != "Successful Response"
        if int(status) >= 400:
            assert set(answer["content"]) == {"application/problem+json"}, status
    if path not in OPEN:
        assert {"401", "403"} <= set(answers)
        assert operation["security"], path
    if "requestBody" in operation or any(
        p["in"] == "path" for p in operation.get("parameters", [])
    ):
        assert {"422", "400"} & set(answers)


def test_names_of_operations_are_unique() -> None:
    names = [parameters.values[2]["operationId"] for parameters in OPERATIONS]  # type: ignore[index]

    assert sorted(names) == sorted(set(names))
    assert all("api_v1" not in str(name) for name in names)


@pytest.mark.parametrize("name", sorted(DOCUMENT["components"]["schemas"]))
def test_every_schema_is_one(name: str) -> None:
    Draft202012Validator.check_schema(DOCUMENT["components"]["schemas"][name])


def test_nothing_refers_to_what_is_not_there() -> None:
    text = openapi_json()
    wanted = {part.split('"', 1)[0] for part in text.split("#/components/schemas/")[1:]}

    assert wanted <= set(DOCUMENT["components"]["schemas"])


@api_story
async def test_no_route_blocks_the_loop(office: Office) -> None:
    """A plain function would be run in a thread: none of ours is one."""
    for route in office.app.routes:
        if isinstance(route, APIRoute):
            assert iscoroutinefunction(route.endpoint), route.path


@api_story
async def test_a_method_that_is_not_described_is_refused(office: Office) -> None:
    every = {"get", "post", "put", "patch", "delete", "trace"}
    for path, operations in DOCUMENT["paths"].items():
        swallowed = {"get"} if path.startswith("/api/v1/jobs/") else set()
        for method in sorted(every - set(operations) - swallowed):
            answer = await office.call(method.upper(), path.replace("{", "").replace("}", ""), "")
            assert answer.status == 405, (method, path)
            assert answer.headers["content-type"] == "application/problem+json"
            assert {m.lower() for m in answer.headers["allow"].split(", ")} <= {*operations, "head"}
