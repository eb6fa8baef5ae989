"""What the checks say together, and how a person sees it."""

from __future__ import annotations

import pytest

from remuda.cli.doctor.decide.findings import Finding, Level, fail, ok, seen_twice, skip, warn
from remuda.cli.doctor.decide.report import (
    Mended,
    Outcome,
    agreed,
    findings,
    needs_second_look,
    report,
)
from remuda.cli.doctor.render import lines
from tests.unit.cli.doctor.clinic import AWAY, a_claim, a_fleet, a_pod, api, kube

BAD = fail("Jobs are held for runners that are gone.", ("a", "b"), "Wait")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param(BAD, BAD, BAD, id="what stays is said"),
        pytest.param(BAD, ok("fine"), ok("fine"), id="what went was a moment"),
        pytest.param(ok("fine"), BAD, ok("fine"), id="what came was seen once only"),
        pytest.param(
            BAD,
            fail(BAD.sentence, ("b", "c"), "Wait"),
            fail(BAD.sentence, ("b",), "Wait"),
            id="what both have",
        ),
        pytest.param(
            BAD, fail("x", ("c",)), ok("Nothing that stays."), id="nothing that both have"
        ),
        pytest.param(
            fail("x", ("mac-1: 3 asked to leave, 2 allowed", "mac-2: 1 asked to leave, 0 allowed")),
            fail("x", ("mac-1: 4 asked to leave, 2 allowed", "mac-3: 1 asked to leave, 0 allowed")),
            fail("x", ("mac-1: 4 asked to leave, 2 allowed",)),
            id="what grew meanwhile stays",
        ),
        pytest.param(BAD, skip("away"), skip("away"), id="the second look failed"),
    ],
)
def test_two_looks(first: Finding, second: Finding, expected: Finding) -> None:
    assert seen_twice(first, second) == expected


def test_a_second_look_is_for_what_two_reads_can_feign() -> None:
    torn = findings(a_fleet(api=api(claims=(a_claim("mac-z"),))))
    assert needs_second_look(torn)
    assert not needs_second_look(findings(a_fleet()))
    lasting = findings(a_fleet(kube=kube(election=None)))
    assert not needs_second_look(lasting)

    both = agreed(torn, findings(a_fleet()))
    assert both["runners-claims"].level is Level.OK
    assert agreed(torn, lasting)["operator-leads"].level is Level.FAIL


def test_warnings_do_not_fail_and_evidence_is_bounded() -> None:
    said = report({"crds": warn("Hm.", [str(n) for n in range(30)])})
    assert said.ok
    assert said.counts == {"ok": 0, "warn": 1, "fail": 0, "skip": 0}
    assert said.checks[0].evidence[-1] == "and 20 more"
    assert not report({"crds": fail("No.")}).ok


def test_a_report_as_a_person_reads_it() -> None:
    found = {
        "data-room": ok("Plenty of room.", ["not shown"]),
        "crds": fail("Some are \x1b[31mmissing.", ["hosts.remuda.dev"], "kubectl apply"),
        "pool-cap": skip("Away."),
        "rolls": skip("Away."),
        "images": skip("No pools."),
    }
    done = (
        Mended(what="let mac-a go", outcome=Outcome.DONE),
        Mended(what="let mac-b go", outcome=Outcome.LEFT, why="it has changed"),
    )
    assert (
        "\n".join(lines(report(found, done)))
        == """\
MACHINE
  ok    data-room  Plenty of room.

CONNECTION
  fail  crds       Some are  [31mmissing.
        - hosts.remuda.dev
        fix: kubectl apply

POOLS
  skip  pool-cap, rolls
        Away.
  skip  images     No pools.

FIX
  done     let mac-a go
  left     let mac-b go
           why: it has changed

Something is wrong: 1 fail, 1 ok, 3 skip."""
    )


@pytest.mark.parametrize("room", [60, 80, 140])
def test_a_terminal_is_never_too_narrow(room: int) -> None:
    ill = a_fleet(
        kube=kube(pods=(a_pod(node="ghost", late_s=900), a_pod("mac-b", late_s=900)), crds=AWAY),
        api=api(claims=(a_claim("mac-z"),)),
    )
    shown = list(lines(report(findings(ill)), room=room))
    too_long = [line for line in shown if len(line) > room and " " in line.strip()]
    assert too_long == []
    whole = " ".join(" ".join(shown).split())
    for found in findings(ill).values():
        assert found.sentence in whole, "nothing is cut"
    assert not any("\x1b" in line for line in shown)
    assert any("\x1b[31m" in line for line in lines(report(findings(ill)), room=room, colour=True))
