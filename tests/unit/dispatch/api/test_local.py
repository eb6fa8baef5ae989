"""Local jobs over HTTP: posting, cancelling, logs that are followed, and what runners say."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

from tests.support.api import api_story
from tests.support.asgi import Sent, streaming

if TYPE_CHECKING:
    from tests.support.api import Office
    from tests.support.asgi import Answer

POST = {"pool": "linux", "script": "echo hello"}
CANARY = "canary-4711-secret"


async def post(office: Office, **changes: Any) -> Answer:  # noqa: ANN401 - a request
    headers = changes.pop("headers", {})
    return await office.call(
        "POST", "/api/v1/jobs", "operate", body={**POST, **changes}, headers=headers
    )


async def posted(office: Office, **changes: Any) -> str:  # noqa: ANN401 - a request
    answer = await post(office, **changes)
    assert answer.status == 201, answer.body
    return str(answer.json()["id"])


async def a_running_job(office: Office) -> str:
    """Post a job and hand it to the Pod linux-a, whose key is in hand."""
    await office.add_pool()
    pod = await office.add_pod("linux-a")
    await office.account("linux-a", pod=pod)
    job_id = await posted(office)
    await office.run_on("linux-a", runner="r-a")
    return job_id


async def says(office: Office, body: Any, *, pod: str = "linux-a", key: str = "linux-a") -> Answer:  # noqa: ANN401 - a body
    return await office.call("POST", f"/api/v1/runners/{pod}/telemetry", key, body=body)


def a_log(offset: int, data: bytes) -> dict[str, Any]:
    return {"log": {"offset": offset, "data": base64.b64encode(data).decode()}}


STARTED = {"started_at": "2026-01-01T00:00:01Z"}


@api_story
async def test_a_job_is_posted_and_found(office: Office) -> None:
    await office.add_pool()
    answer = await post(office, name="hello", env={"A": "1"}, timeout_s=60)

    assert answer.status == 201
    body = answer.json()
    assert answer.headers["location"] == f"/api/v1/jobs/{body['id']}"
    assert (body["pool"], body["state"], body["conclusion"]) == ("linux", "queued", "")
    assert "/" not in body["id"]
    assert (await office.get(f"/api/v1/jobs/{body['id']}"))["id"] == body["id"]


@api_story
async def test_a_command_is_run_as_it_is(office: Office) -> None:
    await office.add_pool()
    job_id = await posted(office, script=None, command=["printf", "%s\n", "it's; rm -rf /"])

    kept = await office.dispatch.ports.local_jobs.get(job_id)
    assert kept is not None
    assert kept.script == "exec printf '%s\n' 'it'\"'\"'s; rm -rf /'\n"


@api_story
async def test_a_repeated_request_is_answered_with_the_job_of_then(office: Office) -> None:
    await office.add_pool()
    headers = {"idempotency-key": "k-1"}
    first, again = [await post(office, headers=headers) for _ in range(2)]
    other = await post(office, headers=headers, script="echo other")

    assert (first.status, again.status, other.status) == (201, 200, 409)
    assert first.json()["id"] == again.json()["id"]
    assert other.headers["content-type"] == "application/problem+json"


@api_story
async def test_an_unknown_pool_is_refused_with_the_names_that_exist(office: Office) -> None:
    await office.add_pool("linux")
    await office.add_pool("large")
    answer = await post(office, pool="windows")

    assert answer.status == 422
    assert "there is no pool windows; there is large, linux" in answer.json()["why"]


@api_story
async def test_only_who_may_operate_posts_and_cancels(office: Office) -> None:
    for path in ("/api/v1/jobs", "/api/v1/jobs/local-1/cancel"):
        for role, status in (("", 401), ("read", 403), ("unknown", 401), ("rubbish", 401)):
            assert (await office.call("POST", path, role, body=POST)).status == status


@api_story
async def test_no_name_of_a_token_passes_for_a_part_of_dispatch_in_the_audit(
    office: Office,
) -> None:
    """Anybody may call a token ``webhook`` or ``sweep``."""
    await office.add_pool()
    job_id = await posted(office)
    await office.call("POST", f"/api/v1/jobs/{job_id}/cancel", "operate")
    entries = (await office.get("/api/v1/audit", job_id=job_id))["entries"]
    assert [(e["what"], e["who"]) for e in entries] == [
        ("enqueued", "api:a-operate"),
        ("completed", "api:a-operate"),
    ]


@api_story
async def test_a_body_without_its_content_type_is_told_what_it_lacks(office: Office) -> None:
    await office.add_pool()
    answer = await office.call(
        "POST", "/api/v1/jobs", "operate", body=POST, headers={"content-type": "text/plain"}
    )
    assert answer.status == 422
    assert "Content-Type: application/json" in answer.json()["why"]


@api_story
async def test_what_is_wrong_is_said_without_the_words_of_the_library(office: Office) -> None:
    answer = await post(office, pool=None)
    assert answer.json()["why"] == "body: say where to run it: either pool or labels"


BAD: dict[str, dict[str, Any]] = {
    "no place": {"pool": None},
    "two places": {"labels": ["fast"]},
    "an empty place": {"pool": ""},
    "no label": {"pool": None, "labels": []},
    "nothing to run": {"script": None},
    "an empty script": {"script": ""},
    "two things to run": {"command": ["true"]},
    "a NUL in the script": {"script": f"echo {CANARY}\x00"},
    "half a character": {"script": f"{CANARY}\ud800"},
    "a script that is too long": {"script": CANARY * 20_000},
    "a NUL in the command": {"script": None, "command": [CANARY, "\x00"]},
    "an empty command": {"script": None, "command": []},
    "a NUL in the environment": {"env": {"A": f"{CANARY}\x00"}},
    "a variable with a space": {"env": {"A B": CANARY}},
    "a variable with an equals sign": {"env": {"A=B": CANARY}},
    "a variable without a name": {"env": {"": CANARY}},
    "an environment that is too large": {"env": {"A": CANARY * 5_000}},
    "too many variables": {"env": {f"A{n}": "" for n in range(257)}},
    "a variable that is no text": {"env": {"A": 1}},
    "no time": {"timeout_s": 0},
    "too much time": {"timeout_s": 86_401},
    "endless time": {"timeout_s": 1e400},
    "a name on two lines": {"name": "a\nb"},
    "a name that is too long": {"name": "n" * 101},
    "something unknown": {"secret": CANARY},
}


@api_story
async def test_what_makes_no_sense_is_refused_without_being_repeated(office: Office) -> None:
    await office.add_pool()
    answers = {name: await post(office, **changes) for name, changes in BAD.items()}

    assert {name: a.status for name, a in answers.items()} == dict.fromkeys(BAD, 422)
    assert [name for name, a in answers.items() if CANARY in a.body.decode()] == []
    assert (await office.get("/api/v1/jobs"))["jobs"] == []


@api_story
async def test_a_key_that_cannot_be_one_is_refused(office: Office) -> None:
    await office.add_pool()
    for key in ("", "a b", "k" * 256, "ä"):
        assert (await post(office, headers={"idempotency-key": key})).status == 422


@api_story
async def test_a_waiting_job_is_cancelled_at_once_and_a_running_one_is_stopping(
    office: Office,
) -> None:
    job_id = await a_running_job(office)
    assert (await says(office, STARTED)).status == 204
    waiting = await posted(office)

    async def cancel(which: str) -> Any:  # noqa: ANN401 - JSON
        return (await office.call("POST", f"/api/v1/jobs/{which}/cancel", "operate")).json()

    assert (await cancel(waiting))["outcome"] == "cancelled"
    assert (await cancel(waiting))["outcome"] == "over"
    assert (await cancel(job_id))["outcome"] == "stopping"
    assert (await says(office, a_log(0, b"x"))).json() == {"stop": "the job was cancelled"}
    assert (await says(office, {"exit": {"code": 143}})).status == 204
    assert (await office.get(f"/api/v1/jobs/{job_id}"))["state"] == "cancelled"


@api_story
async def test_what_is_no_local_job_has_neither_log_nor_cancel_here(office: Office) -> None:
    for job_id, status in (("local-none", 404), ("github.com/4711", 409), ("x", 404)):
        cancelled = await office.call("POST", f"/api/v1/jobs/{job_id}/cancel", "operate")
        logs = await office.call("GET", f"/api/v1/jobs/{job_id}/logs")
        outcome = await office.call("GET", f"/api/v1/jobs/{job_id}/outcome")
        assert {cancelled.status, logs.status, outcome.status} == {status}


@api_story
async def test_a_job_runs_from_its_post_to_its_end_and_its_log_is_kept(office: Office) -> None:
    job_id = await a_running_job(office)
    path = f"/api/v1/jobs/{job_id}/logs"
    assert (await says(office, STARTED)).status == 204
    assert (await says(office, a_log(0, b"one\n"))).status == 204
    gap = await says(office, a_log(90, b"late\n"))
    assert (gap.status, gap.json()) == (200, {"log_offset": 4})
    running = await office.call("GET", path)
    assert (running.body, running.headers["remuda-job-over"]) == (b"one\n", "false")
    assert (await says(office, {**a_log(4, b"two\n"), "exit": {"code": 0}})).status == 204

    over = await office.call("GET", path, query={"offset": 4})
    assert (over.body, over.headers["remuda-job-over"]) == (b"two\n", "true")
    assert over.headers["content-type"].startswith("text/plain")
    found = await office.get(f"/api/v1/jobs/{job_id}")
    assert (found["state"], found["conclusion"]) == ("completed", "success")


@api_story
async def test_how_far_a_job_is_and_how_it_ended_is_said(office: Office) -> None:
    job_id = await a_running_job(office)
    path = f"/api/v1/jobs/{job_id}/outcome"
    waiting = await office.get(path)
    assert (waiting["over"], waiting["started_at"], waiting["exit_code"]) == (False, None, None)
    assert (await says(office, STARTED)).status == 204
    running = await office.get(path)
    assert (running["over"], running["pod"]) == (False, "linux-a")
    assert running["started_at"] is not None

    assert (await says(office, {"exit": {"code": 7, "reason": "it ended"}})).status == 204
    over = await office.get(path)
    assert (over["over"], over["conclusion"], over["exit_code"]) == (True, "failure", 7)
    assert (over["reason"], over["cancelled_at"]) == ("it ended", None)


@api_story
async def test_the_code_of_a_runner_that_died_is_not_taken_for_the_scripts_own(
    office: Office,
) -> None:
    job_id = await a_running_job(office)
    assert (await says(office, STARTED)).status == 204
    crashed = {"code": 1, "reason": "Its VM crashed", "reported": False}
    assert (await says(office, {"exit": crashed})).status == 204
    over = await office.get(f"/api/v1/jobs/{job_id}/outcome")
    assert (over["conclusion"], over["exit_code"]) == ("failure", None)
    assert over["reason"] == "Its VM crashed"


@api_story
async def test_a_log_is_followed_until_the_job_is_over(office: Office) -> None:
    job_id = await a_running_job(office)
    await says(office, {**STARTED, **a_log(0, b"one\n")})
    sent = Sent(
        "GET", f"/api/v1/jobs/{job_id}/logs", token=office.keys["read"], query={"follow": "true"}
    )
    async with streaming(office.app, sent) as stream:
        await asyncio.sleep(5)
        assert (stream.body, stream.ended) == (b"one\n", False)
        await says(office, a_log(4, b"two\n"))
        await asyncio.sleep(5)
        assert (stream.body, stream.ended) == (b"one\ntwo\n", False)
        await says(office, {**a_log(8, b"three\n"), "exit": {"code": 0}})
        await asyncio.sleep(5)
        assert (stream.body, stream.ended) == (b"one\ntwo\nthree\n", True)


@api_story
async def test_a_follower_that_goes_costs_nothing_from_then_on(office: Office) -> None:
    job_id = await a_running_job(office)
    await says(office, STARTED)
    local = office.dispatch.ports.local_jobs
    reads = 0
    read_log = local.read_log

    async def counted(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - passed on
        nonlocal reads
        reads += 1
        return await read_log(*given, **named)

    local.read_log = counted  # type: ignore[method-assign]
    sent = Sent(
        "GET", f"/api/v1/jobs/{job_id}/logs", token=office.keys["read"], query={"follow": "true"}
    )
    async with streaming(office.app, sent) as stream:
        await asyncio.sleep(10)
        assert reads >= 9
        stream.gone.set()
        await asyncio.sleep(0.1)
        seen = reads
        await asyncio.sleep(60)
    assert reads == seen


@api_story
async def test_more_followers_than_a_replica_has_room_for_are_asked_to_come_again(
    office: Office,
) -> None:
    job_id = await a_running_job(office)
    path = f"/api/v1/jobs/{job_id}/logs"
    sent = Sent("GET", path, token=office.keys["read"], query={"follow": "true"})
    async with asyncio.TaskGroup() as group, streaming(office.app, sent) as first:
        streams = [first]

        async def follow() -> None:
            async with streaming(office.app, sent) as stream:
                streams.append(stream)
                await leave.wait()

        leave = asyncio.Event()
        for _ in range(199):
            group.create_task(follow(), name="follower")
        await asyncio.sleep(3)
        assert {stream.status for stream in streams} == {200}
        refused = await office.call("GET", path, query={"follow": "true"})
        assert (refused.status, refused.headers["retry-after"]) == (429, "5")
        assert (await office.call("GET", path)).status == 200
        leave.set()
        first.gone.set()
        await asyncio.sleep(3)
        async with streaming(office.app, sent) as again:
            await asyncio.sleep(1)
            assert again.status == 200


@api_story
async def test_a_runner_speaks_for_its_own_pod_only(office: Office) -> None:
    job_id = await a_running_job(office)
    other = await office.add_pod("linux-b")
    await office.account("linux-b", pod=other)
    end = {"exit": {"code": 0}}

    assert (await says(office, end, pod="linux-a", key="linux-b")).status == 403
    assert (await says(office, end, pod="linux-a", key="")).status == 401
    assert (await says(office, end, pod="linux-a", key="operate")).status == 401
    assert (await says(office, end, pod="linux-a", key="remuda-controller")).status in {401, 403}
    own = await says(office, end, pod="linux-b", key="linux-b")
    assert own.json() == {"stop": "this Pod holds no job"}
    assert (await office.get(f"/api/v1/jobs/{job_id}"))["state"] == "running"


BAD_REPORTS: dict[str, Any] = {
    "a negative offset": {"log": {"offset": -1, "data": ""}},
    "an endless offset": {"log": {"offset": 2**41, "data": ""}},
    "no base64": {"log": {"offset": 0, "data": "???"}},
    "base64 with an umlaut": {"log": {"offset": 0, "data": "ä"}},
    "a piece that is too large": {"log": {"offset": 0, "data": "A" * 1_500_000}},
    "an endless code": {"exit": {"code": 2**40}},
    "a code that is no number": {"exit": {"code": "x"}},
    "the first day": {"exit": {"code": 0, "finished_at": "0001-01-01T00:00:00+14:00"}},
    "a time without a zone": {"started_at": "2026-01-01T00:00:00"},
    "too many vitals": {"vitals": {str(n): n for n in range(65)}},
    "a list": [],
    "nothing": None,
}


@api_story
async def test_a_report_that_makes_no_sense_is_refused(office: Office) -> None:
    await a_running_job(office)
    answers = {name: (await says(office, body)).status for name, body in BAD_REPORTS.items()}

    assert answers == dict.fromkeys(BAD_REPORTS, 422)


@api_story
async def test_a_reason_is_shown_on_one_line_without_what_chokes(office: Office) -> None:
    job_id = await a_running_job(office)
    reason = "killed\x00by\n\x1b[31mOOM" + "x" * 1000
    assert (await says(office, {"exit": {"code": 137, "reason": reason}})).status == 204

    kept = await office.dispatch.ports.local_jobs.get(job_id)
    assert kept is not None
    assert kept.end is not None
    assert kept.end.reason.startswith("killed by  [31mOOMx")
    assert len(kept.end.reason) <= 300


@api_story
async def test_what_a_newer_runner_says_more_is_passed_over(office: Office) -> None:
    await a_running_job(office)
    assert (await says(office, {"vitals": {"cpu": 0.5}, "mood": "good"})).status == 204
