"""Each check on a fleet that is well, on one that is not, and where nothing can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.cli.doctor.decide.facts import Facts, Unread
from remuda.cli.doctor.decide.report import CHECKS, findings
from tests.unit.cli.doctor.cases import CONNECTION, FAIL, HOSTS, JOBS, MACHINE, OK, SKIP, WARN
from tests.unit.cli.doctor.cases_of_runners import POOLS, RUNNERS
from tests.unit.cli.doctor.clinic import (
    AWAY,
    a_fleet,
    api,
    find,
    kube,
    machine,
)

if TYPE_CHECKING:
    from remuda.cli.doctor.decide.findings import Level

CASES = [*MACHINE, *CONNECTION, *HOSTS, *POOLS, *RUNNERS, *JOBS]


def test_a_fleet_that_is_well_has_nothing_to_say() -> None:
    found = findings(a_fleet())
    assert set(found) == {check.name for check in CHECKS}
    wrong = {name: f for name, f in found.items() if f.level is not OK}
    assert set(wrong) == {"kvm"}, wrong
    assert wrong["kvm"].level is SKIP


def test_names_are_one_of_a_kind_and_each_check_says_what_it_is_about() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    for check in CHECKS:
        assert check.name == check.name.lower().replace("_", "-").strip("-")
        assert check.about.endswith(".") or check.about.endswith(")."), check.name


NOTHING = Unread(why="Nobody said where it is.", asked=False)


@pytest.mark.parametrize("check", [check.name for check in CHECKS])
@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(
            a_fleet(machine=NOTHING, kube=NOTHING, api=NOTHING, github=NOTHING), id="not asked for"
        ),
        pytest.param(
            a_fleet(
                machine=machine(tree=AWAY, driver=AWAY),
                kube=kube(
                    **dict.fromkeys(
                        (
                            *("ahead_s", "crds", "rights", "pools", "pods"),
                            *("nodes", "node_leases", "accounts", "election"),
                        ),
                        AWAY,
                    )
                ),
                api=api(
                    **dict.fromkeys(
                        ("ahead_s", "claims", "runners", "limits", "waiting", "violations"), AWAY
                    )
                ),
                github=NOTHING,
            ),
            id="connected, and nothing can be read",
        ),
    ],
)
def test_what_cannot_be_read_is_skipped_with_the_reason(check: str, facts: Facts) -> None:
    found = find(check, facts)
    connected = {"kubernetes-api", "dispatch-api", "dispatch-ready", "data-folder", "data-room"}
    if found.level is not SKIP:
        assert check in {*connected, "data-leftovers"}
        assert found.level is OK
    assert found.sentence


@pytest.mark.parametrize(
    ("facts", "failing"),
    [
        pytest.param(
            a_fleet(kube=Unread(why="There is no such file.", fix="Check the path")),
            "kubernetes-api",
            id="a kubeconfig that cannot be used",
        ),
        pytest.param(
            a_fleet(kube=kube(version=Unread(why="Connection refused.", fix="Start it"))),
            "kubernetes-api",
            id="a Kubernetes API that is away",
        ),
        pytest.param(
            a_fleet(kube=kube(version=Unread(why="401.", fix="Log in", refused=True))),
            "kubernetes-api",
            id="a Kubernetes API that does not know us",
        ),
        pytest.param(
            a_fleet(api=Unread(why="No such file.", fix="Check the path")),
            "dispatch-api",
            id="an API whose settings cannot be used",
        ),
        pytest.param(
            a_fleet(api=api(not_ready=Unread(why="Connection refused.", fix="Start it"))),
            "dispatch-api",
            id="a dispatch that is away",
        ),
        pytest.param(
            a_fleet(github=Unread(why="The key is another App's.", fix="Check the key")),
            "github",
            id="a GitHub that does not know the App",
        ),
    ],
)
def test_what_is_away_is_itself_the_fault(facts: Facts, failing: str) -> None:
    found = find(failing, facts)
    assert found.level is FAIL
    assert found.evidence
    assert found.fix
    others = {n: f for n, f in findings(facts).items() if n != failing and f.level is FAIL}
    assert others == {}, "one cause is one fault"


@pytest.mark.parametrize(("check", "facts", "level", "words"), CASES)
def test_a_check(check: str, facts: Facts, level: Level, words: tuple[str, ...]) -> None:
    found = find(check, facts)
    said = "\n".join((found.sentence, *found.evidence, found.fix))
    assert found.level is level, said
    for word in words:
        assert word in said
    if level in {WARN, FAIL}:
        assert found.fix or found.evidence, "what to do about it is said"


def test_every_check_has_a_case_in_which_it_finds_something() -> None:
    rows = CASES
    tried = {p.values[0] for p in rows if p.values[2] in {WARN, FAIL}}  # type: ignore[attr-defined] # pytest's own
    apart = {"kubernetes-api", "dispatch-api", "github"}  # above
    apart |= {"kubernetes-clock", "dispatch-clock"} & tried
    assert tried | apart == {check.name for check in CHECKS}
