"""What may still be asked, whose turn it is, what tenants are called, what is asked for again: pure decisions."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.adapters.github.budgets import Budgets, Limit, may_sweep, read_limit
from remuda.adapters.github.faults import said, throttled_s
from remuda.adapters.github.installations import tenant_name
from remuda.adapters.github.models import HookDelivery
from remuda.adapters.github.redelivery import unreached
from remuda.adapters.github.rotation import Rotation
from remuda.adapters.github.wire import Reply

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@pytest.mark.parametrize(
    ("remaining", "minutes_left", "may"),
    [
        pytest.param(5000, 60, True, id="a fresh hour"),
        pytest.param(4400, 60, True, id="a little ahead of the pace"),
        pytest.param(4000, 60, False, id="far ahead of the pace"),
        pytest.param(3000, 30, True, id="on the pace at half time"),
        pytest.param(2000, 30, False, id="ahead of the pace at half time"),
        pytest.param(1100, 1, True, id="the end of the hour"),
        pytest.param(1000, 1, False, id="the part that minting needs"),
        pytest.param(0, 0, True, id="the hour is over"),
        pytest.param(0, 60, False, id="nothing is left"),
    ],
)
def test_sweeps_keep_their_pace_and_leave_a_fifth(
    remaining: int, minutes_left: int, *, may: bool
) -> None:
    limit = Limit(5000, remaining, 60.0 * minutes_left)
    assert may_sweep(limit, 0.0, 0.2) is may


def test_answers_that_overtake_each_other_do_not_give_back_what_was_used() -> None:
    budgets = Budgets(reserve=0.2, sweep_per_minute_max=100)

    def heard(remaining: int, reset: int, resource: str = "core") -> int | None:
        budgets.heard(
            1,
            {
                "x-ratelimit-resource": resource,
                "x-ratelimit-limit": "5000",
                "x-ratelimit-remaining": str(remaining),
                "x-ratelimit-reset": str(reset),
            },
        )
        return budgets.least_remaining(now=0.0)

    assert heard(4000, 100) == 4000
    assert heard(4001, 100) == 4000
    assert heard(3, 100, "actions_runner_registration") == 4000  # another count
    assert heard(10, 50) == 4000  # the hour before
    assert heard(4999, 200) == 4999  # a new hour


@pytest.mark.parametrize("value", ["", "x", "-1", "1e9", "9" * 30, "٣"])
def test_a_limit_that_is_no_number_is_not_heard(value: str) -> None:
    names = ("limit", "remaining", "reset")
    assert read_limit({f"x-ratelimit-{name}": value for name in names}) is None


@pytest.mark.parametrize(
    ("status", "headers", "body", "seconds"),
    [
        (403, {}, b'{"message": "Resource not accessible"}', None),
        (404, {"retry-after": "5"}, b"", None),
        (403, {"retry-after": "0"}, b"", 1.0),
        (403, {"retry-after": "99999999"}, b"", 3600.0),
        (429, {"retry-after": "soon"}, b"", 60.0),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "130"}, b"", 31.0),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "5"}, b"", 1.0),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "x"}, b"", 60.0),
        (403, {}, b'{"message": "You have triggered an abuse detection mechanism"}', 60.0),
        (500, {}, b'{"message": "rate limit"}', None),
    ],
)
def test_a_limit_is_told_from_a_refusal(
    status: int, headers: dict[str, str], body: bytes, seconds: float | None
) -> None:
    assert throttled_s(Reply(status, headers, body), now=100.0) == seconds


def test_githubs_words_are_quoted_on_one_line_cut_and_without_our_token() -> None:
    body = b'{"message": "' + b"a " * 145 + b' ghs_secrettoken\\nb"}'
    assert "secret" not in said(body, ("ghs_secrettoken",))
    assert "secret" not in said(body.replace(b"ghs_", b"x-"), ("x-secrettoken",))
    assert "eyJ" not in said(b'{"message": "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOjF9.c2ln"}')
    assert said(b'{"message": "jit ' + b"Ab9/" * 50 + b' end."}') == "jit … end"
    assert "\n" not in said(body, ())
    assert len(said(body, ())) <= 300
    assert said(b"[" * 100_000) == said(b"") == said(b'{"message": 7}') == ""


@given(
    st.dictionaries(
        st.integers(1, 4), st.lists(st.text("abc", min_size=1, max_size=3), unique=True), max_size=4
    ),
    st.integers(1, 7),
)
def test_everybody_has_a_turn_before_anybody_has_two(
    known: dict[int, list[str]], room: int
) -> None:
    rotation = Rotation()
    names = {number: sorted(repositories) for number, repositories in known.items()}
    everything = {(number, name) for number, group in names.items() for name in group}
    seen: list[tuple[int, str]] = []
    for _ in range(4 * len(everything) + 1):
        taken = rotation.take(names, room)
        assert len(taken) == len(set(taken)) == min(room, len(everything))
        seen += taken
    assert set(seen) == everything
    for number, group in names.items():
        mine = [name for n, name in seen if n == number]
        for start in range(0, len(mine) - len(group) + 1, max(1, len(group))):
            assert set(mine[start : start + len(group)]) == set(group)


@pytest.mark.parametrize(
    ("login", "tenant"),
    [
        ("Acme", "acme"),
        ("octo-org_emu", "octo-org_emu"),
        pytest.param("Local", "local.7", id="whose name is that of the jobs that people post"),
        ("-acme-", "acme.7"),
        ("ü", "account.7"),
        ("a" * 64, "a" * 61 + ".7"),
    ],
)
def test_a_tenant_is_a_login_or_bears_its_number(login: str, tenant: str) -> None:
    assert tenant_name(login, 7) == tenant


@given(st.text(min_size=1), st.integers(1, 2**63 - 1), st.booleans())
def test_a_tenant_is_always_fit_for_a_label(name: str, number: int, is_login: bool) -> None:  # noqa: FBT001 - drawn
    tenant = tenant_name(name, number, is_login=is_login)
    assert LABEL.fullmatch(tenant)
    if "." in tenant:
        assert tenant.endswith(f".{number}"), "no two installations share it"
    else:
        assert tenant == name.lower()


def _attempt(number: int, guid: str, minutes_ago: int, code: int = 500) -> HookDelivery:
    at = (NOW - timedelta(minutes=minutes_ago)).isoformat()
    return HookDelivery(
        id=number, guid=guid, event="workflow_job", delivered_at=at, status_code=code
    )


def test_the_latest_attempt_of_what_never_arrived_is_asked_for_oldest_first() -> None:
    attempts = [
        _attempt(1, "a", 1),
        _attempt(2, "b", 9),
        _attempt(3, "b", 9),
        _attempt(4, "c", 5, code=204),
        _attempt(5, "c", 3),
        _attempt(6, "d", 500),
    ]
    wanted = unreached(attempts, NOW, since=NOW - timedelta(hours=1))
    assert [d.id for d in wanted] == [3, 1]
