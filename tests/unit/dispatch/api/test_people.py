"""What people and tools read and change: each route as a story, on a real replica with an imagined world."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from remuda.ports.jobs import JobEnd, Release, WarmRunner
from tests.support.api import a_condition, api_story

if TYPE_CHECKING:
    from typing import Any

    from tests.support.api import Office

JOBS = "/api/v1/jobs"


def ids(page: Any) -> list[str]:  # noqa: ANN401 - JSON
    return [job["id"] for job in page["jobs"]]


# --- Jobs -------------------------------------------------------------------------------------------------------------


@api_story
async def test_jobs_are_listed_newest_first_page_by_page(office: Office) -> None:
    for number in range(1, 6):
        await office.queue(number)
        await office.clock.sleep(1)

    first = await office.get(JOBS, limit=2)
    second = await office.get(JOBS, limit=2, cursor=first["next"])
    await office.queue(6)  # what comes between two pages moves nothing
    third = await office.get(JOBS, limit=2, cursor=second["next"])

    assert ids(first) + ids(second) + ids(third) == [f"forge/{n}" for n in (5, 4, 3, 2, 1)]
    assert third["next"] is None


@api_story
async def test_jobs_of_the_same_moment_are_not_lost_between_pages(office: Office) -> None:
    await office.queue(1, 2, 3, 4, 5)
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await office.get(JOBS, limit=2, **cursor)
        seen += ids(page)
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}

    assert seen == [f"forge/{n}" for n in (5, 4, 3, 2, 1)]


@api_story
async def test_jobs_are_filtered(office: Office) -> None:
    await office.add_pool("linux")
    await office.limit()
    await office.add_pod("p1")
    await office.queue(1)
    await office.run_on("p1")
    await office.queue(2, repository="acme/site")
    await office.queue(3, tenant="zoo", repository="zoo/app", pool="mac")

    assert ids(await office.get(JOBS, state="running")) == ["forge/1"]
    assert ids(await office.get(JOBS, state=["running", "queued"], tenant="acme")) == [
        "forge/2",
        "forge/1",
    ]
    assert ids(await office.get(JOBS, pool="mac")) == ["forge/3"]
    assert ids(await office.get(JOBS, repository="acme/site")) == ["forge/2"]
    assert ids(await office.get(JOBS, tenant="nobody")) == []


@api_story
async def test_what_cannot_be_a_filter_is_refused(office: Office) -> None:
    good = (await office.get(JOBS, limit=1))["next"] or "x"
    bad_cursor = base64.urlsafe_b64encode(b"0001-01-01T00:00:00+14:00 x").decode()
    for query in (
        {"state": "asleep"},
        {"limit": 0},
        {"limit": 1001},
        {"limit": "many"},
        {"pool": ""},
        {"tenant": "a\x00b"},
        {"repository": "x" * 301},
        {"cursor": "nonsense"},
        {"cursor": ""},
        {"cursor": bad_cursor},
        {"cursor": base64.urlsafe_b64encode(b"2026-01-01T00:00:00 x").decode()},
        {"cursor": base64.urlsafe_b64encode(b"2026-01-01T00:00:00+00:00 a\x00").decode()},
        {"cursor": "\u00fc"},
        {"cursor": good + "="},
    ):
        answer = await office.call("GET", JOBS, query=query)
        assert answer.status == 422, (query, answer.body)


@api_story
async def test_a_job_is_shown_by_an_id_with_a_slash(office: Office) -> None:
    await office.queue(1)

    job = await office.get(f"{JOBS}/forge/1")
    encoded = await office.get(f"{JOBS}/forge%2F1")

    assert job == encoded
    assert (job["id"], job["state"], job["queued_at"]) == (
        "forge/1",
        "queued",
        "2026-01-01T00:00:00Z",
    )


@api_story
async def test_a_job_that_is_not_known_says_where_to_look(office: Office) -> None:
    for path in ("forge/1", "forge/1/explain", "a\x00b", "x" * 301):
        answer = await office.call("GET", f"{JOBS}/{path}")
        assert answer.status in {404, 422}, path
        assert answer.json()["fix"]


@api_story
async def test_a_waiting_job_is_explained_through_its_whole_life(office: Office) -> None:
    async def why(number: int = 1) -> str:
        return str((await office.get(f"{JOBS}/forge/{number}/explain"))["why"])

    store = office.dispatch.ports.store
    await office.queue(1)
    assert await why() == "pool_gone"
    await office.add_pool("linux", replicas=0)
    assert await why() == "no_limits"
    await office.limit(vcpus=1)
    assert await why() == "larger_than_limit"
    await office.limit(vcpus=2)
    assert await why() == "scaled_to_zero"
    await office.add_pod("p1", warm=False)
    assert await why() == "runners_unschedulable"
    await office.pod_says("p1", phase="Running", conditions=[a_condition("Ready")])
    assert await why() == "next"
    await office.queue(2)
    assert await why(2) == "others_first"

    pod = office.dispatch.view.pod("p1")
    assert pod is not None
    claimed = await store.claim(WarmRunner("p1", pod.uid, "linux"))
    assert await why() == "claimed"
    assert await why(2) == "tenant_at_limit"
    hold = office.clock.now().replace(year=2027)
    back = Release(by="dispatch", why="GitHub is down", undelivered=True, hold_until=hold)
    await store.release(claimed.claim, back)  # type: ignore[union-attr]
    held = await office.get(f"{JOBS}/forge/1/explain")
    assert (held["why"], "GitHub is down" in held["sentence"]) == ("held", True)
    assert await why(2) in {"next", "others_first"}
    await office.run_on("p1")
    assert await why(2) == "handed_over"
    end = JobEnd(
        job_id="forge/2",
        tenant="acme",
        conclusion="failure",
        ended_at=office.clock.now(),
        by="t",
        runner_name="r-1",
    )
    await store.complete(end)
    assert await why(2) == "over"


# --- Runners and claims -----------------------------------------------------------------------------------------------


@api_story
async def test_runners_are_shown_with_their_jobs(office: Office) -> None:
    await office.add_pool("linux")
    await office.limit()
    for name in ("p1", "p2", "p3"):
        await office.add_pod(name)
    await office.queue(1)
    await office.run_on("p2")

    page = await office.get("/api/v1/runners", limit=2)
    rest = await office.get("/api/v1/runners", limit=2, after=page["next"], pool="linux")

    both = page["runners"] + rest["runners"]
    assert [(r["name"], r["claim"] and r["claim"]["job_id"]) for r in both] == [
        ("p1", None),
        ("p2", "forge/1"),
        ("p3", None),
    ]
    assert rest["next"] is None
    assert both[1]["session"]["job_id"] == "forge/1"
    assert (await office.get("/api/v1/runners", pool="mac"))["runners"] == []
    assert [c["pod"] for c in (await office.get("/api/v1/claims"))["claims"]] == ["p2"]


@api_story
async def test_a_runner_whose_pod_is_gone_is_remembered_by_its_job(office: Office) -> None:
    await office.limit()
    await office.queue(1)
    await office.run_on("ghost")

    runner = await office.get("/api/v1/runners/ghost")

    assert (runner["pod"], runner["pool"], runner["claim"]["job_id"]) == (None, "linux", "forge/1")
    assert (await office.get("/api/v1/runners/ghost/explain"))["why"] == "gone"
    assert (await office.call("GET", "/api/v1/runners/nobody")).status == 404
    assert (await office.call("GET", "/api/v1/runners/nobody/explain")).status == 404


@api_story
async def test_a_runner_is_not_shown_with_the_job_of_an_earlier_pod_of_its_name(
    office: Office,
) -> None:
    await office.add_pool("linux")
    await office.limit()
    await office.queue(1)
    await office.run_on("p1")  # by a Pod of before
    await office.add_pod("p1")

    runner = await office.get("/api/v1/runners/p1")

    assert (runner["claim"], runner["session"]) == (None, None)
    assert (await office.get("/api/v1/runners/p1/explain"))["why"] == "takes_jobs"


# --- Pools and hosts --------------------------------------------------------------------------------------------------


@api_story
async def test_pools_are_shown_with_their_runners_and_work(office: Office) -> None:
    await office.add_pool("linux")
    await office.add_pool("mac", os="darwin", autoscaling={"enabled": True, "maxReplicas": 4})
    await office.limit(vcpus=2)
    await office.add_pod("p1")
    await office.add_pod("p2", warm=False)
    await office.queue(1, 2)

    pools = {pool["name"]: pool for pool in (await office.get("/api/v1/pools"))["pools"]}
    detail = await office.get("/api/v1/pools/linux")

    assert (pools["linux"]["runners"]["warm"], pools["linux"]["runners"]["starting"]) == (1, 1)
    assert (pools["mac"]["os"], pools["mac"]["autoscaled"], pools["mac"]["max_replicas"]) == (
        "darwin",
        True,
        4,
    )
    assert (detail["signals"]["queued"], detail["signals"]["withheld"]) == (1, 1)
    assert detail["pool"] == pools["linux"]
    assert (await office.get("/api/v1/pools/linux/explain"))["why"] == "warm"
    assert (await office.call("GET", "/api/v1/pools/nowhere")).status == 404
    assert (await office.call("GET", "/api/v1/pools/nowhere/explain")).status == 404


@api_story
async def test_a_pool_tells_how_much_of_a_roll_is_under_way_beside_what_is_allowed(
    office: Office,
) -> None:
    await office.add_pool("linux")
    before = (await office.get("/api/v1/pools/linux"))["pool"]
    await office.pool_says("linux", stale=3, rolling=2, rollCap=2)
    told = (await office.get("/api/v1/pools/linux"))["pool"]

    assert [before[key] for key in ("stale", "rolling", "roll_cap")] == [0, 0, 0]
    assert [told[key] for key in ("stale", "rolling", "roll_cap")] == [3, 2, 2]


@api_story
async def test_labels_are_explained_by_the_rule_that_chooses_pools(office: Office) -> None:
    await office.add_pool("linux", labels=("self-hosted", "fast"))

    async def why(**query: Any) -> str:  # noqa: ANN401 - a query
        return str((await office.get("/api/v1/explain/labels", **query))["why"])

    assert await why(label=["self-hosted", "FAST"]) == "served"
    assert await why(label=["fast"], fork="true") == "fork_denied"
    assert await why(label=["slow"]) == "unknown_label"
    assert (await office.call("GET", "/api/v1/explain/labels")).status == 422
    await office.pool_says("linux", conditions=[a_condition("LabelsConflict", message="old")])
    assert await why(label=["fast"]) == "labels_conflict"


@api_story
async def test_hosts_are_read_when_asked_for_and_not_for_each_who_asks(office: Office) -> None:
    await office.add_node("mini-1")
    first = await office.get("/api/v1/hosts")
    await office.add_node("mini-2", fleet="shed")

    assert await office.get("/api/v1/hosts") == first
    await office.clock.sleep(6)
    hosts = (await office.get("/api/v1/hosts"))["hosts"]

    assert [(h["name"], h["fleet"], h["healthy"], h["why_not"]) for h in hosts] == [
        ("mini-1", "barn", False, "not_ready"),
        ("mini-2", "shed", False, "not_ready"),
    ]


# --- Limits and the audit ---------------------------------------------------------------------------------------------


@api_story
async def test_a_limit_is_set_by_name_and_written_down(office: Office) -> None:
    limit = {"tenant": "acme", "os": "linux", "vcpus": 4, "memory_mib": 8192}
    answer = await office.call("POST", "/api/v1/limits", "operate", body=limit)

    assert answer.status == 200
    assert answer.json() == limit | {
        "used_vcpus": 0,
        "used_memory_mib": 0,
        "last_claimed_at": None,
    }
    assert (await office.get("/api/v1/limits"))["limits"] == [answer.json()]
    assert (await office.get("/api/v1/limits", tenant="zoo"))["limits"] == []
    [entry] = (await office.get("/api/v1/audit"))["entries"]
    assert (entry["who"], entry["what"], entry["tenant"]) == ("api:a-operate", "limited", "acme")


@api_story
async def test_a_limit_that_makes_no_sense_changes_nothing(office: Office) -> None:
    good = {"tenant": "acme", "os": "linux", "vcpus": 4, "memory_mib": 8192}
    for wrong in (
        {"vcpus": -1},
        {"vcpus": "4"},
        {"vcpus": 1.5},
        {"vcpus": True},
        {"vcpus": 2**63},
        {"memory_mib": None},
        {"os": "windows"},
        {"tenant": ""},
        {"tenant": "a\x00"},
        {"tenant": "\ud800"},
        {"tenant": 5},
        {"extra": 1},
    ):
        answer = await office.call("POST", "/api/v1/limits", "operate", body={**good, **wrong})
        assert answer.status == 422, (wrong, answer.body)
    assert (await office.get("/api/v1/limits"))["limits"] == []


@api_story
async def test_the_audit_is_read_page_by_page_and_by_job(office: Office) -> None:
    await office.limit()
    await office.queue(1, 2, 3)

    first = await office.get("/api/v1/audit", limit=3)
    rest = await office.get("/api/v1/audit", limit=3, after=first["next"])
    of_job = await office.get("/api/v1/audit", job_id="forge/2")

    numbers = [e["number"] for e in first["entries"] + rest["entries"]]
    assert (numbers, rest["next"], rest["end"]) == ([1, 2, 3, 4], None, 4)
    assert [e["what"] for e in of_job["entries"]] == ["enqueued"]
    assert (await office.call("GET", "/api/v1/audit", query={"after": 2**63})).status == 422


# --- Machines ---------------------------------------------------------------------------------------------------------


@api_story
async def test_the_operator_reports_a_stop_as_often_as_it_likes(office: Office) -> None:
    await office.limit()
    await office.queue(1)
    await office.run_on("ghost")
    body = {"ended_at": "2026-01-01T00:00:00.5Z", "exit_code": 137, "reason": "OOM\x00Killed"}

    for _ in range(2):
        answer = await office.call(
            "POST", "/api/v1/runners/ghost/stopped", "remuda-controller", body=body
        )
        assert (answer.status, answer.body) == (204, b"")

    session = (await office.get("/api/v1/runners/ghost"))["session"]
    assert (session["exit_code"], session["end_reason"]) == (137, "OOM Killed")
    assert (await office.get("/api/v1/claims"))["claims"] == []


@api_story
async def test_a_report_that_makes_no_sense_is_refused(office: Office) -> None:
    good = {"ended_at": "2026-01-01T00:00:00Z"}
    path = "/api/v1/runners/p1/stopped"
    for wrong in (
        {"ended_at": "2026-01-01T00:00:00"},
        {"ended_at": "0001-01-01T00:00:00+14:00"},
        {"ended_at": "9999-12-31T23:59:59-14:00"},
        {"ended_at": "soon"},
        {"ended_at": None},
        {"exit_code": 2**40},
        {"exit_code": "1"},
        {"reason": "x" * 1001},
        {"reason": 5},
    ):
        answer = await office.call("POST", path, "remuda-controller", body={**good, **wrong})
        assert answer.status == 422, (wrong, answer.body)


@api_story
async def test_signals_of_a_pool_that_nobody_knows_are_none(office: Office) -> None:
    signals = await office.get("/api/v1/pools/nowhere/signals", "remuda-controller")

    assert set(signals.values()) == {0}
