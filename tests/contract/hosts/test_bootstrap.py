"""A Mac behind a real sshd becomes what it should be, from every state that Macs are found in."""

from __future__ import annotations

import logging
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from remuda.adapters.ssh import SshShells
from remuda.hosts.converge import HostHasProblems, StepFailed, StepFailedForGood
from remuda.hosts.decide import kcpassword
from remuda.hosts.decide.pf_conf import BLOCK
from remuda.hosts.in_use import what_runs
from remuda.hosts.over_ssh import SshConverger
from remuda.kube.host import Role
from remuda.model.secret import Secret
from remuda.ports.host_shell import HostShellError
from tests.support.scripted_mac import snapshots
from tests.support.scripted_mac.bootstrapping import BAD_AGENT, GOOD_AGENT, Kills, MacClock
from tests.support.scripted_mac.mac import LEGACY, Mac, conf, sealed, without_loginwindow

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.hosts.decide.plan import Plan
    from remuda.hosts.decide.step import Step


class Heard:
    """Every line that a person would see."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def planned(self, planned: Plan) -> None:
        self.lines += [repr(planned)]

    def begun(self, step: Step) -> None:
        self.lines += [step.name, step.reason, *step.diff]

    def done(self, step: Step, *, changed: bool) -> None:
        self.lines += [f"{step.name} {changed}"]


async def test_a_fresh_host_converges_and_the_second_run_does_nothing(
    mac: Mac, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    snapshots.put_back(mac.place, mac.fresh)
    heard = Heard()
    first = replace(mac.run(), progress=heard)
    mac.steps = (await first.converge()).changed
    assert mac.steps[:2] == ("sudo", "auto-login")
    after = snapshots.taken(mac.place)
    assert mac.state()["aqua"]

    second = mac.run()
    assert (await second.converge()).changed == ()
    assert snapshots.changed(after, snapshots.taken(mac.place)) == []
    assert len(second.ran) < len(first.ran) / 2, "it only looked"
    mac.whole = after

    told = "".join(heard.lines) + caplog.text
    for secret in (mac.place.password, "canary-of-the-kubeconfig"):
        assert secret not in told
        assert secret.encode() not in mac.place.seen(), (
            "a program on the host had it among its words"
        )
    encoded = kcpassword.encode(Secret(mac.place.password.encode())).reveal()
    assert encoded not in mac.place.seen()
    assert mac.file("/private/etc/kcpassword") == encoded


def half_bootstrapped(mac: Mac) -> None:
    """Leave what a run leaves that was killed in several places: new files beside the old, jobs not loaded."""
    place = mac.place
    for leftover in ("private/etc/kcpassword", "private/etc/pf.conf", "usr/local/bin/remuda-agent"):
        place.path(f"{leftover}.remuda-new").write_bytes(b"half a fi")
        place.path(f"{leftover}.staged").write_bytes(b"half a fi")
    (place.root / "usr/local/lib/remuda-tart.new").mkdir()
    place.path("/usr/local/bin/tart").unlink()
    place.path("/private/var/lib/remuda/agent.proven").unlink(missing_ok=True)
    mac.state(services={})


def a_wrong_password(mac: Mac) -> None:
    """Leave a password that is not the account's, as it is before macOS has tried it."""
    mac.place.path("/private/etc/kcpassword").write_bytes(
        kcpassword.encode(Secret(b"of another year")).reveal()
    )


DAMAGE: dict[str, Callable[[Mac], None]] = {
    "half bootstrapped": half_bootstrapped,
    "a legacy block without markers": conf(LEGACY),
    "a doubled block": conf(BLOCK, BLOCK),
    "a marked and a legacy block": conf(BLOCK, LEGACY),
    "a wrong password": a_wrong_password,
    "a sealed password": sealed,
    "no login window": without_loginwindow,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
async def test_a_host_converges_from_what_others_left(
    mac: Mac, damage: Callable[[Mac], None]
) -> None:
    await mac.bootstrapped()
    damage(mac)
    assert (await mac.run().converge()).changed
    after = snapshots.taken(mac.place)
    assert mac.state()["aqua"]
    assert (
        mac.file("/private/etc/pf.conf").decode()
        == mac.fresh["private/etc/pf.conf"][3].decode() + BLOCK
    )

    assert (await mac.run().converge()).changed == ()
    assert snapshots.changed(after, snapshots.taken(mac.place)) == []


async def test_killed_in_any_step_and_run_again_it_converges_to_the_same(mac: Mac) -> None:
    whole = await mac.bootstrapped()
    snapshots.put_back(mac.place, mac.fresh)

    kills = Kills()  # in each step once: before one of its changes, or in the midst of it
    while await replace(mac.run(), progress=kills, kills=kills).is_killed():
        assert len(kills.struck) <= len(mac.steps)
    assert mac.steps
    assert set(mac.steps) <= kills.struck.keys()
    assert {midway for midway, _ in kills.struck.values()} == {True, False}
    assert len({nth for _, nth in kills.struck.values()}) > 1, "not always at the first change"
    after = snapshots.taken(mac.place)
    differ = [name for name in snapshots.changed(whole, after) if name != snapshots.STATE]
    assert [name for name in differ if not name.startswith("private/var/log")] == []
    assert mac.state()["aqua"]
    assert (await mac.run().converge()).changed == ()


async def test_a_wrong_password_is_tried_once_and_nothing_else_is_done(mac: Mac) -> None:
    snapshots.put_back(mac.place, mac.fresh)
    wrong = "canary-" + "of-a-wrong-password"
    with pytest.raises(StepFailedForGood, match="password is wrong") as caught:
        await mac.run(password=wrong).converge()
    assert wrong not in "".join(traceback.format_exception(caught.value))
    assert mac.state()["wrong_passwords"] == 1
    changed = snapshots.changed(mac.fresh, snapshots.taken(mac.place))
    assert changed == [snapshots.STATE], "only the count of wrong passwords"
    assert wrong.encode() not in mac.place.seen()


async def test_without_a_password_sudo_is_never_asked_for_one(mac: Mac) -> None:
    snapshots.put_back(mac.place, mac.fresh)
    with pytest.raises(HostHasProblems, match="no way to become root"):
        await mac.run(password=None).converge()
    assert snapshots.changed(mac.fresh, snapshots.taken(mac.place)) == []
    assert b"-S" not in mac.place.seen()


async def test_an_agent_that_crashes_is_noticed_and_the_one_before_is_put_back(mac: Mac) -> None:
    await mac.bootstrapped()
    with pytest.raises(StepFailed, match="agent") as caught:
        await mac.run(agent=BAD_AGENT).converge()
    assert caught.value.step == "agent"
    assert "The agent from before is back and runs" in caught.value.why
    assert mac.file("/usr/local/bin/remuda-agent") == GOOD_AGENT
    services = mac.state()["services"]
    assert services["system/dev.remuda.agent"]["pid"]  # type: ignore[index]
    assert (await mac.run().converge()).changed == ()


async def test_a_host_that_hangs_up_is_an_error_and_not_a_change(mac: Mac) -> None:
    with pytest.raises(HostShellError):
        await replace(mac.run(), target=mac.place.target(port=1)).converge()


async def test_what_runs_is_told_by_the_macs_own_tart(mac: Mac) -> None:
    await mac.bootstrapped()
    shells, shell = await mac.run().opened()
    assert await what_runs(shell) == ()
    mac.state(vms=["packer-1"])
    assert await what_runs(shell) == ("the VM packer-1",)
    await shells.close(shell)


def arguments(mac: Mac) -> list[str]:
    """Return the words with which launchd runs the agent."""
    services = mac.state()["services"]
    return list(services["system/dev.remuda.agent"]["arguments"])  # type: ignore[index]


async def test_a_fresh_host_becomes_a_builder_and_the_second_run_does_nothing(mac: Mac) -> None:
    snapshots.put_back(mac.place, mac.fresh)
    changed = (await mac.run(role=Role.BUILDER).converge()).changed
    assert (changed[:2], changed[-1]) == (("sudo", "auto-login"), "github-runner")
    assert "--disable-vm-gc" in arguments(mac)
    after = snapshots.taken(mac.place)

    assert (await mac.run(role=Role.BUILDER).converge()).changed == ()
    assert snapshots.changed(after, snapshots.taken(mac.place)) == []


async def test_a_runner_that_becomes_a_builder_collects_no_garbage_any_more(mac: Mac) -> None:
    await mac.bootstrapped()
    assert "--disable-vm-gc" not in arguments(mac), "a runner collects"

    changed = (await mac.run(role=Role.BUILDER).converge()).changed
    assert changed[0] == "agent", "before anything is built there"
    assert "--disable-vm-gc" in arguments(mac)
    assert "--vms=0" in arguments(mac)
    services = mac.state()["services"]
    assert services["gui/501/actions.runner.acme.mini-1"]["pid"]  # type: ignore[index]
    assert b"canary-of-the-token" not in mac.place.seen()

    after = snapshots.taken(mac.place)
    assert (await mac.run(role=Role.BUILDER).converge()).changed == ()
    assert snapshots.changed(after, snapshots.taken(mac.place)) == []

    await SshConverger(SshShells, mac.wish().wanted().fleet, (), clock=MacClock()).retire(
        mac.place.target(), Role.BUILDER
    )
    left = str(mac.state()["services"])
    assert ("actions.runner" in left, "dev.remuda.agent" in left) == (False, False)
    assert not mac.place.path("/opt/actions-runner/.runner").exists()
    snapshots.put_back(mac.place, after)

    # The flag follows from the role and from nothing else: whoever forgets the role makes a collector of it again.
    await mac.run().converge()
    assert "--disable-vm-gc" not in arguments(mac)
