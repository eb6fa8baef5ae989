"""``remuda agent`` as a person meets it: settings that cannot be used, and what its options come to."""

from __future__ import annotations

import asyncio
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import yaml
from click.testing import CliRunner

from remuda.agent.decide.garbage import GarbagePolicy
from remuda.agent.settings import Deadlines
from remuda.cli.agent import _command, agent
from remuda.cli.agent_options import Told, agent_settings, deadlines
from remuda.cli.main import remuda

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.adapters.kube_client import Connection
    from remuda.agent.settings import AgentSettings

SERVER = "http://127.0.0.1:9"


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Return a kubeconfig of a server that nobody runs."""
    config = {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": SERVER}}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return file


def told(*arguments: str) -> Told:
    """Read a command line as the command does."""
    given = ["--fleet=minis", "--dispatch-url=http://dispatch", *arguments]
    return Told(**agent.make_context("agent", given).params)


def settings(*arguments: str) -> AgentSettings:
    return agent_settings(told(*arguments), SERVER)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--fleet="], "The fleet has no name", id="no fleet"),
        pytest.param(["--fleet=two words"], "label", id="a fleet that no label can hold"),
        pytest.param(["--dispatch-url="], "Give --dispatch-url", id="no dispatch"),
        pytest.param(["--dispatch-url=dispatch"], "not a URL", id="a dispatch that is no URL"),
        pytest.param(["--node-name=Mac_1"], "small letters", id="a name that no Node can have"),
        pytest.param(["--listen=here"], "not host:port", id="an address that is none"),
        pytest.param(["--kubelet-listen=:99999"], "65535", id="a port that is none"),
        pytest.param(["--address=localhost"], "no IP address", id="a name for an address"),
        pytest.param(["--label=rack"], "not KEY=VALUE", id="a label without a value"),
        pytest.param(["--label=remuda.dev/fleet=x"], "own", id="a label of ours"),
        pytest.param(["--label=kubernetes.io/x=y"], "no node", id="a label of Kubernetes' own"),
        pytest.param(["--label=a b=c"], "cannot be used", id="a label that is none"),
        pytest.param(["--deadline=nap=3"], "CALL=SECONDS", id="a deadline of no call"),
        pytest.param(["--deadline=clone=nan"], "CALL=SECONDS", id="a deadline that is no number"),
        pytest.param(["--deadline=clone=0"], "CALL=SECONDS", id="a deadline that is over at once"),
        pytest.param(["--memory=lots"], "--memory", id="memory that is no quantity"),
        pytest.param(["--memory=-1Gi"], "below nothing", id="less than no memory"),
        pytest.param(["--memory=1"], "--memory", id="memory for no VM"),
        pytest.param(["--cpus=0"], "range", id="no CPU"),
        pytest.param(["--gc-interval=nan"], "not a number", id="an interval that is none"),
        pytest.param(["--ready-timeout=inf"], "range", id="a time without an end"),
        pytest.param(["--disk-low=0"], "range", id="no mark for a full disk"),
        pytest.param(["--driver=vbox"], "Invalid value", id="a driver that is none"),
        pytest.param(["--log-format=xml"], "Invalid value", id="a log format that is none"),
    ],
)
def test_a_setting_that_cannot_be_used_ends_it_with_2_and_what_to_do(
    kubeconfig: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    given = [
        *("--fleet=minis", "--dispatch-url=http://dispatch"),
        *(f"--kubeconfig={kubeconfig}", f"--data={tmp_path / 'data'}", "--driver=process"),
    ]
    answer = CliRunner().invoke(remuda, ["agent", *given, *arguments])
    assert answer.exit_code == 2, answer.output
    assert said in answer.output
    assert "Traceback" not in answer.output
    assert not (tmp_path / "data").exists(), "nothing is made before all is read"


def test_a_kubeconfig_that_is_not_there_ends_it_with_2(tmp_path: Path) -> None:
    given = ["--fleet=minis", "--dispatch-url=http://d", f"--kubeconfig={tmp_path / 'none'}"]
    answer = CliRunner().invoke(remuda, ["agent", *given])
    assert answer.exit_code == 2
    assert "fix:" in answer.output


def test_every_option_can_come_from_the_environment(kubeconfig: Path) -> None:
    env = {
        "REMUDA_KUBECONFIG": str(kubeconfig),
        "REMUDA_FLEET": "minis",
        "REMUDA_DISPATCH_URL": "http://dispatch",
        "REMUDA_LISTEN": "nowhere",
        "REMUDA_DEADLINE": "clone=3 delete=4",
        "REMUDA_LABEL": "rack=3 row=4",
    }
    answer = CliRunner().invoke(remuda, ["agent"], env=env)
    assert answer.exit_code == 2
    assert "'nowhere' cannot be served on" in answer.output
    for option in agent.params:
        name = option.opts[0].removeprefix("--").upper().replace("-", "_")
        assert option.envvar == f"REMUDA_{name}"


def test_the_lease_has_credentials_of_its_own(kubeconfig: Path, tmp_path: Path) -> None:
    """It is renewed on a loop of its own: a plugin that both loops asked at once would answer neither."""
    plugin = tmp_path / "plugin"
    version = "client.authentication.k8s.io/v1"
    status = {"token": "t", "expirationTimestamp": "2020-01-01T00:00:00Z"}
    said = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
    plugin.write_text(f"#!/bin/sh\nsleep 0.1\necho '{said}'\n")
    plugin.chmod(0o700)
    config = yaml.safe_load(kubeconfig.read_text())
    asked = {"command": str(plugin), "apiVersion": version, "interactiveMode": "Never"}
    config["users"] = [{"name": "node", "user": {"exec": asked}}]
    config["contexts"][0]["context"]["user"] = "node"
    kubeconfig.write_text(yaml.safe_dump(config))
    command = _command(told(f"--kubeconfig={kubeconfig}"))

    async def ask(connection: Connection) -> int:
        given = await asyncio.gather(*(connection.credentials.current() for _ in range(3)))
        return len(given)

    with ThreadPoolExecutor(max_workers=1) as pool:
        lease = pool.submit(lambda: asyncio.run(ask(command.lease_connection)))
        assert asyncio.run(ask(command.connection)) == 3
        assert lease.result(60) == 3


def test_each_option_is_read() -> None:
    assert {field.name for field in fields(Told)} == {option.name for option in agent.params}


def test_a_mac_offers_two_vms_and_keeps_memory_for_itself() -> None:
    offer = settings("--driver=tart").offer
    whole_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024**2
    assert offer.vms == 2
    assert offer.pods > offer.vms, "Pods of others must not take the VMs' places"
    assert 0 < offer.memory_mib <= whole_mib - 2048


def test_another_host_offers_a_vm_for_each_cpu_unless_told_otherwise() -> None:
    assert settings("--driver=qemu", "--cpus=6").offer.vms == 6
    offer = settings("--driver=qemu", "--vms=3", "--cpus=12", "--memory=14Gi").offer
    assert (offer.vms, offer.cpus, offer.memory_mib) == (3, 12, 14 * 1024)


def test_options_reach_the_settings() -> None:
    made = settings(
        *("--node-name=mac-1", "--label=rack=3", "--label=example.org/row=", "--address=10.0.0.7"),
        *("--provider-id=x://1", "--ready-timeout=7", "--stop-grace=3", "--look-interval=2"),
        *("--disable-vm-gc", "--gc-interval=11", "--keep-images=172800", "--orphan-grace=13"),
        *("--heartbeat=1.5", "--status-interval=9", "--resync=60"),
        *("--disk-low=0.2", "--disk-reclaim=0.3", "--disk-reserve=1Gi"),
    )
    assert (made.node, made.fleet, made.address, made.provider_id) == (
        *("mac-1", "minis", "10.0.0.7", "x://1"),
    )
    assert made.labels == {"rack": "3", "example.org/row": ""}
    assert (made.ready_timeout_s, made.stop_grace_s, made.look_s) == (7, 3, 2)
    assert (made.garbage.enabled, made.garbage_s) == (False, 11)
    assert made.garbage.golden_kept == timedelta(days=2)
    assert made.garbage.running_grace == made.garbage.stopped_grace == timedelta(seconds=13)
    assert (made.heartbeat_s, made.status_s, made.resync) == (1.5, 9, timedelta(minutes=1))
    assert made.lease_duration_s >= 3 * made.heartbeat_s, "a Lease outlasts renewals that fail"
    assert made.disk.host_free_low == 0.2 < made.disk.host_free_ok
    assert made.disk.reclaim_below == 0.3 < made.disk.reclaim_until
    assert made.disk.keep_free_bytes == 1024**3


def test_without_options_the_settings_are_those_of_the_agent() -> None:
    made = settings()
    assert (made.garbage.enabled, made.garbage_s) == (True, 300)
    assert made.garbage == GarbagePolicy()
    assert (made.lease_duration_s, made.ready_timeout_s) == (40, 600)
    assert deadlines(()) == Deadlines()


def test_a_deadline_is_changed_alone() -> None:
    changed = deadlines(("clone=7", "pull_idle=3600"))
    assert changed == Deadlines(clone=7, pull_idle=3600)


def test_the_address_is_the_one_that_faces_the_server() -> None:
    assert settings().address == "127.0.0.1"


def test_a_server_that_cannot_be_found_is_no_reason_not_to_start() -> None:
    assert agent_settings(told(), "https://nowhere.invalid:6443").address == ""


def test_stage_without_an_agent_says_so(tmp_path: Path) -> None:
    answer = CliRunner().invoke(remuda, ["agent", "stage", f"--data={tmp_path}", "image:1"])
    assert answer.exit_code == 1
    assert "no agent could be asked" in str(answer.exception)
