from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import example, given
from hypothesis import strategies as st

from remuda.kube.runner_pool import Autoscaling, Schedule
from remuda.pools.decide.schedules import min_warm_at

OWN = 1
HOUR = 3600


def a_schedule(
    cron: str,
    zone: str = "UTC",
    *,
    duration_s: int = HOUR,
    min_warm: int = 9,
    name: str = "busy",
) -> Schedule:
    return Schedule(
        name=name, cron=cron, time_zone=zone, duration_seconds=duration_s, min_warm=min_warm
    )


def floor(now: str, *schedules: Schedule) -> int:
    return min_warm_at(Autoscaling(min_warm=OWN, schedules=schedules), _utc(now)).min_warm


def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


OFFICE = "0 8 * * 1-5"


@pytest.mark.parametrize(
    ("cron", "now", "in_force"),
    [
        pytest.param(OFFICE, "2026-11-02T07:59:59.999999", False, id="not before it begins"),
        pytest.param(OFFICE, "2026-11-02T08:00", True, id="from the moment it begins"),
        pytest.param(OFFICE, "2026-11-02T08:59:59.999999", True, id="to its last moment"),
        pytest.param(OFFICE, "2026-11-02T09:00", False, id="not at its end"),
        pytest.param(OFFICE, "2026-11-01T08:30", False, id="not on another day of the week"),
        pytest.param("0 8 * * MON-FRI", "2026-11-02T08:30", True, id="days have names"),
        pytest.param("0 8 * nov mon", "2026-11-02T08:30", True, id="names are in either case"),
        pytest.param("0 8 * DEC *", "2026-11-02T08:30", False, id="months have names"),
        pytest.param("0 8 * * 7", "2026-11-01T08:30", True, id="Sunday is 7"),
        pytest.param("0 8 * * 0", "2026-11-01T08:30", True, id="Sunday is 0"),
        pytest.param("0 */6 * * *", "2026-11-02T06:30", True, id="a step fires"),
        pytest.param("0 */6 * * *", "2026-11-02T05:30", False, id="between two steps nothing is in force"),
        pytest.param("0 3,22 * * *", "2026-11-02T22:10", True, id="each of a list fires"),
        pytest.param("0 22-23 * * *", "2026-11-02T23:10", True, id="each of a range fires"),
        pytest.param("0 0 13 * 5", "2026-11-06T00:10", True, id="day of month or day of week, as in cron"),
        pytest.param("30 23 * * *", "2026-11-03T00:10", True, id="it lasts over midnight"),
        pytest.param("0 0 29 2 *", "2028-02-29T00:10", True, id="a leap day fires"),
        pytest.param("0 0 29 2 *", "2027-02-28T00:10", False, id="a year without the leap day does not"),
        pytest.param("* * * * *", "2026-11-02T12:34:56", True, id="every minute is always in force"),
    ],
)  # fmt: skip
def test_cron(cron: str, now: str, in_force: bool) -> None:  # noqa: FBT001 - a column of the table
    assert floor(now, a_schedule(cron)) == (9 if in_force else OWN)


@pytest.mark.parametrize(
    ("cron", "zone", "now", "in_force"),
    [
        pytest.param("0 8 * * *", "Europe/Berlin", "2026-07-01T06:00", True, id="summer time"),
        pytest.param("0 8 * * *", "Europe/Berlin", "2026-12-01T06:00", False, id="not in winter"),
        pytest.param("0 8 * * *", "Europe/Berlin", "2026-12-01T07:00", True, id="winter time"),
        pytest.param("0 8 * * *", "Asia/Kolkata", "2026-12-01T02:30", True, id="half an hour off"),
        pytest.param("0 8 * * 1", "Pacific/Auckland", "2026-11-01T19:00", True, id="already Monday there"),
        # 2026-03-29: Berlin's clock goes from 02:00 to 03:00, which is 01:00 UTC.
        pytest.param("30 2 * * *", "Europe/Berlin", "2026-03-29T00:59", False, id="a skipped time waits for the gap"),
        pytest.param("30 2 * * *", "Europe/Berlin", "2026-03-29T01:00", True, id="a skipped time fires after the gap"),
        pytest.param("30 2 * * *", "Europe/Berlin", "2026-03-29T01:59", True, id="a skipped time lasts in full"),
        pytest.param("30 2 * * *", "Europe/Berlin", "2026-03-29T02:00", False, id="a skipped time ends"),
        pytest.param("30 1 * * *", "Europe/Berlin", "2026-03-29T01:29", True, id="an hour is an hour across a gap"),
        pytest.param("30 1 * * *", "Europe/Berlin", "2026-03-29T01:30", False, id="and not longer"),
        # 2026-10-25: Berlin's clock goes from 03:00 back to 02:00, which is 01:00 UTC.
        pytest.param("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30", True, id="a repeated time fires at first"),
        pytest.param("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10", True, id="it lasts into the repeated hour"),
        pytest.param("30 2 * * *", "Europe/Berlin", "2026-10-25T01:29", True, id="an hour is an hour across a repeat"),
        pytest.param("30 2 * * *", "Europe/Berlin", "2026-10-25T01:30", False, id="a repeated time fires once"),
        pytest.param("0 2-3 * * *", "Europe/Berlin", "2026-10-25T02:00", True, id="the hour after the repeat fires"),
        pytest.param("*/30 * * * *", "Europe/Berlin", "2026-10-25T01:40", True, id="half hours fire in the repeat"),
        pytest.param("*/30 * * * *", "Europe/Berlin", "2026-03-29T01:10", True, id="half hours fire after a gap"),
    ],
)  # fmt: skip
def test_time_zones(cron: str, zone: str, now: str, in_force: bool) -> None:  # noqa: FBT001 - a column of the table
    assert floor(now, a_schedule(cron, zone)) == (9 if in_force else OWN)


def test_of_several_the_largest_wins() -> None:
    night = a_schedule("0 20 * * *", duration_s=12 * HOUR, min_warm=0, name="a-night")
    rush = a_schedule("0 23 * * *", min_warm=7, name="rush")
    both = Autoscaling(min_warm=OWN, schedules=(rush, night))

    assert min_warm_at(both, _utc("2026-11-02T23:30")).min_warm == 7
    assert min_warm_at(both, _utc("2026-11-02T23:30")).why == "minWarm of schedule rush"
    assert min_warm_at(both, _utc("2026-11-03T00:30")).min_warm == 0, "a schedule may also lower it"
    assert min_warm_at(both, _utc("2026-11-03T12:00")).why == "minWarm of the pool"


def test_a_schedule_longer_than_its_interval_never_ends() -> None:
    always = a_schedule("0 8 * * *", duration_s=25 * HOUR)

    assert {floor(f"2026-11-02T{hour:02}:30", always) for hour in range(24)} == {9}


@pytest.mark.parametrize(
    ("cron", "zone", "told"),
    [
        pytest.param("61 * * * *", "UTC", "Bad minute", id="a minute that no hour has"),
        pytest.param("* * * * SOMEDAY", "UTC", "Bad day-of-week", id="a day that no week has"),
        pytest.param("0 0 31 2 *", "UTC", "Bad day-of-month", id="a day that no February has"),
        pytest.param("*/0 * * * *", "UTC", "Bad minute", id="a step of none"),
        pytest.param("5-1 * * * *", "UTC", "Bad minute", id="a range that runs backwards"),
        pytest.param("* * * *", "UTC", "five fields", id="four fields"),
        pytest.param("0 * * * * *", "UTC", "five fields", id="six fields: seconds are not ours"),
        pytest.param("0 8 * * *", "Mars/Olympus", "'Mars/Olympus'", id="a zone of another planet"),
        pytest.param("0 8 * * *", "Europe", "'Europe'", id="a folder of zones"),
        pytest.param("0 8 * * *", "../zone.tab", "'../zone.tab'", id="a path out of the database"),
    ],
)
def test_a_bad_schedule_is_told_and_left_out(cron: str, zone: str, told: str) -> None:
    good = a_schedule("* * * * *", min_warm=4, name="good")
    bad = a_schedule(cron, zone, min_warm=50, name="bad")

    found = min_warm_at(Autoscaling(min_warm=OWN, schedules=(bad, good)), _utc("2026-11-02T12:00"))

    assert found.min_warm == 4
    (fault,) = found.faults
    assert fault.startswith("schedule bad: ")
    assert told in fault


@given(
    cron=st.lists(st.text("0123456789*/-,LW#?SUNJAFEB", min_size=1, max_size=8), min_size=5, max_size=5),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/Sao_Paulo", "Nowhere", "A" * 64, "Etc"]),
)  # fmt: skip
def test_no_schedule_raises(cron: list[str], zone: str) -> None:
    found = min_warm_at(
        Autoscaling(min_warm=OWN, schedules=(a_schedule(" ".join(cron), zone),)),
        _utc("2026-10-25T01:10"),
    )

    assert found.min_warm in {OWN, 9}


ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Sydney", "Asia/Kolkata"]
CRONS = ["30 2 * * *", "0 1-3 * * *", "*/20 * * * *", "15 */2 * * *", "45 1 * * 0", "0 0 1 * *"]


CHANGES = [
    "2026-03-29T01:00",
    "2026-10-25T01:00",
    "2026-03-08T07:00",
    "2026-11-01T06:00",
    "2026-04-04T16:00",
]
"""When a clock of those zones is moved, in UTC."""
NEAR_A_CHANGE = st.builds(
    lambda at, minutes: _utc(at) + timedelta(minutes=minutes),
    st.sampled_from(CHANGES),
    st.integers(-240, 240),
)
ANY_TIME = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - see timezones


@given(
    cron=st.sampled_from(CRONS),
    zone=st.sampled_from(ZONES),
    duration_s=st.integers(60, 6 * HOUR),
    now=ANY_TIME | NEAR_A_CHANGE,
)
@example("30 2 * * *", "Europe/Berlin", HOUR, _utc("2026-10-25T01:10"))
@example("45 2 * * 0", "Australia/Sydney", HOUR, _utc("2026-04-04T16:10"))
def test_looking_back_finds_what_running_forward_would_have_fired(
    cron: str, zone: str, duration_s: int, now: datetime
) -> None:
    begin = (now - timedelta(days=2)).astimezone(ZoneInfo(zone))
    firings = (firing.astimezone(UTC) for firing in CronSim(cron, begin))
    fired = list(takewhile(lambda at: at <= now, firings))
    in_force = any(now < at + timedelta(seconds=duration_s) for at in fired)

    schedule = a_schedule(cron, zone, duration_s=duration_s)
    found = min_warm_at(Autoscaling(min_warm=OWN, schedules=(schedule,)), now)

    assert found.min_warm == (9 if in_force else OWN)
