from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from remuda.cli.sim import Duration, sim
from remuda.sim.scenario import Options, replay_command
from remuda.sim.scenarios import SCENARIOS
from remuda.sim.scenarios.keep_n.story import KEEP_N

if TYPE_CHECKING:
    from pathlib import Path


def run_sim(*arguments: str) -> Result:
    return CliRunner().invoke(sim, arguments)


def test_the_list_names_each_scenario_what_it_checks_and_its_guards() -> None:
    result = run_sim("--list")

    assert result.exit_code == 0
    assert "keep-n" in result.output
    assert "S8 fencing" in result.output
    assert "--break fencing" in result.output


def test_the_list_can_be_read_by_a_program() -> None:
    lines = run_sim("--list", "-o", "json").output.splitlines()

    breaks = {found["name"]: found["breaks"] for found in map(json.loads, lines)}
    assert set(breaks) == set(SCENARIOS)
    assert "relist" in breaks["keep-n"]
    assert "roll_cap" in breaks["roll-pull-wave"]


def test_a_good_run_shows_its_timeline_and_ends_with_0() -> None:
    result = run_sim("--scenario", "keep-n", "--seed", "2", "--until", "2m")

    assert result.exit_code == 0
    assert "ctl-a     starts (life-1)" in result.output
    assert "the faults stop" in result.output
    assert (
        "ok: S2 no kill, S3 caps, S8 fencing, V8 converged, V8 quiet, no bugs held" in result.output
    )
    assert "x real time" in result.output
    assert "replay       remuda sim --scenario keep-n --seed 2 --until 120s" in result.output


def test_no_time_at_all_is_a_time() -> None:
    result = run_sim("--scenario", "keep-n", "--until", "0s", "-o", "json")

    report = json.loads(result.output)
    assert report["replay"] == "remuda sim --scenario keep-n --seed 1 --until 0s"
    assert report["disturbances"] == {}


@pytest.mark.parametrize("until_s", [0.0, 0.25, 90.0, 123456.75, 12 * 86400.0])
def test_a_replay_says_a_time_that_can_be_read_back_exactly(until_s: float) -> None:
    command = replay_command(KEEP_N, 1, Options(until_s=until_s))

    assert Duration().convert(command.rpartition(" ")[2], None, None) == until_s


def test_a_violated_invariant_ends_with_1_and_says_how_to_see_it_again() -> None:
    result = run_sim("--scenario", "keep-n", "--break", "names", "--until", "2m")

    assert result.exit_code == 1
    assert "S3 caps violated at" in result.output
    assert (
        "replay: remuda sim --scenario keep-n --seed 1 --until 120s --break names" in result.output
    )


def test_a_sweep_tells_each_seed_and_the_sum() -> None:
    result = run_sim("--scenario", "keep-n", "--seed", "3", "--seeds", "2", "--until", "1m")

    assert result.exit_code == 0
    assert "seed 3" in result.output
    assert "seed 4" in result.output
    assert "2 of 2 seeds held every invariant" in result.output


def test_a_sweep_with_a_bad_seed_ends_with_1() -> None:
    result = run_sim("--scenario", "keep-n", "--seeds", "2", "--until", "1m", "--break", "names")

    assert result.exit_code == 1
    assert "0 of 2 seeds held every invariant" in result.output


def test_the_report_can_be_read_by_a_program() -> None:
    result = run_sim("--scenario", "keep-n", "--until", "1m", "-o", "json")

    report = json.loads(result.output)
    assert report["ok"] is True
    assert report["scenario"] == "keep-n"
    assert report["virtual_s"] > 60
    assert report["violations"] == []


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_trace_is_written_one_event_per_line(tmp_path: Path, output: str) -> None:
    file = tmp_path / "trace"
    result = run_sim("--scenario", "keep-n", "--until", "1m", "--trace", str(file), "-o", output)

    assert result.exit_code == 0
    head, *lines = file.read_text().splitlines()
    assert len(lines) > 50
    if output == "json":
        assert json.loads(head)["trace"] == 1
        assert {json.loads(line)["actor"] for line in lines} >= {"ctl-a", "ctl-b", "owner"}
    else:
        assert head.startswith("# remuda trace v1 scenario=keep-n seed=1 replay: remuda sim")
        assert all(len(line.split(" # ")[0].split(" ")) == 5 for line in lines)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param([], "Say what to run", id="nothing to run"),
        pytest.param(["--scenario", "keepn"], "Did you mean keep-n?", id="a near miss"),
        pytest.param(["--scenario", "xyzzy"], "See: remuda sim --list", id="an unknown scenario"),
        pytest.param(["--scenario", "keep-n", "--break", "x"], "It has: fencing, names", id="an unknown guard"),
        pytest.param(["--scenario", "keep-n", "--until", "soon"], "like 90s, 30m, 24h", id="no duration"),
        pytest.param(["--scenario", "keep-n", "--seeds", "2", "--trace", "-"], "for one seed", id="a trace of many"),
    ],
)  # fmt: skip
def test_usage_errors_end_with_2_and_say_what_to_do(arguments: list[str], said: str) -> None:
    result = run_sim(*arguments)

    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
