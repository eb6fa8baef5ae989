"""The border for GitHub's messages: what is refused unread, what is taken, what is ignored and why."""

from __future__ import annotations

import json

import pytest

from remuda.adapters.github import GithubSettings, GithubWebhooks
from remuda.adapters.github.payloads import is_repository, labels, moment, text
from remuda.ports.deliveries import Delivery
from remuda.ports.forge import Ignored, Rejected
from tests.support.github_server import SECRET, signed

GUID = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
BODY = json.dumps(
    {"action": "queued", "workflow_job": {"id": 5}, "repository": {"full_name": "a/b"}}
).encode()


@pytest.fixture
def webhooks() -> GithubWebhooks:
    return GithubWebhooks(GithubSettings(app_id="1", private_key="", webhook_secrets=(SECRET,)))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({}, 401, id="no signature"),
        pytest.param({"x-hub-signature-256": ""}, 401, id="an empty one"),
        pytest.param({"x-hub-signature": "sha1=" + "0" * 40}, 401, id="only the old kind"),
        pytest.param({"x-hub-signature-256": "sha1=" + "0" * 40}, 403, id="the old kind here"),
        pytest.param({"x-hub-signature-256": "sha256=" + "0" * 63}, 403, id="too short"),
        pytest.param({"x-hub-signature-256": "sha256=" + "\u0660" * 64}, 403, id="other digits"),
        pytest.param({"x-hub-signature-256": "sha256=" + "0" * 64 + "\n"}, 403, id="too long"),
    ],
)
def test_a_message_without_a_usable_signature_is_refused_before_its_body_is_read(
    webhooks: GithubWebhooks, headers: dict[str, str], status: int
) -> None:
    refusal = webhooks.refuse_unread(headers)
    assert refusal is not None
    assert refusal.status == status
    assert webhooks.accept(headers, BODY) == refusal


def test_a_signature_is_of_this_body_and_this_secret(webhooks: GithubWebhooks) -> None:
    headers = signed(BODY, guid=GUID)
    assert webhooks.refuse_unread(headers) is None
    assert isinstance(webhooks.accept(headers, BODY), Delivery)
    refusal = webhooks.accept(headers, BODY + b" ")
    assert isinstance(refusal, Rejected)
    assert refusal.status == 403
    zeros = headers | {"x-hub-signature-256": "sha256=" + "0" * 64}
    assert isinstance(webhooks.accept(zeros, BODY), Rejected)


def test_a_taken_message_says_which_job_it_is_about(webhooks: GithubWebhooks) -> None:
    answer = webhooks.accept(signed(BODY, guid=GUID), BODY)
    assert answer == Delivery(guid=GUID, event="workflow_job", body=BODY, subject="github.com/5")


@pytest.mark.parametrize(
    ("event", "reason"), [("ping", "ping"), ("push", "other_event"), ("", "other_event")]
)
def test_other_events_are_ignored(webhooks: GithubWebhooks, event: str, reason: str) -> None:
    headers = signed(BODY, guid=GUID) | {"x-github-event": event}
    assert webhooks.accept(headers, BODY) == Ignored(reason)


@pytest.mark.parametrize("guid", ["", "a b", "x" * 65, "g\x00", "ü"])
def test_a_message_without_a_usable_guid_is_ignored(webhooks: GithubWebhooks, guid: str) -> None:
    assert webhooks.accept(signed(BODY, guid=guid), BODY) == Ignored("no_guid")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({"action": "requested"}, "other_action", id="an action that is new"),
        pytest.param({"action": None}, "malformed", id="no action"),
        pytest.param({"workflow_job": None}, "malformed", id="no job"),
        pytest.param({"workflow_job": {"id": "5"}}, "malformed", id="a number as text"),
        pytest.param({"workflow_job": {"id": 0}}, "malformed", id="a number that is none"),
        pytest.param({"workflow_job": {"id": 2**63}}, "malformed", id="a number too large"),
        pytest.param({"workflow_job": {"id": True}}, "malformed", id="a truth for a number"),
        pytest.param({"repository": {"full_name": "a/.."}}, "malformed", id="another path"),
        pytest.param({"repository": {"full_name": "a/b/c"}}, "malformed", id="three parts"),
        pytest.param({"repository": {"full_name": "a/b?x"}}, "malformed", id="a query"),
        pytest.param({"installation": {"id": []}}, "malformed", id="a strange installation"),
    ],
)
def test_what_nobody_could_act_on_is_ignored(
    webhooks: GithubWebhooks, change: dict[str, object], reason: str
) -> None:
    body = json.dumps(json.loads(BODY) | change).encode()
    assert webhooks.accept(signed(body, guid=GUID), body) == Ignored(reason)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"null", id="null"),
        pytest.param(b'{"action": "queued"', id="half of it"),
        pytest.param(b'{"workflow_job":' + b"[" * 100_000, id="a deep nest"),
        pytest.param(BODY.replace(b'"id": 5', b'"id": ' + b"9" * 5000), id="a huge number"),
        pytest.param(BODY.replace(b'"id": 5', b'"id": 5, "name": "\xff"'), id="no UTF-8"),
        pytest.param(BODY.replace(b'"id": 5', b'"id": 5, "name": "\\ud800"'), id="half a letter"),
    ],
)
def test_a_body_that_is_no_message_is_ignored_and_breaks_nothing(
    webhooks: GithubWebhooks, body: bytes
) -> None:
    assert webhooks.accept(signed(body, guid=GUID), body) == Ignored("malformed")


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("2026-03-01T12:00:00Z", "2026-03-01T12:00:00+00:00"),
        ("2026-03-01T12:00:00.5+02:00", "2026-03-01T10:00:00.500000+00:00"),
        ("2026-03-01T12:00:00", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("1970-01-01T00:00:00Z", None),
        ("9999-12-31T23:59:59-12:00", None),
        ("yesterday", None),
        (1772366400, None),
        (None, None),
    ],
)
def test_a_time_is_read_or_is_not_said(value: object, read: str | None) -> None:
    at = moment(value)
    assert (at.isoformat() if at else None) == read


def test_texts_are_cut_and_hold_nothing_that_breaks_a_line_or_a_database() -> None:
    assert text("a\x00b\nc\x1b[31m\u2028d") == "a b c [31m d"
    assert len(text("x" * 10_000)) == 400
    assert text(7) == text(None) == text(["x"]) == ""
    assert labels(["a", 1, None, "", "b\x00", ["c"]]) == ("a", "b")
    assert labels("ab") == labels(None) == ()
    assert len(labels([str(n) for n in range(1000)])) == 100


@pytest.mark.parametrize("name", ["a/b", "A-1/b.c_d", "a/.github", "octo_org/x"])
def test_these_are_repositories(name: str) -> None:
    assert is_repository(name)


@pytest.mark.parametrize("name", ["", "a", "a/", "/b", "./b", "a/..", "a/b/c", "a/b\n", "a/ü"])
def test_these_are_none(name: str) -> None:
    assert not is_repository(name)
