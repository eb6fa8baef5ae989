"""The host operator from outside: what becomes of Hosts, Nodes and statuses, on virtual time."""

from __future__ import annotations

import pytest

from remuda.hosts.converge import StepFailed
from remuda.hosts.converging import Mode
from remuda.kube.core import EVENT, NODE, POD
from remuda.kube.host import HOST
from remuda.kube.names import HOST_DRAIN, HOST_KEY, PAUSED, RETRY
from remuda.kube.patches import MergePatch
from remuda.ports.host_shell import HostKeyChanged, LoginRefused, UploadUnreadable
from remuda.ports.kube import NotFound, Query
from tests.unit.hosts.ranch import SPACE, Ranch
from tests.unit.hosts.stories import a_vm, annotate, condition, play, unreachable


def test_a_static_host_becomes_ready_and_stays_quiet() -> None:
    async def story(ranch: Ranch) -> None:
        await ranch.host("mini")
        host = await ranch.phase("mini", "Ready")

        assert host.status.config_hash == "v1"
        assert host.status.host_key_fingerprint == "SHA256:first"
        assert host.status.address == "mini.test"
        assert condition(host, "Ready")[:2] == ("True", "Ready")
        assert ranch.macs.attempts == [("mini", Mode.FIRST, True)]
        await ranch.clock.sleep(600)
        again = await ranch.get("mini")
        assert again.resource_version == host.resource_version, "a host at rest costs no write"
        phases = [
            sample.labels["phase"]
            for metric in ranch.metrics.registry.collect()
            if metric.name == "remuda_host_phase"
            for sample in metric.samples
        ]
        assert phases == ["Ready"]

    play(story)


def test_the_host_key_is_kept_even_if_the_bootstrap_fails() -> None:
    async def story(ranch: Ranch) -> None:
        ranch.macs.errors = [unreachable()] * 2
        await ranch.host("mini")
        host = await ranch.until("mini", lambda h: (h.status.attempts or 0) == 1)

        assert host.status.host_key_fingerprint == "SHA256:first"
        assert host.status.config_hash == ""
        assert "Turn it on" in condition(host, "Converged")[2]
        host = await ranch.phase("mini", "Ready")
        assert not host.status.attempts
        assert host.status.failed_config_hash == ""

    play(story)


def test_another_host_key_stops_everything_until_a_person_says_which_is_right() -> None:
    async def story(ranch: Ranch) -> None:
        changed = HostKeyChanged("mini", why="another key", fix="Look", seen="SHA256:second")
        await ranch.host("mini")
        await ranch.phase("mini", "Ready")
        ranch.macs.errors = [changed]
        ranch.macs.config_hash = "v2"
        host = await ranch.phase("mini", "Failed")
        tried = len(ranch.macs.attempts)
        assert condition(host, "HostKeyTrusted")[0] == "False"
        await ranch.clock.sleep(4 * 3600)
        assert len(ranch.macs.attempts) == tried, "no time heals that"

        await annotate(ranch, "mini", **{HOST_KEY: "SHA256:second"})
        host = await ranch.phase("mini", "Ready")
        assert host.status.host_key_fingerprint == "SHA256:second"
        assert host.status.config_hash == "v2"
        assert HOST_KEY not in host.metadata.annotations

    play(story)


def test_a_login_that_is_refused_is_not_tried_in_a_row() -> None:
    async def story(ranch: Ranch) -> None:
        ranch.macs.errors = [
            LoginRefused("mini", why="the key is not taken", fix="Mend the Secret")
        ]
        await ranch.host("mini")
        await ranch.phase("mini", "Failed")
        await ranch.clock.sleep(20 * 60)
        assert len(ranch.macs.attempts) == 1
        await annotate(ranch, "mini", **{RETRY: "true"})
        await ranch.phase("mini", "Ready")

    play(story)


def test_a_static_host_is_rebooted_once_and_then_given_up() -> None:
    async def story(ranch: Ranch) -> None:
        ranch.macs.errors = [unreachable() for _ in range(9)]
        await ranch.host("mini")
        host = await ranch.phase("mini", "Failed")

        assert host.status.attempts == 8
        assert ranch.macs.reboots == ["mini.test"]
        assert "Turn it on" in condition(host, "Ready")[2]
        await ranch.clock.sleep(31 * 60)
        assert len(ranch.macs.attempts) == 9, "once more after a while"

    play(story)


def test_a_static_host_that_is_dead_is_given_up_too() -> None:
    async def story(ranch: Ranch) -> None:
        ranch.macs.dead = unreachable
        await ranch.host("mini")
        host = await ranch.phase("mini", "Failed")

        assert ranch.macs.reboots == ["mini.test"], "one try is enough"
        assert host.status.attempts == 8
        tried = len(ranch.macs.attempts)
        await ranch.clock.sleep(6 * 3600)
        assert len(ranch.macs.reboots) == 1
        assert tried < len(ranch.macs.attempts) <= tried + 12, "once in half an hour"

    play(story)


def test_a_wrong_login_is_tried_once_however_long_nobody_looks() -> None:
    async def story(ranch: Ranch) -> None:
        ranch.macs.dead = lambda: LoginRefused("mini", why="the key is not taken", fix="Mend it")
        await ranch.host("mini")
        host = await ranch.phase("mini", "Failed")
        assert "remuda.dev/retry" in condition(host, "Ready")[2]
        await ranch.clock.sleep(6 * 3600)
        assert (len(ranch.macs.attempts), len(ranch.macs.reboots)) == (1, 0)

        ranch.macs.dead = None
        await annotate(ranch, "mini", **{RETRY: "true"})
        await ranch.phase("mini", "Ready")

    play(story)


def test_a_file_that_the_operator_cannot_read_is_no_fault_of_a_host() -> None:
    async def story(ranch: Ranch) -> None:
        ranch.macs.errors = [UploadUnreadable("the agent", why="it is gone", fix="Put it back")]
        await ranch.host("mini")
        host = await ranch.until(
            "mini", lambda h: bool(ranch.macs.attempts) and h.status.phase != ""
        )
        assert not host.status.attempts
        await ranch.phase("mini", "Ready")
        assert len(ranch.macs.attempts) == 2, "it is tried again by itself"

    play(story)


def test_a_busy_host_is_drained_before_it_is_changed() -> None:
    async def story(ranch: Ranch) -> None:
        await ranch.host("mini")
        await ranch.phase("mini", "Ready")
        await a_vm(ranch, "vm", "mini")
        ranch.macs.harms, ranch.macs.config_hash = True, "v2"
        host = await ranch.phase("mini", "Draining")
        await ranch.clock.sleep(2 * 3600)
        assert [drained for _, _, drained in ranch.macs.attempts[1:]] == [False]
        node = await ranch.kube.get(NODE, "mini")
        assert node.spec.unschedulable
        host = await ranch.get("mini")
        assert "remuda/vm" in condition(host, "Draining")[2]

        await ranch.kube.delete(POD, "vm", namespace=SPACE, grace_s=0)
        await ranch.until("mini", lambda h: h.status.config_hash == "v2")
        assert ranch.macs.attempts[-1] == ("mini", Mode.DRIFT, True)
        await ranch.phase("mini", "Ready")
        node = await ranch.kube.get(NODE, "mini")
        assert not node.spec.unschedulable
        assert HOST_DRAIN not in node.metadata.annotations

    play(story)


def test_a_vm_that_comes_in_the_middle_of_an_attempt_is_not_ended() -> None:
    async def story(ranch: Ranch) -> None:
        await ranch.host("mini")
        await ranch.phase("mini", "Ready")
        await a_vm(ranch, "first", "mini")
        ranch.macs.harms, ranch.macs.config_hash = True, "v2"
        await ranch.phase("mini", "Draining")

        async def let_one_in() -> None:
            ranch.macs.midway = None
            opened = MergePatch({"spec": {"unschedulable": None}})
            await ranch.kube.patch(NODE, "mini", opened)
            await a_vm(ranch, "second", "mini")

        ranch.macs.midway = let_one_in
        await ranch.kube.delete(POD, "first", namespace=SPACE, grace_s=0)
        await ranch.until("mini", lambda _: ranch.macs.midway is None)
        await ranch.clock.sleep(3600)
        host = await ranch.get("mini")
        assert (host.status.phase, host.status.config_hash) == ("Draining", "v1")
        await ranch.kube.delete(POD, "second", namespace=SPACE, grace_s=0)
        await ranch.until("mini", lambda h: h.status.config_hash == "v2")

    play(story)


def test_a_credential_whose_renewal_would_end_vms_waits_for_them() -> None:
    async def story(ranch: Ranch) -> None:
        await ranch.host("mini")
        await ranch.phase("mini", "Ready")
        await a_vm(ranch, "vm", "mini")
        ranch.macs.harms = True
        due = MergePatch({"status": {"identityRenewAt": "2000-01-01T00:00:00Z"}})
        await ranch.kube.patch(HOST, "mini", due, namespace=SPACE, subresource="status")
        await ranch.phase("mini", "Draining")
        await ranch.clock.sleep(3600)
        assert len(ranch.macs.attempts) == 2, "it is not tried in a circle"
        assert (await ranch.kube.get(NODE, "mini")).spec.unschedulable

        await ranch.kube.delete(POD, "vm", namespace=SPACE, grace_s=0)
        await ranch.phase("mini", "Ready")
        assert ranch.macs.attempts[2:] == [("mini", Mode.DRIFT, True)]

    play(story)


def test_a_renewal_whose_login_is_refused_is_tried_once() -> None:
    async def story(ranch: Ranch) -> None:
        await ranch.host("mini")
        await ranch.phase("mini", "Ready")
        ranch.macs.dead = lambda: LoginRefused("mini", why="the key is not taken", fix="Mend it")
        due = MergePatch({"status": {"identityRenewAt": "2000-01-01T00:00:00Z"}})
        await ranch.kube.patch(HOST, "mini", due, namespace=SPACE, subresource="status")
        await ranch.clock.sleep(3 * 3600)
        assert len(ranch.macs.attempts) == 2
        host = await ranch.get("mini")
        assert (host.status.phase, condition(host, "Ready")[1]) == ("Ready", "RenewalFailed")
        assert "the key is not taken" in condition(host, "Ready")[2]

    play(story)


def test_a_paused_host_is_left_alone_and_can_still_be_deleted() -> None:
    async def story(ranch: Ranch) -> None:
        await ranch.host("mini")
        await ranch.phase("mini", "Ready")
        await annotate(ranch, "mini", **{PAUSED: "true"})
        await ranch.clock.sleep(10)
        ranch.macs.config_hash = "v2"
        await ranch.clock.sleep(3600)
        assert len(ranch.macs.attempts) == 1
        await ranch.kube.delete(HOST, "mini", namespace=SPACE)
        await ranch.gone("mini")
        assert ranch.events == ["identity of mini removed"]
        try:
            await ranch.kube.get(NODE, "mini")
        except NotFound:
            return
        raise AssertionError("the Node is still there")

    play(story)


async def four(ranch: Ranch) -> None:
    for name in "abcd":
        await ranch.host(name)
    for name in "abcd":
        await ranch.phase(name, "Ready")


def test_a_mac_that_is_off_halts_no_roll_and_gets_its_turn_later() -> None:
    async def story(ranch: Ranch) -> None:
        await four(ranch)
        ranch.macs.off.add("a")
        ranch.macs.config_hash = "v2"
        for name in "bcd":
            await ranch.until(name, lambda h: h.status.config_hash == "v2")
        host = await ranch.phase("a", "Failed")
        assert "nothing answers" in condition(host, "Ready")[2]
        ranch.macs.off.clear()
        await ranch.until("a", lambda h: h.status.config_hash == "v2")

    play(story)


def test_a_mac_that_is_off_since_it_got_the_new_configuration_halts_the_roll() -> None:
    async def story(ranch: Ranch) -> None:
        await four(ranch)
        ranch.macs.errors = [StepFailed("it", why="cut off", fix="Mend", step="firewall")]
        ranch.macs.config_hash = "v2"
        await ranch.until("a", lambda h: (h.status.attempts or 0) == 1)
        ranch.macs.off.add("a")
        await ranch.phase("a", "Failed")
        await ranch.clock.sleep(2 * 3600)
        assert {name for name, _, _ in ranch.macs.attempts[4:]} == {"a"}

    play(story)


async def lose_node(ranch: Ranch, name: str) -> None:
    """Let a Node go, and its agent with it."""
    await ranch.kube.delete(NODE, name)


def test_a_node_that_goes_missing_carries_no_configuration_past_the_roll() -> None:
    async def story(ranch: Ranch) -> None:
        names = ("a", "b", "c", "d", "e")
        for name in names:
            await ranch.host(name)
        for name in names:
            await ranch.phase(name, "Ready")
        ranch.macs.errors = [
            StepFailed("it", why="the agent ends", fix="Mend", step="agent") for _ in range(9)
        ]
        ranch.macs.config_hash = "v2"
        await ranch.phase("a", "Failed")
        tried = {name for name, _, _ in ranch.macs.attempts[5:]}
        assert tried == {"a"}, "one may fail before the rest is spared"
        await lose_node(ranch, "b")
        await ranch.clock.sleep(20 * 60)
        assert {name for name, _, _ in ranch.macs.attempts[5:]} == {"a"}
        host = await ranch.get("b")
        assert (host.status.phase, host.status.config_hash) == ("NotReady", "v1")
        assert "halted" in condition(host, "Ready")[2]

    play(story)


def test_a_node_that_is_gone_brings_its_host_back_in_its_turn() -> None:
    async def story(ranch: Ranch) -> None:
        for name in ("a", "b", "c"):
            await ranch.host(name)
        for name in ("a", "b", "c"):
            await ranch.phase(name, "Ready")
        await lose_node(ranch, "b")
        await ranch.until("b", lambda h: h.status.phase == "Bootstrapping")
        await ranch.phase("b", "Ready")
        assert ranch.macs.attempts[3:] == [("b", Mode.FIRST, True)]

    play(story)


def test_nothing_is_done_when_all_nodes_go_together() -> None:
    async def story(ranch: Ranch) -> None:
        names = ("a", "b", "c")
        for name in names:
            await ranch.host(name)
        for name in names:
            await ranch.phase(name, "Ready")
        for name in names:
            await lose_node(ranch, name)
        host = await ranch.until("a", lambda h: "at once" in condition(h, "Ready")[2])
        await ranch.clock.sleep(3600)
        assert len(ranch.macs.attempts) == 3
        assert host.status.phase == "NotReady"

        await annotate(ranch, "a", **{RETRY: "true"})
        await ranch.phase("a", "Ready")
        assert ranch.macs.attempts[3][0] == "a", "a person has looked"

    play(story)


def test_a_host_that_leaves_loses_its_agent_before_its_node() -> None:
    async def story(ranch: Ranch) -> None:
        await ranch.host("mini")
        await ranch.phase("mini", "Ready")
        await ranch.kube.delete(HOST, "mini", namespace=SPACE)
        await ranch.gone("mini")
        assert ranch.macs.retired == ["mini.test"]

    play(story)


@pytest.mark.parametrize("refused", [False, True])
def test_a_host_that_cannot_be_reached_leaves_all_the_same_and_says_what_stays(
    *, refused: bool
) -> None:
    async def story(ranch: Ranch) -> None:
        await ranch.host("mini")
        await ranch.phase("mini", "Ready")
        ranch.macs.dead = unreachable
        if refused:
            ranch.macs.dead = lambda: LoginRefused("mini", why="not taken", fix="Mend it")
            ranch.macs.config_hash = "v2"
            await ranch.phase("mini", "Failed")
        await ranch.kube.delete(HOST, "mini", namespace=SPACE)
        await ranch.gone("mini")
        assert ranch.macs.retired == ([] if refused else ["mini.test"]), "no second wrong login"
        await ranch.clock.sleep(60)
        events = (await ranch.kube.list(EVENT, Query(namespace=SPACE))).items
        assert [e.type for e in events if e.reason == "AgentLeft"] == ["Warning"]

    play(story)


def test_a_host_that_was_never_reached_has_no_agent_to_lose() -> None:
    async def story(ranch: Ranch) -> None:
        ranch.macs.dead = unreachable
        await ranch.host("mini")
        await ranch.until("mini", lambda h: bool(h.status.attempts))
        await ranch.kube.delete(HOST, "mini", namespace=SPACE)
        await ranch.gone("mini")
        assert ranch.macs.retired == []

    play(story)
