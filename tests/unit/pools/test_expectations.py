from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from remuda.model.runner import Mark
from remuda.pools.expectations import Expectations
from tests.unit.pools.builders import NEW, NOW, ago, busy, ended, unseen, waiting, warm

if TYPE_CHECKING:
    from remuda.model.runner import Runner

PLACEHOLDER = unseen("a", created_at=ago(40))
CREATED = replace(PLACEHOLDER, uid="uid-a", version="7")
WARM = warm("a", version="8")


def names(runners: tuple[Runner, ...]) -> list[str]:
    return sorted(r.name for r in runners)


def test_without_writes_the_cache_is_all_there_is() -> None:
    assert Expectations().seen("mac", [warm("a"), busy("b")]) == (warm("a"), busy("b"))


def test_what_was_asked_for_is_there_before_the_cache_shows_it() -> None:
    expectations = Expectations()
    expectations.create("mac", PLACEHOLDER)

    assert expectations.seen("mac", [warm("b")]) == (warm("b"), PLACEHOLDER)
    assert expectations.seen("other", []) == ()
    assert expectations.placeholders("mac") == (PLACEHOLDER,)


def test_an_answer_gives_the_placeholder_its_identity() -> None:
    expectations = Expectations()
    expectations.create("mac", PLACEHOLDER)
    expectations.wrote(PLACEHOLDER, CREATED)

    assert expectations.seen("mac", []) == (CREATED,)


@pytest.mark.parametrize("answered", [True, False], ids=["after an answer", "without one"])
@pytest.mark.parametrize("cached", [CREATED, WARM], ids=["as it was made", "already warm"])
def test_the_cache_is_believed_as_soon_as_it_shows_the_runner(
    answered: bool,  # noqa: FBT001 - a drawn value
    cached: Runner,
) -> None:
    expectations = Expectations()
    expectations.create("mac", PLACEHOLDER)
    if answered:
        expectations.wrote(PLACEHOLDER, CREATED)

    assert expectations.seen("mac", [cached]) == (cached,)
    assert expectations.seen("mac", []) == ()  # it went: nobody holds on to it
    assert expectations.placeholders("mac") == ()


def test_a_written_runner_is_as_written_while_the_cache_shows_what_was_before() -> None:
    expectations = Expectations()
    marked = replace(WARM, version="9", mark=Mark(NEW, NOW))
    expectations.seen("mac", [WARM])
    expectations.wrote(WARM, marked)

    assert expectations.seen("mac", [WARM]) == (marked,)
    claimed = busy("a", version="10")
    assert expectations.seen("mac", [claimed]) == (claimed,)
    assert expectations.seen("mac", [WARM]) == (WARM,)  # the entry is gone


def test_writes_upon_writes_hide_every_older_version() -> None:
    expectations = Expectations()
    marked = replace(WARM, version="9", mark=Mark(NEW, NOW))
    unmarked = replace(WARM, version="10")
    expectations.seen("mac", [WARM])
    expectations.wrote(WARM, marked)
    expectations.wrote(marked, unmarked)

    assert expectations.seen("mac", [WARM]) == (unmarked,)
    assert expectations.seen("mac", [marked]) == (unmarked,)
    assert expectations.seen("mac", [unmarked]) == (unmarked,)


def test_a_reaped_runner_is_being_deleted_until_the_cache_says_so() -> None:
    expectations = Expectations()
    expectations.seen("mac", [WARM])
    expectations.reaped(WARM, NOW)

    (shown,) = expectations.seen("mac", [WARM])
    assert (shown.deleting_since, shown.is_alive) == (NOW, False)
    deleting = replace(WARM, version="9", deleting_since=ago(1))
    assert expectations.seen("mac", [deleting]) == (deleting,)
    assert expectations.seen("mac", [WARM]) == (WARM,)  # the entry is gone


def test_a_reaped_runner_that_is_gone_from_the_cache_is_gone() -> None:
    expectations = Expectations()
    expectations.seen("mac", [WARM])
    expectations.reaped(WARM, NOW)

    assert expectations.seen("mac", []) == ()


def test_a_deletion_that_did_not_happen_after_all_is_forgotten_when_the_runner_moves_on() -> None:
    expectations = Expectations()
    expectations.seen("mac", [WARM])
    expectations.reaped(WARM, NOW)
    moved_on = busy("a", version="9")

    assert expectations.seen("mac", [moved_on]) == (moved_on,)


def test_a_marked_and_reaped_runner_stays_deleted_through_every_older_version() -> None:
    expectations = Expectations()
    marked = replace(WARM, version="9", mark=Mark(NEW, NOW))
    expectations.seen("mac", [WARM])
    expectations.wrote(WARM, marked)
    expectations.reaped(marked, NOW)

    for cached in (WARM, marked):
        (shown,) = expectations.seen("mac", [cached])
        assert shown.deleting_since == NOW


def test_a_runner_reaped_before_it_was_ever_seen_is_no_placeholder_any_more() -> None:
    expectations = Expectations()
    expectations.create("mac", PLACEHOLDER)
    expectations.wrote(PLACEHOLDER, CREATED)
    expectations.reaped(CREATED, NOW)

    assert expectations.placeholders("mac") == ()
    (shown,) = expectations.seen("mac", [])
    assert shown.deleting_since == NOW
    (shown,) = expectations.seen("mac", [CREATED])
    assert shown.deleting_since == NOW
    assert expectations.seen("mac", []) == ()


def test_another_runner_of_the_same_name_is_believed() -> None:
    expectations = Expectations()
    expectations.seen("mac", [WARM])
    expectations.reaped(WARM, NOW)
    namesake = replace(WARM, uid="another")

    assert expectations.seen("mac", [namesake]) == (namesake,)


def test_only_old_names_that_the_cache_never_showed_are_asked_about() -> None:
    expectations = Expectations()
    expectations.create("mac", PLACEHOLDER)
    expectations.create("mac", unseen("young", created_at=ago(5)))
    expectations.seen("mac", [warm("b")])
    expectations.wrote(warm("b"), warm("b", version="2"))

    assert expectations.unconfirmed("mac", ago(30)) == ("a",)
    assert expectations.unconfirmed("other", ago(30)) == ()


def test_what_the_api_server_does_not_know_is_forgotten() -> None:
    expectations = Expectations()
    expectations.create("mac", PLACEHOLDER)
    expectations.absent("mac", "a")
    expectations.absent("mac", "never-heard-of")

    assert expectations.seen("mac", []) == ()


def test_a_pool_that_is_gone_is_forgotten() -> None:
    expectations = Expectations()
    expectations.create("mac", PLACEHOLDER)
    expectations.seen("mac", [warm("b")])
    expectations.forget("mac")
    expectations.reaped(warm("b"), NOW)

    assert expectations.seen("mac", [warm("b")]) == (warm("b"),)


def test_a_write_about_a_runner_that_no_pool_showed_is_nobodys_expectation() -> None:
    expectations = Expectations()
    expectations.reaped(ended("orphan"), NOW)

    assert expectations.seen("mac", [ended("orphan")]) == (ended("orphan"),)


def test_pools_do_not_see_each_other() -> None:
    expectations = Expectations()
    expectations.seen("mac", [warm("a")])
    expectations.seen("linux", [waiting("b")])
    expectations.create("linux", unseen("c"))
    expectations.reaped(warm("a"), NOW)

    assert names(expectations.seen("linux", [waiting("b")])) == ["b", "c"]
    assert [r.is_alive for r in expectations.seen("mac", [warm("a")])] == [False]
