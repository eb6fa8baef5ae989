"""
What once happened to fleets of Macs, each told twice: with what guards against it, and with that switched off.

The Mac is the scripted one behind a real sshd. With its guard off an incident happens as it did in the field, without a
word; so each of these tests notices when its guard is taken out. Each begins with the incident's name.
"""

from __future__ import annotations

import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from remuda.agent.guards import ALL as AGENT
from remuda.agent.guards import Guards as AgentGuards
from remuda.hosts.converge import StepFailed, StepFailedForGood
from remuda.hosts.decide import kcpassword
from remuda.hosts.decide.pf_conf import BLOCK
from remuda.hosts.guards import Guards
from remuda.hosts.parts import parts_with
from remuda.kube.host import Role
from remuda.model.secret import Secret
from tests.support.scripted_mac.bakery import a_bakery, settings_of
from tests.support.scripted_mac.bootstrapping import MacClock
from tests.support.scripted_mac.mac import (
    LEGACY,
    Mac,
    conf,
    prepared_by_another,
    without_loginwindow,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.scripted_mac.bootstrapping import Run

KCPASSWORD = "/private/etc/kcpassword"
WRONG = "canary-of-yesterdays-password"


def run_without(mac: Mac, *broken: str, **changed: object) -> Run:
    """Return a run of all parts, with these guards switched off."""
    return replace(mac.run(**changed), parts=parts_with(Guards.without(*broken)))


# --- kcpassword-sealed -----------------------------------------------------------------------------------------------


async def test_kcpassword_sealed_a_wrong_password_fails_loudly(mac: Mac) -> None:
    prepared_by_another(mac)

    clock = MacClock()
    with pytest.raises(StepFailedForGood, match="the password is wrong") as caught:
        await replace(mac.run(password=WRONG), clock=clock).converge()
    assert clock.slept_s == 0, "what is sealed stays sealed: nobody waits for a session"
    assert caught.value.step == "auto-login"
    assert "remuda host prepare" in str(caught.value)
    assert WRONG not in "".join(traceback.format_exception(caught.value))


async def test_kcpassword_sealed_without_reading_back_it_is_silent_for_ever(mac: Mac) -> None:
    prepared_by_another(mac)

    assert "auto-login" in (await run_without(mac, "read_back", password=WRONG).converge()).changed
    assert kcpassword.is_sealed(Secret(mac.file(KCPASSWORD)))
    assert not mac.state()["aqua"], "and so no VM ever starts there"
    again = await run_without(mac, "read_back", password=WRONG).converge()
    assert again.changed == (), "the next run finds nothing wrong, nor does any other"


# --- loginwindow-gone ------------------------------------------------------------------------------------------------


async def test_loginwindow_gone_launchd_starts_another(mac: Mac) -> None:
    await mac.bootstrapped()
    without_loginwindow(mac)

    assert (await mac.run().converge()).changed == ("auto-login",)
    assert mac.state()["aqua"]


async def test_loginwindow_gone_it_cannot_be_signalled(mac: Mac) -> None:
    await mac.bootstrapped()
    without_loginwindow(mac)

    with pytest.raises(StepFailed, match="No matching processes"):
        await run_without(mac, "kickstart").converge()
    assert not mac.state()["aqua"]


# --- pf-anchor-twice -------------------------------------------------------------------------------------------------

MOVED = (BLOCK, "set skip on lo0\n")
"""Somebody appended a line of their own after our block."""
HISTORIES = {
    "legacy and marked": (LEGACY,),
    "appended to": MOVED,
    "doubled already": (BLOCK, BLOCK),
}


@pytest.mark.parametrize("blocks", HISTORIES.values(), ids=HISTORIES.keys())
async def test_pf_anchor_twice_there_is_one_block_after_any_history(
    mac: Mac, blocks: tuple[str, ...]
) -> None:
    await mac.bootstrapped()
    conf(*blocks)(mac)

    await mac.run().converge()
    text = mac.file("/private/etc/pf.conf").decode()
    assert (text.count('load anchor "remuda.runners"'), text.endswith(BLOCK)) == (1, True)
    await mac.reboot()
    pf = mac.state()["pf"]
    assert 'nat-anchor "com.apple/*"' in pf["main"]  # type: ignore[index]
    assert pf["anchors"]["remuda.runners"]  # type: ignore[index]


@pytest.mark.parametrize("blocks", HISTORIES.values(), ids=HISTORIES.keys())
async def test_pf_anchor_twice_without_stripping_guests_lose_network_and_firewall_at_the_next_boot(
    mac: Mac, blocks: tuple[str, ...]
) -> None:
    await mac.bootstrapped()
    conf(*blocks)(mac)

    await run_without(mac, "strip_blocks").converge()
    assert (await run_without(mac, "strip_blocks").converge()).changed == (), "and nothing is wrong"
    await mac.reboot()
    assert mac.state()["pf"]["main"] == []  # type: ignore[index]


# --- gc-on-builder ---------------------------------------------------------------------------------------------------


def arguments(mac: Mac) -> list[str]:
    """Return the words with which launchd runs the agent."""
    services = mac.state()["services"]
    return list(services["system/dev.remuda.agent"]["arguments"])  # type: ignore[index]


GC_ON, UNOWNED = ("builder_gc_off",), AgentGuards(ownership=False)


@pytest.mark.parametrize(
    ("broken", "agent", "survives"),
    [
        pytest.param((), AGENT, True, id="a builder is left alone twice over"),
        pytest.param(GC_ON, AGENT, True, id="an agent that collects touches nothing but its own"),
        pytest.param((), UNOWNED, True, id="an agent that knows no bounds is told not to collect"),
        pytest.param(
            GC_ON, UNOWNED, False, id="without both the image goes in the midst of its push"
        ),
    ],
)
async def test_gc_on_builder(
    mac: Mac, tmp_path: Path, broken: tuple[str, ...], agent: AgentGuards, *, survives: bool
) -> None:
    await mac.bootstrapped()
    await run_without(mac, *broken, role=Role.BUILDER).converge()
    settings = settings_of(arguments(mac), tmp_path, agent)
    assert settings.garbage.enabled is bool(broken)

    async with a_bakery(tmp_path, settings) as bakery:
        assert bakery.is_pushed_still
        await bakery.tidy_up()
        assert bakery.is_pushed_still is survives
