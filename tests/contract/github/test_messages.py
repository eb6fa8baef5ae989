"""GitHub's messages: the examples that it publishes, and ten thousand bodies that it would never send."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from remuda.adapters.github import GithubWebhooks, github_forge
from remuda.ports.deliveries import Delivery
from remuda.ports.forge import Announcement, ForgeUnavailable, Ignored, Rejected
from tests.support.github_references import workflow_job_examples
from tests.support.github_server import SECRET, Fault, GithubServer, signed

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.adapters.github import GithubForge

GUID = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
ANOTHER = "another"


@pytest.fixture
def webhooks(github: GithubServer) -> GithubWebhooks:
    return GithubWebhooks(github.settings())


def _accepted(webhooks: GithubWebhooks, body: bytes) -> Delivery:
    answer = webhooks.accept(signed(body, guid=GUID), body)
    assert isinstance(answer, Delivery)
    return answer


@pytest.mark.parametrize("number", range(8))
async def test_each_of_githubs_examples_is_accepted_and_read(
    github: GithubServer, github_references: Path, webhooks: GithubWebhooks, number: int
) -> None:
    example = workflow_job_examples(github_references)[number]
    account = github.account("octo-org")
    installation = example.get("installation", {"id": 77})["id"]
    github.accounts[installation] = account
    account.installation = installation
    delivery = _accepted(webhooks, json.dumps(example).encode())
    job = example["workflow_job"]
    assert delivery.guid == GUID
    assert delivery.subject == f"{github.settings().host}/{job['id']}"
    async with github_forge(github.settings(), github.clock) as forge:
        read = await forge.read(delivery)
        if "installation" not in example:  # it was sent to a hook of a repository, not to an App
            assert read == Ignored("no_installation")
            body = json.dumps(example | {"installation": {"id": 77}}).encode()
            read = await forge.read(_accepted(webhooks, body))
    assert isinstance(read, Announcement)
    assert read.action == example["action"]
    assert read.tenant == "octo-org"
    assert read.repository == example["repository"]["full_name"]
    assert list(read.labels) == job["labels"]
    assert (read.run_id, read.name, read.commit) == (job["run_id"], job["name"], job["head_sha"])
    assert (read.branch, read.workflow) == (
        job.get("head_branch", ""),
        job.get("workflow_name", ""),
    )
    assert read.run_attempt == job.get("run_attempt")
    begun = example["action"] in {"in_progress", "completed"}
    assert read.runner_name == (job["runner_name"] if begun else "")
    assert (read.started_at is not None) == begun
    assert (read.ended_at is not None) == (example["action"] == "completed")
    assert read.conclusion == (job["conclusion"] or "")
    assert read.queued_at is not None


async def test_there_are_eight_examples(github_references: Path) -> None:
    assert len(workflow_job_examples(github_references)) == 8


def _mutated(dice: random.Random, example: bytes) -> bytes:
    """Return a body that is broken in one of many ways: bytes, shapes, types, sizes."""
    at = dice.randrange(len(example))
    match dice.randrange(10):
        case 0:
            return example[:at] + bytes([dice.randrange(256)]) + example[at + 1 :]
        case 1:
            return dice.choice((example[:at], dice.randbytes(dice.randrange(200))))
        case 2:
            depth = dice.choice((10, 900, 20_000))
            opening, closing = dice.choice(((b"[", b"]"), (b'{"a":', b"}")))
            return b'{"workflow_job":' + opening * depth + b"1" + closing * depth + b"}"
        case 3:
            return dice.choice(
                (b"null", b"true", b"1", b'""', b"[]", b"{}", b"", b"\xff\xfe", b"NaN")
            )
        case 4:
            return example[:1] + b'"action": "queued", "action": 7, ' + example[1:]
        case _:
            return json.dumps(_changed(dice, json.loads(example))).encode("utf-8", "surrogatepass")


STRANGE: list[object] = [
    *(None, True, -1, 0, 2**63, 10**400, 1e308, "", "\x00", "\ud800", "a" * 5000, "../..", "a/b/c"),
    *(
        [],
        {},
        [[]],
        [None, 1, "x\x00y"],
        {"id": "1"},
        "2026-02-30T99:00:00Z",
        "0001-01-01T00:00:00+14:00",
    ),
]


def _changed(dice: random.Random, body: dict[str, object]) -> dict[str, object]:
    """Return the body with some fields, here and one level below, of another type or gone."""
    for _ in range(dice.randrange(1, 4)):
        place = body
        inner = place.get(dice.choice(("workflow_job", "repository", "installation", "")))
        if isinstance(inner, dict) and inner:
            place = inner
        field = dice.choice(sorted(place)) if place else "action"
        if dice.random() < 0.2:
            place.pop(field, None)
        else:
            place[field] = dice.choice(STRANGE)
    return body


async def test_of_ten_thousand_mutated_bodies_none_is_taken_unsigned_and_none_breaks_anything(
    github: GithubServer, github_references: Path, webhooks: GithubWebhooks
) -> None:
    dice = random.Random(20260301)  # noqa: S311 - a seed replays it
    examples = [json.dumps(e).encode() for e in workflow_job_examples(github_references)]
    for number in (1, 77, 3456996, 23154469):
        github.accounts[number] = github.account(f"acct-{number}")
        github.accounts[number].installation = number
    outcomes = {"delivery": 0, "ignored": 0}
    async with github_forge(github.settings(installations_miss_s=0.0), github.clock) as forge:
        for count in range(10_000):
            body = _mutated(dice, dice.choice(examples))
            other = dice.choice((body + b" ", body[:-1] + b"?", b" " + body))
            for headers in (signed(other, guid=GUID), signed(body, guid=GUID, secret=ANOTHER)):
                assert isinstance(webhooks.accept(headers, body), Rejected), count
            answer = webhooks.accept(signed(body, guid=GUID), body)
            assert not isinstance(answer, Rejected), count
            outcomes["delivery" if isinstance(answer, Delivery) else "ignored"] += 1
            if isinstance(answer, Delivery):
                _check(await _read(forge, answer))
    assert outcomes["delivery"] > 2000, outcomes
    assert outcomes["ignored"] > 2000, outcomes


async def _read(forge: GithubForge, delivery: Delivery) -> Announcement | Ignored:
    try:
        return await forge.read(delivery)
    except ForgeUnavailable:
        return Ignored("later")


def _check(read: Announcement | Ignored) -> None:
    """Demand of what was read that a database and a label can hold it."""
    if isinstance(read, Ignored):
        return
    texts = (read.repository, read.name, read.workflow, read.branch, read.commit, read.url)
    for text in (*texts, *read.labels, read.runner_name, read.conclusion):
        assert text.isprintable()
        text.encode()
    assert read.tenant.startswith("acct-")
    assert read.run_id is None or 0 < read.run_id < 2**63


async def test_a_message_of_a_new_installation_is_read_once_github_lists_it(
    github: GithubServer, webhooks: GithubWebhooks, forge: GithubForge
) -> None:
    first = github.repository(github.account("acme"), "widgets")
    headers, body = github.message(github.job(github.run(first)), "queued")
    delivery = webhooks.accept(headers, body)
    assert isinstance(delivery, Delivery)
    read = await forge.read(delivery)
    assert isinstance(read, Announcement)
    assert read.tenant == "acme"
    second = github.repository(github.account("globex"), "gears")
    headers, body = github.message(github.job(github.run(second)), "queued")
    delivery = webhooks.accept(headers, body)
    assert isinstance(delivery, Delivery)
    with pytest.raises(ForgeUnavailable, match="not known yet"):
        await forge.read(delivery)  # the list was read a moment ago
    github.clock.ahead_s += 11
    read = await forge.read(delivery)
    assert isinstance(read, Announcement)
    assert read.tenant == "globex"
    assert len(github.asked("installations")) == 2


async def test_a_message_waits_while_github_does_not_say_whose_it_is(
    github: GithubServer, webhooks: GithubWebhooks, forge: GithubForge
) -> None:
    repository = github.repository(github.account("acme"), "widgets")
    headers, body = github.message(github.job(github.run(repository)), "queued")
    delivery = webhooks.accept(headers, body)
    assert isinstance(delivery, Delivery)
    github.faults.append(Fault("installations"))
    with pytest.raises(ForgeUnavailable):
        await forge.read(delivery)
    assert isinstance(await forge.read(delivery), Announcement)


async def test_the_tenant_is_the_installations_whatever_the_body_says(
    github: GithubServer, webhooks: GithubWebhooks, forge: GithubForge
) -> None:
    repository = github.repository(github.account("acme"), "widgets")
    _, body = github.message(github.job(github.run(repository)), "queued")
    forged = json.loads(body) | {"organization": {"login": "globex"}, "tenant": "globex"}
    forged["repository"]["full_name"] = "globex/gears"
    read = await forge.read(_accepted(webhooks, json.dumps(forged).encode()))
    assert isinstance(read, Announcement)
    assert read.tenant == "acme"


async def test_an_account_that_is_not_served_is_ignored_and_its_repositories_are_not_swept(
    github: GithubServer, webhooks: GithubWebhooks
) -> None:
    repository = github.repository(github.account("globex"), "gears")
    github.job(github.run(repository))
    job_id = github.job(github.run(repository))
    _, body = github.message(job_id, "queued")
    async with github_forge(github.settings(accounts=("acme",)), github.clock) as forge:
        assert await forge.read(_accepted(webhooks, body)) == Ignored("installation_not_served")
        swept = await forge.sweep(["globex/gears"], at_most=10)
    assert (swept.found, swept.repositories, swept.left_out) == ((), 0, 1)


async def test_a_form_is_read_like_json(github: GithubServer, webhooks: GithubWebhooks) -> None:
    repository = github.repository(github.account("acme"), "widgets")
    _, plain = github.message(github.job(github.run(repository)), "queued")
    form = urlencode({"payload": plain.decode()}).encode()
    headers = signed(form, guid=GUID) | {"content-type": "application/x-www-form-urlencoded"}
    answer = webhooks.accept(headers, form)
    assert isinstance(answer, Delivery)
    assert answer.body == plain
    assert webhooks.accept(
        signed(b"x=1", guid=GUID) | {"content-type": headers["content-type"]}, b"x=1"
    ) == Ignored("malformed")


async def test_while_a_secret_is_replaced_both_are_taken(github: GithubServer) -> None:
    webhooks = GithubWebhooks(github.settings(webhook_secrets=("new", SECRET)))
    repository = github.repository(github.account("acme"), "widgets")
    _, body = github.message(github.job(github.run(repository)), "queued")
    for secret in ("new", SECRET):
        answer = webhooks.accept(signed(body, guid=GUID, secret=secret), body)
        assert isinstance(answer, Delivery)
    assert isinstance(webhooks.accept(signed(body, guid=GUID, secret=ANOTHER), body), Rejected)
