"""
GitHub's own descriptions as judges: its OpenAPI for what we ask and what our own GitHub answers, and its examples.

They are fetched by npm (``tools/npm/references.sh``) and are not part of this repository.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from referencing import Registry
from referencing.jsonschema import DRAFT202012

if TYPE_CHECKING:
    from tests.support.github_server import Seen

ROOT: Final = Path(__file__).resolve().parents[2]
_DOCUMENT: Final = "urn:github"
_ERROR: Final = "/components/schemas/basic-error"
_GENERAL: Final = frozenset({301, 304, 401, 403, 404})
"""What any operation may answer, though few of GitHub's say so."""

_INSTEAD: Final = {
    # The package writes the list's items out and makes "a user or an enterprise" one that is both at once.
    ("/paths/~1app~1installations/get", 200): {
        "type": "array",
        "items": {"$ref": f"{_DOCUMENT}#/components/schemas/installation"},
    }
}


def references() -> Path:
    """Return the folder of the references, fetching them if need be; skip where that cannot be, in CI fail."""
    answer = subprocess.run(  # noqa: S603 - our own script
        [ROOT / "tools/npm/references.sh"],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode == 0:
        return Path(answer.stdout.strip())
    reason = f"GitHub's own descriptions are not here: {answer.stderr.strip()}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def workflow_job_examples(folder: Path) -> list[dict[str, Any]]:
    path = folder / "@octokit/webhooks-examples/api.github.com/index.json"
    events = json.loads(path.read_text())
    examples: list[dict[str, Any]] = next(
        e["examples"] for e in events if e["name"] == "workflow_job"
    )
    return examples


@dataclass(slots=True)
class Judge:
    """Holds each request and each answer against the OpenAPI: ``faults`` is what was wrong."""

    document: dict[str, Any]
    faults: list[str] = field(default_factory=list)
    operations: set[str] = field(default_factory=set)
    _judged: set[tuple[str, int, bytes]] = field(default_factory=set)
    _patterns: list[tuple[str, re.Pattern[str]]] = field(default_factory=list)
    _registry: Registry[Any] = field(default_factory=Registry)

    def __post_init__(self) -> None:
        whole = DRAFT202012.create_resource(self.document)
        self._patterns = [
            (template, re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template)))
            for template in self.document["paths"]
        ]
        self._registry = Registry().with_resource(_DOCUMENT, whole)

    @classmethod
    def of(cls, folder: Path, name: str) -> Judge:
        path = folder / f"@octokit/openapi/generated/{name}.json"
        return cls(_without_nullable(json.loads(path.read_text())))

    def watch(self, seen: Seen) -> None:
        where = f"{seen.method} {seen.path}"
        template, parts = self._template(seen.method, seen.path)
        if not template:
            self.faults.append(f"{where}: GitHub has no such operation")
            return
        self.operations.add(f"{seen.method} {template}")
        operation = self.document["paths"][template][seen.method.lower()]
        pointer = f"/paths/{_escaped(template)}/{seen.method.lower()}"
        self.faults += [f"{where}: {fault}" for fault in self._parameters(operation, seen, parts)]
        self.faults += [f"{where}: {fault}" for fault in self._body(operation, pointer, seen)]
        answer = (pointer, seen.status, seen.answer)
        if not seen.by_fault and answer not in self._judged:
            self._judged.add(answer)
            self.faults += [f"{where}: {fault}" for fault in self._answer(operation, pointer, seen)]

    def _template(self, method: str, path: str) -> tuple[str, dict[str, str]]:
        """Return the path of the OpenAPI that this one is; a literal part is a better fit than a variable one."""
        fits = [
            (template.count("{"), template, {k: unquote(v) for k, v in found.groupdict().items()})
            for template, pattern in self._patterns
            if (found := pattern.fullmatch(path))
            and method.lower() in self.document["paths"][template]
        ]
        _, template, parts = min(fits, default=(0, "", {}), key=lambda fit: fit[0])
        return template, parts

    def _parameters(
        self, operation: dict[str, Any], seen: Seen, parts: dict[str, str]
    ) -> list[str]:
        known = [self._followed(p) for p in operation.get("parameters", [])]
        query = {p["name"]: p["schema"] for p in known if p["in"] == "query"}
        paths = {p["name"]: p["schema"] for p in known if p["in"] == "path"}
        faults = [f"unknown parameter {name}" for name in seen.query if name not in query]
        faults += [
            f"parameter {p['name']} is missing"
            for p in known
            if p["in"] == "query" and p.get("required") and p["name"] not in seen.query
        ]
        for name, value in (*seen.query.items(), *parts.items()):
            schema = query.get(name) or paths.get(name)
            if schema is not None:
                faults += self._wrong(_typed(value, schema), schema, name)
        return faults

    def _body(self, operation: dict[str, Any], pointer: str, seen: Seen) -> list[str]:
        described = operation.get("requestBody")
        if not seen.body:
            return ["the body is missing"] if described and described.get("required") else []
        if not described:
            return ["a body where none belongs"]
        schema = {"$ref": f"{_DOCUMENT}#{pointer}/requestBody/content/application~1json/schema"}
        body = json.loads(seen.body)
        known = described["content"]["application/json"]["schema"].get("properties", {})
        unknown = [f"unknown field {name}" for name in body if name not in known]
        return unknown + self._wrong(body, schema, "body")

    def _answer(self, operation: dict[str, Any], pointer: str, seen: Seen) -> list[str]:
        described = operation["responses"].get(str(seen.status))
        if described is None:
            if seen.status not in _GENERAL:
                return [f"the answer {seen.status} is not described"]
            return self._wrong(
                json.loads(seen.answer or b"{}"), {"$ref": f"{_DOCUMENT}#{_ERROR}"}, ""
            )
        content = self._followed(described).get("content", {}).get("application/json")
        if content is None:
            return ["an answer with a body where none belongs"] if seen.answer else []
        target = described.get("$ref", f"#{pointer}/responses/{seen.status}").removeprefix("#")
        schema = {"$ref": f"{_DOCUMENT}#{target}/content/application~1json/schema"}
        instead = _INSTEAD.get((pointer, seen.status), schema)
        return self._wrong(json.loads(seen.answer), instead, "answer")

    def _wrong(self, value: object, schema: dict[str, Any], where: str) -> list[str]:
        found = Draft202012Validator(schema, registry=self._registry).iter_errors(value)
        return [f"{where}{error.json_path}: {error.message[:200]}" for error in found]

    def _followed(self, value: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in value:
            place: Any = self.document
            for key in value["$ref"].removeprefix("#/").split("/"):
                place = place[key.replace("~1", "/").replace("~0", "~")]
            value = place
        return value


def _without_nullable(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Say OpenAPI 3.0's ``nullable`` as JSON Schema says it."""
    if isinstance(value, list):
        return [_without_nullable(item) for item in value]
    if not isinstance(value, dict):
        return value
    rest = {key: _without_nullable(item) for key, item in value.items()}
    if rest.get("nullable") is True:
        del rest["nullable"]
        return {"anyOf": [rest, {"type": "null"}]}
    return rest


def _typed(value: str, schema: dict[str, Any]) -> object:
    match schema.get("type"):
        case "integer":
            return int(value) if re.fullmatch(r"-?\d+", value) else value
        case "boolean":
            return {"true": True, "false": False}.get(value, value)
        case _:
            return value


def _escaped(template: str) -> str:
    """Write a path as one step of a JSON pointer in a URI's fragment."""
    return template.replace("~", "~0").replace("/", "~1").replace("{", "%7B").replace("}", "%7D")
