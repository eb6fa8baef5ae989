"""The host operator and rented Macs: taken, kept, lost and given back, on virtual time; and the Secrets of Hosts."""

from __future__ import annotations

import pytest

from remuda.hosts.adopter import claim_of
from remuda.hosts.converge import HostHasProblems
from remuda.hosts.credentials import password_secret
from remuda.hosts.own_secrets import NotOurSecret, find, forget, keep
from remuda.kube.core import SECRET, Secret
from remuda.kube.host import HOST
from remuda.kube.meta import ObjectMeta
from tests.support.scaleway_server import a_server
from tests.unit.hosts.ranch import SETTINGS, SPACE, Ranch
from tests.unit.hosts.stories import a_pool, condition, play, unreachable


def test_a_rented_mac_is_taken_bootstrapped_and_returned() -> None:
    async def story(ranch: Ranch) -> None:
        a_pool(ranch)
        await ranch.host("mini", adopt_prefix="pool-")
        host = await ranch.phase("mini", "Ready")
        machine = host.status.machine_id

        assert ranch.account.servers[machine].name == claim_of(host, SETTINGS).name
        password = ranch.macs.targets[0].password
        assert password is not None
        assert password.reveal() == b"canary-password"
        kept = await ranch.kube.get(SECRET, password_secret("mini"), namespace=SPACE)
        assert kept.data["password"] == b"canary-password"
        await ranch.kube.delete(HOST, "mini", namespace=SPACE)
        await ranch.gone("mini")
        assert ranch.account.servers[machine].name.startswith("pool-")
        names = {server.name for server in ranch.account.servers.values()}
        assert not any(name.startswith(SETTINGS.claim_prefix) for name in names)

    play(story)


def test_a_password_that_the_provider_hides_later_is_remembered() -> None:
    async def story(ranch: Ranch) -> None:
        a_pool(ranch, 1)
        await ranch.host("mini", adopt_prefix="pool-")
        await ranch.phase("mini", "Ready")
        server = ranch.account.servers["id-0"]
        server.sudo_password, server.vnc_url = "<sealed>", ""
        ranch.macs.config_hash = "v2"
        await ranch.until("mini", lambda h: h.status.config_hash == "v2")
        password = ranch.macs.targets[-1].password
        assert password is not None
        assert password.reveal() == b"canary-password"

    play(story)


def test_a_mac_that_was_prepared_by_hand_needs_no_password() -> None:
    async def story(ranch: Ranch) -> None:
        a_pool(ranch, 1)
        server = ranch.account.servers["id-0"]
        server.sudo_password, server.vnc_url = "<sealed>", ""
        await ranch.host("mini", adopt_prefix="pool-")
        await ranch.phase("mini", "Ready")
        assert [target.password for target in ranch.macs.targets] == [None]
        assert (await ranch.get("mini")).status.machine_id == "id-0"

    play(story)


def test_a_password_that_nobody_tells_is_asked_for_and_costs_no_mac() -> None:
    async def story(ranch: Ranch) -> None:
        a_pool(ranch, 1)
        server = ranch.account.servers["id-0"]
        server.sudo_password, server.vnc_url = "<sealed>", ""
        ranch.macs.dead = lambda: HostHasProblems(
            "mini is not as it should be",
            why="no password",
            fix="Set passwordSecretRef of the Host",
            problems=(),
        )
        await ranch.host("mini", adopt_prefix="pool-")
        host = await ranch.phase("mini", "Failed")
        assert "passwordSecretRef" in condition(host, "Converged")[2]
        await ranch.clock.sleep(3600)
        assert len(ranch.macs.attempts) == 1
        assert (await ranch.get("mini")).status.machine_id == "id-0"

    play(story)


async def a_secret(ranch: Ranch, name: str, **data: bytes) -> None:
    metadata = ObjectMeta(name=name, namespace=SPACE)
    await ranch.kube.create(SECRET, Secret(metadata=metadata, type="Opaque", data=data))


async def secret_of(ranch: Ranch, name: str) -> dict[str, bytes]:
    return dict((await ranch.kube.get(SECRET, name, namespace=SPACE)).data)


def test_a_persons_own_secret_outlives_the_host() -> None:
    async def story(ranch: Ranch) -> None:
        await a_secret(ranch, "mini-password", password=b"mine")
        await ranch.host("mini")
        await ranch.phase("mini", "Ready")
        await ranch.kube.delete(HOST, "mini", namespace=SPACE)
        await ranch.gone("mini")

        assert await secret_of(ranch, "mini-password") == {"password": b"mine"}

    play(story)


def test_a_persons_own_secret_is_not_written_over_and_outlives_a_rented_mac() -> None:
    async def story(ranch: Ranch) -> None:
        a_pool(ranch, 1)
        await a_secret(ranch, "mini-password", password=b"mine")
        await ranch.host("mini", adopt_prefix="pool-")
        host = await ranch.until(
            "mini", lambda h: any(c.reason == "NotOurSecret" for c in h.status.conditions)
        )
        assert "mini-password" in condition(host, "Converged")[2]
        assert ranch.macs.attempts == []
        await ranch.kube.delete(HOST, "mini", namespace=SPACE)
        await ranch.gone("mini")

        assert await secret_of(ranch, "mini-password") == {"password": b"mine"}
        assert ranch.account.servers["id-0"].name.startswith("pool-")

    play(story)


def test_what_is_kept_for_a_host_goes_with_it_and_nothing_else_does() -> None:
    async def story(ranch: Ranch) -> None:
        await ranch.host("mini")
        host = await ranch.get("mini")
        await a_secret(ranch, "theirs", kubeconfig=b"mine")
        with pytest.raises(NotOurSecret):
            await keep(ranch.kube, host, "theirs", {"kubeconfig": b"ours"})
        await forget(ranch.kube, host, "theirs")
        assert await secret_of(ranch, "theirs") == {"kubeconfig": b"mine"}

        for value in (b"one", b"two"):
            await keep(ranch.kube, host, "ours", {"kubeconfig": value})
            assert await secret_of(ranch, "ours") == {"kubeconfig": value}
        await forget(ranch.kube, host, "ours")
        await forget(ranch.kube, host, "ours")
        assert await find(ranch.kube, host, "ours") is None

    play(story)


def test_a_mac_that_cannot_be_bootstrapped_goes_back_and_another_is_taken() -> None:
    async def story(ranch: Ranch) -> None:
        a_pool(ranch)
        ranch.macs.errors = [unreachable() for _ in range(8)]
        await ranch.host("mini", adopt_prefix="pool-")
        host = await ranch.phase("mini", "Ready", within_s=7200)

        assert host.status.machine_id == "id-1"
        assert ranch.account.servers["id-0"].name.startswith("pool-")
        assert not host.status.attempts

    play(story)


def test_no_free_mac_is_said_and_waited_for() -> None:
    async def story(ranch: Ranch) -> None:
        await ranch.host("mini", adopt_prefix="pool-")
        host = await ranch.until(
            "mini", lambda h: any(c.reason == "NoMacFree" for c in h.status.conditions)
        )
        assert host.status.phase == "Adopting"
        await ranch.clock.sleep(300)
        quiet = (await ranch.get("mini")).resource_version
        await ranch.clock.sleep(300)
        assert (await ranch.get("mini")).resource_version == quiet
        a_pool(ranch, 1)
        await ranch.phase("mini", "Ready")

    play(story)


def test_a_mac_that_was_renamed_by_somebody_is_let_go_and_never_touched_again() -> None:
    async def story(ranch: Ranch) -> None:
        a_pool(ranch)
        await ranch.host("mini", adopt_prefix="pool-")
        host = await ranch.phase("mini", "Ready")
        lost = ranch.account.servers[host.status.machine_id]
        lost.name = "somebody-else"
        await ranch.kube.delete(HOST, "mini", namespace=SPACE)
        await ranch.gone("mini")

        assert lost.name == "somebody-else"
        assert str(lost.status) == "ready"

    play(story)


@pytest.mark.parametrize("how", ["renamed", "gone"])
@pytest.mark.parametrize("when", ["bootstrap", "update"])
def test_a_mac_that_is_lost_before_an_attempt_is_let_go_and_another_is_taken(
    how: str, when: str
) -> None:
    async def story(ranch: Ranch) -> None:
        a_pool(ranch)
        if when == "bootstrap":
            ranch.macs.errors = [unreachable()]
        await ranch.host("mini", adopt_prefix="pool-")
        await ranch.until("mini", lambda _: bool(ranch.macs.attempts))
        if when == "update":
            await ranch.phase("mini", "Ready")
        lost = ranch.account.servers["id-0"]
        if how == "gone":
            ranch.account.servers.pop("id-0")
        else:
            lost.name = "somebody-else"
        ranch.macs.config_hash = "v2"
        host = await ranch.until("mini", lambda h: h.status.machine_id == "id-1")
        await ranch.until("mini", lambda h: h.status.config_hash == "v2")

        assert ranch.account.servers["id-1"].name == claim_of(host, SETTINGS).name
        assert str(lost.status) == "ready", "it was not touched"

    play(story)


def test_answers_that_are_lost_cost_no_mac() -> None:
    async def story(ranch: Ranch) -> None:
        a_pool(ranch, 3)
        for name in ("a", "b"):
            await ranch.host(name, adopt_prefix="pool-")
        hosts = [await ranch.phase(name, "Ready", within_s=4 * 3600) for name in ("a", "b")]
        assert len({host.status.machine_id for host in hosts}) == 2
        for host in hosts:
            assert (
                ranch.account.servers[host.status.machine_id].name == claim_of(host, SETTINGS).name
            )
            await ranch.kube.delete(HOST, host.name, namespace=SPACE)
        for host in hosts:
            await ranch.gone(host.name, within_s=4 * 3600)
        assert all(s.name.startswith("pool-") for s in ranch.account.servers.values())

    play(story, lose=0.3)


def test_a_claimed_mac_without_a_host_is_reported_and_left_alone() -> None:
    async def story(ranch: Ranch) -> None:
        a_pool(ranch, 1)
        ranch.account.add(a_server("lost", "remuda-old-00000000"))
        await ranch.host("mini", adopt_prefix="pool-")
        await ranch.phase("mini", "Ready")
        await ranch.clock.sleep(1000)

        value = ranch.metrics.registry.get_sample_value(
            "remuda_hosts_orphans", {"zone": "fr-par-3"}
        )
        assert value == 1
        assert ranch.account.servers["lost"].name == "remuda-old-00000000"

    play(story)
