"""Builders under the operator: when a token is minted for one, from which Secret, and whose fault it is if none is."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from remuda.hosts.converging import Mode
from remuda.hosts.registration import App, AppUnusable, read_app
from remuda.kube.core import SECRET, Secret
from remuda.kube.host import (
    HOST,
    Builder,
    Host,
    HostSpec,
    Provider,
    Role,
    SecretRef,
    Ssh,
    StaticProvider,
)
from remuda.kube.meta import ObjectMeta
from remuda.kube.names import RETRY
from remuda.kube.patches import MergePatch
from remuda.model.secret import Secret as Hidden
from remuda.ports.forge import ForgeUnavailable
from remuda.ports.host_shell import LoginRefused
from tests.unit.hosts.ranch import SPACE, Ranch
from tests.unit.hosts.stories import condition, events, play, unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = b"-----BEGIN RSA PRIVATE KEY-----\ncanary-of-the-key\n-----END RSA PRIVATE KEY-----"
APP = {"app-id": b" 7\n", "installation-id": b"41\n", "private-key": KEY + b"\n\n"}
BUILDER = Builder(
    github_org="acme",
    labels=("image-builder",),
    runner_version="2.330.0",
    app_secret_ref=SecretRef(name="app", key="private-key"),
)
SPELLED = {
    "githubOrg": "acme",
    "labels": ["image-builder"],
    "runnerVersion": "2.330.0",
    "appSecretRef": {"name": "app", "key": "private-key"},
}


async def patched(ranch: Ranch, **changes: Any) -> None:  # noqa: ANN401 - JSON
    await ranch.kube.patch(HOST, "mini", MergePatch(changes), namespace=SPACE)


async def a_secret(ranch: Ranch) -> None:
    metadata = ObjectMeta(name="app", namespace=SPACE)
    await ranch.kube.create(SECRET, Secret(metadata=metadata, data=APP))


def test_a_runner_that_becomes_a_builder_is_looked_at_as_a_whole_and_gets_a_token_when_it_asks() -> (
    None
):
    async def story(ranch: Ranch) -> None:
        await a_secret(ranch)
        await ranch.host("mini")
        await ranch.phase("mini", "Ready")
        assert ranch.github.asked == [], "a runner needs none"

        ranch.macs.registers = True
        await patched(ranch, spec={"role": "builder", "builder": SPELLED})
        await ranch.until("mini", lambda host: host.status.observed_generation == 2)
        assert [mode for _, mode, _ in ranch.macs.attempts] == [Mode.FIRST, Mode.FIRST]
        key = Hidden(KEY + b"\n")
        assert ranch.github.asked == [(App("7", 41, key), "acme")]
        assert ranch.macs.minted == [Hidden(b"canary-token-1")]
        host = await ranch.phase("mini", "Ready")

        ranch.macs.registers = False  # it is well
        ranch.macs.config_hash = "v2"
        await ranch.until("mini", lambda host: host.status.config_hash == "v2")
        assert ranch.macs.attempts[-1][1] is Mode.DRIFT
        assert host.status.observed_generation == 2
        assert len(ranch.github.asked) == 1, "a healthy registration is left alone"

    play(story)


def test_a_person_has_a_registration_that_broke_made_anew() -> None:
    async def story(ranch: Ranch) -> None:
        await a_secret(ranch)
        await ranch.host("mini")
        await ranch.phase("mini", "Ready")
        await patched(ranch, spec={"role": "builder", "builder": SPELLED})
        await ranch.until("mini", lambda host: host.status.observed_generation == 2)
        await ranch.phase("mini", "Ready")

        ranch.macs.registers = True
        await patched(ranch, metadata={"annotations": {RETRY: "true"}})
        await ranch.until("mini", lambda _: bool(ranch.macs.minted))
        await ranch.phase("mini", "Ready")
        await ranch.clock.sleep(3600)
        assert len(ranch.macs.attempts) == 3
        assert ranch.macs.attempts[-1][1] is Mode.FIRST

    play(story)


def test_hosts_that_a_person_wants_looked_at_take_turns() -> None:
    async def story(ranch: Ranch) -> None:
        names = ("mini-1", "mini-2", "mini-3")
        for name in names:
            await ranch.host(name)
        for name in names:
            await ranch.phase(name, "Ready")
        for name in names:
            changes = MergePatch({"metadata": {"annotations": {RETRY: "true"}}})
            await ranch.kube.patch(HOST, name, changes, namespace=SPACE)

        def done(host: Host) -> bool:
            return host.status.observed_generation == host.metadata.generation

        await ranch.until("mini-2", lambda host: not done(host))
        for before, name in pairwise(names):
            await ranch.until(name, lambda host: host.status.phase == "Updating")
            assert (await ranch.get(before)).status.phase == "Ready", "it is proven first"
        await ranch.until("mini-3", done)
        assert [name for name, mode, _ in ranch.macs.attempts[3:] if mode is Mode.FIRST] == [*names]

    play(story)


def test_that_no_token_is_to_be_had_is_not_the_hosts_fault() -> None:
    async def story(ranch: Ranch) -> None:
        ranch.macs.registers = True
        ranch.github.errors = [ForgeUnavailable("No builder", why="a storm", fix="Wait")] * 20
        await ranch.host("mini")
        await patched(ranch, spec={"role": "builder", "builder": SPELLED})

        def says(text: str) -> Callable[[Host], bool]:
            return lambda host: any(text in c.message for c in host.status.conditions)

        await ranch.until("mini", says("there is no Secret app"))
        await a_secret(ranch)
        await ranch.until("mini", says("a storm"))
        host = await ranch.until("mini", lambda _: not ranch.github.errors, within_s=24 * 3600)
        assert not host.status.attempts
        assert ranch.macs.reboots == []
        host = await ranch.phase("mini", "Ready", within_s=24 * 3600)
        assert host.status.host_key_fingerprint

    play(story)


async def deleted_builder(ranch: Ranch, *, online: bool = False) -> None:
    """Have a builder that works and is registered, and delete its Host."""
    await a_secret(ranch)
    await ranch.host("mini")
    await patched(ranch, spec={"role": "builder", "builder": SPELLED})
    await ranch.phase("mini", "Ready")
    ranch.github.runners = {"mini": online, "somebody-elses": False}
    await ranch.kube.delete(HOST, "mini", namespace=SPACE)


def test_a_deleted_builder_is_forgotten_by_github() -> None:
    async def story(ranch: Ranch) -> None:
        await deleted_builder(ranch)
        await ranch.gone("mini")
        assert ranch.github.runners == {"somebody-elses": False}
        assert ranch.macs.retired == ["mini.test"]
        assert await events(ranch, "RunnerLeft") == []

    play(story)


@pytest.mark.parametrize("how", ["down", "online"])
def test_a_github_that_is_away_for_a_while_or_hears_from_the_mac_still_is_waited_for(
    how: str,
) -> None:
    async def story(ranch: Ranch) -> None:
        ranch.github.down = how == "down"
        await deleted_builder(ranch, online=how == "online")
        await ranch.clock.sleep(300)
        host = await ranch.get("mini")
        assert "It was not removed" in condition(host, "Converged")[2]
        ranch.github.down = False
        ranch.github.runners["mini"] = False
        await ranch.gone("mini")
        assert ranch.github.runners == {"somebody-elses": False}
        assert await events(ranch, "RunnerLeft") == []

    play(story)


@pytest.mark.parametrize("how", ["down", "online", "no Secret"])
def test_a_github_that_does_not_forget_a_runner_holds_no_deletion_up(how: str) -> None:
    async def story(ranch: Ranch) -> None:
        ranch.github.down = how == "down"
        await deleted_builder(ranch, online=how == "online")
        if how == "no Secret":
            await ranch.kube.delete(SECRET, "app", namespace=SPACE)
        await ranch.gone("mini", within_s=60 if how == "no Secret" else 1200)
        [said] = await events(ranch, "RunnerLeft")
        assert said.startswith("GitHub may still list its runner")
        assert ranch.github.runners["mini"] is (how == "online"), "what is at work is not cut off"

    play(story)


def test_a_mac_that_cannot_be_reached_is_forgotten_by_github_all_the_same() -> None:
    async def story(ranch: Ranch) -> None:
        await a_secret(ranch)
        await ranch.host("mini")
        await patched(ranch, spec={"role": "builder", "builder": SPELLED})
        await ranch.phase("mini", "Ready")
        ranch.github.runners = {"mini": False}
        ranch.macs.dead = unreachable
        await ranch.kube.delete(HOST, "mini", namespace=SPACE)
        await ranch.gone("mini")
        assert ranch.github.runners == {}
        assert len(await events(ranch, "AgentLeft")) == 1

    play(story)


@pytest.mark.parametrize("how", ["down", "online"])
def test_a_mac_that_refuses_the_login_is_tried_once_while_github_is_waited_for(how: str) -> None:
    """Whoever is refused again and again is locked out, and so is the person who comes to look."""

    async def story(ranch: Ranch) -> None:
        ranch.github.down = how == "down"
        await a_secret(ranch)
        await ranch.host("mini")
        await patched(ranch, spec={"role": "builder", "builder": SPELLED})
        await ranch.phase("mini", "Ready")
        ranch.github.runners = {"mini": how == "online"}
        ranch.macs.dead = refused
        await ranch.kube.delete(HOST, "mini", namespace=SPACE)
        await ranch.gone("mini", within_s=1200)
        assert ranch.macs.retired == ["mini.test"]
        assert len(await events(ranch, "AgentLeft")) == 1

    play(story)


def refused() -> LoginRefused:
    return LoginRefused("mini refused the login", why="the key is not known", fix="Prepare it")


def test_a_host_that_was_never_reached_takes_no_runner_of_its_name_away() -> None:
    async def story(ranch: Ranch) -> None:
        await a_secret(ranch)
        ranch.macs.dead = unreachable
        ranch.github.runners = {"mini": False}
        await ranch.host("mini")
        await patched(ranch, spec={"role": "builder", "builder": SPELLED})
        await ranch.until("mini", lambda h: bool(h.status.attempts))
        await ranch.kube.delete(HOST, "mini", namespace=SPACE)
        await ranch.gone("mini")
        assert ranch.github.runners == {"mini": False}

    play(story)


def test_a_builder_at_work_keeps_its_runner_until_the_job_has_ended() -> None:
    async def story(ranch: Ranch) -> None:
        ranch.macs.running = ("a job of GitHub's runner",)
        await deleted_builder(ranch)
        await ranch.clock.sleep(1200)
        host = await ranch.get("mini")
        assert condition(host, "Converged")[1] == "HostInUse"
        assert ranch.macs.retired == []
        assert "mini" in ranch.github.runners
        ranch.macs.running = ()
        await ranch.gone("mini")
        assert "mini" not in ranch.github.runners

    play(story)


def a_builder() -> Host:
    ssh = Ssh(user="m1", key_secret_ref=SecretRef(name="ssh", key="key"))
    spec = HostSpec(
        provider=Provider(static=StaticProvider(address="mini.test")),
        ssh=ssh,
        fleet="barn",
        role=Role.BUILDER,
        builder=BUILDER,
    )
    return Host(metadata=ObjectMeta(name="mini", namespace=SPACE), spec=spec)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({}, "no app-id and no installation-id and no private-key"),
        ({**APP, "app-id": b" \n"}, "the Secret app has no app-id"),
        ({**APP, "private-key": b""}, "the Secret app has no private-key"),
        ({**APP, "app-id": b"my app"}, "neither a number nor a client id"),
        ({**APP, "installation-id": b"acme"}, "installation-id of the Secret app is no number"),
        ({**APP, "installation-id": "٤١".encode()}, "is no number"),
    ],
)
def test_what_is_missing_of_an_app_is_named_and_nothing_is_quoted(
    data: dict[str, bytes], says: str
) -> None:
    with pytest.raises(AppUnusable, match="Host mini cannot be registered") as raised:
        read_app(a_builder(), BUILDER, data)
    assert says in raised.value.why
    assert "canary" not in str(raised.value)
    assert "canary" not in repr(read_app(a_builder(), BUILDER, APP))
