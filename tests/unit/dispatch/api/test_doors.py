"""Who may call what: every route of people and machines against every kind of caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import structlog
from starlette.routing import Route

from remuda.dispatch import tokens
from remuda.dispatch.api.auth import KnownFirst
from remuda.ports.api_tokens import Role
from remuda.ports.database import DatabaseUnavailable
from tests.support.api import api_story
from tests.support.asgi import Sent, call

if TYPE_CHECKING:
    from remuda.dispatch.who import ServiceIdentity
    from tests.support.api import Office

LIMIT = {"tenant": "acme", "os": "linux", "vcpus": 4, "memory_mib": 8192}
ENDED = {"ended_at": "2026-01-01T00:00:00Z", "exit_code": 0, "reason": "Completed"}
PEOPLE = {"read": 200, "operate": 200, "remuda-controller": 401, "prometheus": 401, "p1": 401}
OPERATORS = {**PEOPLE, "read": 403}
STRANGERS = {"": 401, "unknown": 401, "rubbish": 401}

ROUTES: dict[tuple[str, str], dict[str, int]] = {
    ("GET", "/api/v1/jobs"): PEOPLE,
    ("GET", "/api/v1/jobs/forge/1"): PEOPLE,
    ("GET", "/api/v1/jobs/forge/1/explain"): PEOPLE,
    ("GET", "/api/v1/runners"): PEOPLE,
    ("GET", "/api/v1/runners/p1"): PEOPLE,
    ("GET", "/api/v1/runners/p1/explain"): PEOPLE,
    ("GET", "/api/v1/claims"): PEOPLE,
    ("GET", "/api/v1/pools"): PEOPLE,
    ("GET", "/api/v1/pools/linux"): PEOPLE,
    ("GET", "/api/v1/pools/linux/explain"): PEOPLE,
    ("GET", "/api/v1/explain/labels?label=fast"): PEOPLE,
    ("GET", "/api/v1/hosts"): PEOPLE,
    ("GET", "/api/v1/limits"): PEOPLE,
    ("GET", "/api/v1/audit"): PEOPLE,
    ("POST", "/api/v1/limits"): OPERATORS,
    ("GET", "/api/v1/pools/linux/signals"): {
        "read": 200,
        "operate": 200,
        "remuda-controller": 200,
        "prometheus": 200,
        "p1": 403,
        "other-audience": 401,
    },
    ("POST", "/api/v1/runners/p2/stopped"): {
        "read": 401,
        "operate": 401,
        "remuda-controller": 204,
        "prometheus": 403,
        "p1": 403,
        "other-audience": 401,
    },
}


@api_story
async def test_each_route_lets_in_whom_it_should_and_nobody_else(office: Office) -> None:
    await office.add_pool("linux")
    pod = await office.add_pod("p1")
    await office.account("p1", pod=pod)
    await office.account("other-audience", audience="somebody-else")
    await office.queue(1)
    for (method, path), callers in ROUTES.items():
        bare, _, query = path.partition("?")
        asked = dict([query.split("=")]) if query else {}
        body = LIMIT if "limits" in path else ENDED if "stopped" in path else None
        sent = {"query": asked, "body": body if method == "POST" else None}
        got = {
            role: (await office.call(method, bare, role, **sent)).status
            for role in {**callers, **STRANGERS}
        }
        assert got == {**callers, **STRANGERS}, path


@api_story
async def test_nothing_is_read_of_what_a_stranger_sends(office: Office) -> None:
    """Reading four megabytes of JSON takes as long as handing out a hundred jobs."""
    taking = ("jobs", "limits", "runners/p2/stopped", "runners/p2/telemetry")
    sent = {"body": b"[" * 100}
    for path in taking:
        for stranger in STRANGERS:
            answer = await office.call("POST", f"/api/v1/{path}", stranger, **sent)
            assert answer.status == 401, (path, stranger, answer.body)
            assert answer.headers["connection"] == "close", "else the rest would be read after all"
            assert answer.headers["www-authenticate"] == "Bearer"
        assert (await office.call("POST", f"/api/v1/{path}", "operate", **sent)).status == 400
    assert (await office.call("POST", "/api/v1/nothing", "", **sent)).status == 404
    assert (await office.call("POST", "/api/v1/pools", "", **sent)).status == 405


class Away:
    """A doorman whose database is away."""

    async def person(self, token: str) -> NoReturn:
        raise DatabaseUnavailable("No connection", why=f"host of {token}", fix="Wait")

    service = person

    def is_controller(self, _: ServiceIdentity) -> bool:
        return False


async def test_nobody_is_taken_for_a_stranger_while_the_database_is_away() -> None:
    async def served(*_: object) -> NoReturn:
        raise AssertionError("nobody knows who asks")

    taking = [Route("/limits", served, methods=["POST"])]
    sent = Sent("POST", "/limits", token="rmd_secret", body={})  # noqa: S106 - made up
    answer = await call(KnownFirst(served, Away(), taking), sent)
    assert (answer.status, answer.headers["retry-after"]) == (503, "2")
    assert b"secret" not in answer.body


@api_story
async def test_who_is_not_known_is_told_how_to_be(office: Office) -> None:
    answer = await office.call("GET", "/api/v1/jobs", "")

    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "Authorization" in answer.json()["fix"]


@api_story
async def test_a_token_is_taken_from_its_header_only(office: Office) -> None:
    key = office.keys["read"]
    for headers in (
        {"authorization": f"Basic {key}"},
        {"authorization": key},
        {"authorization": f"Bearer {key} {key}"},
        {"authorization": "Bearer "},
        {"authorization": f"Bearer {'x' * 9000}"},
        {"authorization": "Bearer \u00fc"},
        {"cookie": f"token={key}"},
    ):
        answer = await office.call("GET", "/api/v1/jobs", "", headers=headers)
        assert answer.status == 401, headers
    asked = {"token": key, "access_token": key}
    assert (await office.call("GET", "/api/v1/jobs", "", query=asked)).status == 401
    low = {"authorization": f"bearer {key}"}
    assert (await office.call("GET", "/api/v1/jobs", "", headers=low)).status == 200


@api_story
async def test_a_token_that_is_revoked_opens_nothing_within_a_minute(office: Office) -> None:
    assert (await office.call("GET", "/api/v1/jobs")).status == 200
    await tokens.revoke(office.dispatch.ports.tokens, "a-read")

    await office.clock.sleep(61)

    assert (await office.call("GET", "/api/v1/jobs")).status == 401


@api_story
async def test_no_token_is_logged(office: Office) -> None:
    with structlog.testing.capture_logs() as lines:
        for role in office.keys:
            await office.call("GET", "/api/v1/jobs", role)

    said = repr(lines)
    assert said
    assert not [role for role, key in office.keys.items() if key in said]


@api_story
async def test_rubbish_costs_the_database_nothing(office: Office) -> None:
    asked: list[bytes] = []
    find = office.dispatch.ports.tokens.find

    async def counted(digest: bytes) -> object:
        asked.append(digest)
        return await find(digest)

    office.dispatch.ports.tokens.find = counted  # type: ignore[method-assign,assignment]
    for number in range(50):
        office.keys["x"] = f"rmd_{number:043}000000"
        await office.call("GET", "/api/v1/jobs", "x")
    for _ in range(50):
        await office.call("GET", "/api/v1/jobs", "unknown")

    assert len(asked) == 1, "one token of the right form was looked up, once"


# --- Making tokens ----------------------------------------------------------------------------------------------------


@api_story
async def test_a_new_token_is_shown_once_and_kept_as_a_digest(office: Office) -> None:
    p = office.dispatch.ports
    made = await tokens.create(p.tokens, "ci.dash-board_1", Role.READ, ids=p.ids, clock=p.clock)

    assert tokens.is_token(made.text)
    assert made.text not in repr(made)
    assert tokens.matches(made.text, tokens.digest_of(made.text))
    assert not tokens.matches(made.text, tokens.digest_of(made.text[:-1]))
    kept = {token.name: token for token in await p.tokens.all()}
    assert kept["ci.dash-board_1"] == made.token
