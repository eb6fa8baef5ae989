"""Our launchd jobs: they load, they hold only what launchd knows, and the agent's says what it must."""

from __future__ import annotations

import plistlib
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from remuda.cli.agent import agent
from remuda.hosts.decide.agent_job import GC_OFF, agent_job
from remuda.hosts.decide.launchd import Job, arguments_of, pid_of
from remuda.hosts.decide.parts import firewall, logs, ssh_guard, watchdog
from remuda.kube.host import Role
from remuda.model.errors import BadInput
from tests.unit.hosts.a_mac import a_fleet, an_own

STRINGS = list
# launchd.plist(5): the keys that we use, and what each may hold.
SCHEMA: dict[str, type] = {
    "Label": str,
    "ProgramArguments": STRINGS,
    "UserName": str,
    "WorkingDirectory": str,
    "StandardOutPath": str,
    "StandardErrorPath": str,
    "EnvironmentVariables": dict,
    "SoftResourceLimits": dict,
    "ProcessType": str,
    "RunAtLoad": bool,
    "KeepAlive": bool,
    "AbandonProcessGroup": bool,
    "StartInterval": int,
    "ThrottleInterval": int,
    "ExitTimeOut": int,
}
INSIDE: dict[str, type] = {
    "ProgramArguments": str,
    "EnvironmentVariables": str,
    "SoftResourceLimits": int,
}
PROCESS_TYPES = {"Background", "Standard", "Adaptive", "Interactive"}
JOBS = [
    pytest.param(agent_job(a_fleet(), an_own()), id="the agent of a runner"),
    pytest.param(agent_job(a_fleet(), an_own(Role.BUILDER)), id="the agent of a builder"),
    pytest.param(watchdog.JOB, id="the watch over SSH"),
    pytest.param(logs.job(1024), id="the bound of logs"),
    pytest.param(firewall.JOB, id="the firewall's rules"),
    pytest.param(ssh_guard.JOB, id="the guard of SSH's rules"),
]


def _problems(plist: dict[str, Any]) -> list[str]:
    found = [f"{key} is unknown" for key in plist if key not in SCHEMA]
    found += [
        f"{key} is no {SCHEMA.get(key)}" for key in plist if type(plist[key]) is not SCHEMA.get(key)
    ]
    found += [f"{key} is not there" for key in ("Label", "ProgramArguments") if not plist.get(key)]
    for key, kind in INSIDE.items():
        held = plist.get(key, [])
        found += [
            key for v in (held.values() if isinstance(held, dict) else held) if type(v) is not kind
        ]
    if plist.get("ProcessType", "Standard") not in PROCESS_TYPES:
        found.append("ProcessType")
    return found


@pytest.mark.parametrize("job", JOBS)
def test_a_job_is_one_that_launchd_takes(job: Job) -> None:
    plist = plistlib.loads(job.plist())
    assert _problems(plist) == []
    assert plist["Label"] == job.label
    assert job.path == f"/Library/LaunchDaemons/{job.label}.plist"
    assert plist["ProgramArguments"][0].startswith("/"), "launchd searches no PATH"


def test_the_schema_finds_a_job_that_launchd_would_refuse() -> None:
    assert _problems({"Label": "x", "ProgramArguments": ["/bin/sh"], "KeepAlive": 1}) != []
    assert _problems({"Label": "x", "ProgramArguments": ["/bin/sh"], "Keepalive": True}) != []
    assert _problems({"Label": "x", "ProgramArguments": ["/bin/sh", 1]}) != []
    assert _problems({"Label": "x"}) != []


@pytest.mark.parametrize("value", ["a&b", "<x>", "]]>", '"', "'", "é", "a b", "--"])
def test_any_value_survives_the_file(value: str) -> None:
    job = agent_job(replace(a_fleet(), dispatch_url=value), an_own())
    assert f"--dispatch-url={value}" in arguments_of(job.plist())


@pytest.mark.parametrize("role", sorted(Role))
def test_garbage_is_collected_everywhere_but_on_builders_and_builders_offer_no_vm(
    role: Role,
) -> None:
    words = arguments_of(agent_job(a_fleet(), an_own(role)).plist())
    builder = role is Role.BUILDER
    assert (GC_OFF in words) is builder
    assert ("--vms=0" in words) is builder
    assert ("--vms=2" in words) is not builder


@pytest.mark.parametrize(
    "flag", ["--disable-vm-gc", "--vms", "--node-name", "--kubeconfig", "--cpus", "resync", "--a b"]
)
def test_an_option_that_is_not_the_fleets_to_choose_is_refused(flag: str) -> None:
    fleet = replace(a_fleet(), agent_flags=((flag, ""),))
    for role in Role:
        with pytest.raises(BadInput):
            agent_job(fleet, an_own(role))


def test_options_are_sorted_so_that_the_same_host_has_the_same_file() -> None:
    words = arguments_of(agent_job(a_fleet(), an_own()).plist())[2:]
    assert list(words) == sorted(words)


def test_the_agent_knows_every_option_that_it_is_started_with() -> None:
    # --help of the real command is asked: an option that was renamed there would crash-loop every host.
    known = {name for option in agent.params for name in option.opts}
    for role in Role:
        full = replace(an_own(role), cpus=8)
        words = arguments_of(agent_job(a_fleet(), full).plist())
        assert words[1] == "agent"
        assert {word.partition("=")[0] for word in words[2:]} <= known
    assert CliRunner().invoke(agent, ["--no-such-option"]).exit_code == 2


@pytest.mark.parametrize(
    ("printed", "pid"),
    [
        pytest.param("x = {\n\tstate = running\n\tpid = 415\n}", 415, id="it runs"),
        pytest.param("x = {\n\tstate = not running\n}", None, id="it does not run"),
        pytest.param("x = {\n\tlast pid = 3\n\trss pid = 4\n}", None, id="another number"),
    ],
)
def test_the_process_of_a_job_is_read(printed: str, pid: int | None) -> None:
    assert pid_of(printed) == pid


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"<plist><array/></plist>", b"<plist", b"bplist00\xff\xff"]
)
def test_a_file_that_is_no_job_runs_nothing(content: bytes) -> None:
    assert arguments_of(content) == ()
