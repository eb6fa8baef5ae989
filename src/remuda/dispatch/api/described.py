"""
OpenAPI of the routes that FastAPI does not read: a runner's poll, and the forge's messages.

They are plain routes because they look at the connection or at the raw body themselves; the document holds them all the
same, so that whoever reads it or tests against it sees all that is served.
"""

from typing import Any, Final

from remuda.dispatch.api.problems import PROBLEM_TYPE, documented

_STRING: Final = {"type": "string"}


def _answers(*statuses: int) -> dict[str, Any]:
    return {str(status): answer for status, answer in documented(*statuses).items()}


_JOB: Final = {
    "type": "object",
    "required": ["job_id", "owner", "kind", "runner_name", "deadline"],
    "properties": {
        "job_id": _STRING,
        "owner": {**_STRING, "description": "The tenant whose job it is"},
        "kind": {**_STRING, "enum": ["github", "local"]},
        "encoded_jit_config": {**_STRING, "description": "A secret: for the forge's runner only"},
        "script": {**_STRING, "description": "What a local job runs"},
        "env": {
            "type": "object",
            "additionalProperties": _STRING,
            "description": "The environment of a local job",
        },
        "runner_name": _STRING,
        "deadline": {
            "anyOf": [{**_STRING, "format": "date-time"}, {"type": "null"}],
            "description": "When the job is ended, if it is still running then",
        },
    },
}

_LEAVE: Final = {
    "allOf": [
        {"$ref": "#/components/schemas/ProblemBody"},
        {"type": "object", "required": ["reason"], "properties": {"reason": _STRING}},
    ]
}

_POLL: Final = {
    "operationId": "poll_for_job",
    "tags": ["machines"],
    "summary": "Ask for a job",
    "description": "A runner's long poll. It is held open for as long as `Prefer: wait=SECONDS` says, at most 30.",
    "security": [{"serviceAccount": []}],
    "parameters": [
        {
            "name": "Prefer",
            "in": "header",
            "required": False,
            "description": "How long to wait for a job, such as `wait=25`",
            "schema": _STRING,
        }
    ],
    "responses": {
        "200": {
            "description": "This job is the runner's, and no other's",
            "content": {"application/json": {"schema": _JOB}},
        },
        "204": {"description": "None yet: ask again at once"},
        **_answers(400, 401, 403, 408, 409, 410, 413, 429),
        "410": {
            "description": "The runner is to end with exit code 0: another takes its place",
            "content": {PROBLEM_TYPE: {"schema": _LEAVE}},
        },
    },
}

_WEBHOOK: Final = {
    "operationId": "take_github_webhook",
    "tags": ["machines"],
    "summary": "Take in a message of GitHub",
    "description": "Answered with 200 once the message is durable. The signature is over the raw body.",
    "security": [],
    "parameters": [
        {"name": name, "in": "header", "required": True, "description": says, "schema": _STRING}
        for name, says in (
            ("X-Hub-Signature-256", "HMAC-SHA256 of the raw body, as GitHub writes it"),
            ("X-GitHub-Event", "The kind of the message"),
            ("X-GitHub-Delivery", "The GUID of the message; one that is known changes nothing"),
        )
    ],
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object"}}},
    },
    "responses": {
        "200": {"description": "It is kept, or it was before"},
        **_answers(400, 401, 403, 408, 413),
    },
}

PLAIN_OPERATIONS: Final[dict[str, dict[str, Any]]] = {
    "/api/v1/dispatch": {"post": _POLL},
    "/webhooks/github": {"post": _WEBHOOK},
}
