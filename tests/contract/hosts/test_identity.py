"""
The credential of a host's agent, asked of a real cluster by the host operator's own ServiceAccount.

The cluster's signer signs it, the Node authorizer takes it, and it opens nothing of another host.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from cryptography import x509

from remuda.adapters.kube_client import HttpWire, KubeClient, kubeconfig
from remuda.adapters.system import SystemClock, SystemIds
from remuda.control.permissions import missing
from remuda.hosts.identity import Server, SignedIdentities, certificate_in, secret_name
from remuda.hosts.permissions import rights
from remuda.hosts.settings import HostSettings
from remuda.kube.core import NODE, SECRET, Node
from remuda.kube.host import HOST, Host, HostSpec, Provider, SecretRef, Ssh, StaticProvider
from remuda.kube.meta import ObjectMeta
from remuda.ports.kube import NotFound, Refused
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.control_plane import RealControlPlane

MANIFEST = Path(__file__).resolve().parents[3] / "docs/howto/hosts-rbac.yaml"
LOST = MANIFEST.with_name("lost-host.yaml")
SPACE = "remuda"
LIFE = timedelta(days=30)


class LaterClock(SystemClock):
    """A clock that is ahead."""

    def now(self) -> datetime:
        return super().now() + timedelta(days=21)


@pytest.fixture
async def operator(
    real_control_plane: RealControlPlane, tmp_path: Path
) -> AsyncIterator[KubeClient]:
    """Return the API server as the operator's own ServiceAccount sees it."""
    plane = real_control_plane
    space = tmp_path / "namespace.yaml"
    space.write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    )
    plane.kubectl("apply", f"--filename={space}")
    plane.kubectl("apply", f"--filename={MANIFEST}")
    token = plane.kubectl("create", "token", "remuda-hosts", f"--namespace={SPACE}").strip()
    wire = HttpWire(kubeconfig.load(plane.kubeconfig_with_token("remuda-hosts", token)))
    try:
        yield KubeClient(wire)
    finally:
        await wire.close()


@pytest.fixture
async def host(real_control_plane: RealControlPlane) -> AsyncIterator[Host]:
    spec = HostSpec(
        provider=Provider(static=StaticProvider(address="192.0.2.1")),
        ssh=Ssh(user="m1", key_secret_ref=SecretRef(name="ssh", key="key")),
        fleet="barn",
    )
    name = f"mini-{SystemIds().suffix()}"
    wire = HttpWire(kubeconfig.load(real_control_plane.access.kubeconfig))
    admin = KubeClient(wire)
    wanted = Host(metadata=ObjectMeta(name=name, namespace=SPACE), spec=spec)
    try:
        yield await admin.create(HOST, wanted)
        await admin.delete(HOST, name, namespace=SPACE)
    finally:
        await wire.close()


def a_server(plane: RealControlPlane) -> Server:
    return Server(plane.access.url, plane.access.ca_file.read_bytes())


async def test_a_host_gets_a_credential_that_is_its_own(
    real_control_plane: RealControlPlane, operator: KubeClient, host: Host, tmp_path: Path
) -> None:
    assert await missing(operator, rights(HostSettings(namespace=SPACE, identity="x")).needs) == ()
    server = a_server(real_control_plane)
    identities = SignedIdentities(operator, server, clock=SystemClock(), ids=SystemIds(), life=LIFE)

    made = await identities.ensure(host)
    file = tmp_path / "kubeconfig"
    file.write_bytes(made.kubeconfig.reveal())
    wire = HttpWire(kubeconfig.load(file))
    try:
        agent = KubeClient(wire)
        node = await agent.create(NODE, Node(metadata=ObjectMeta(name=host.name)))
        assert node.name == host.name
        with pytest.raises(Refused):
            await agent.create(NODE, Node(metadata=ObjectMeta(name="somebody-else")))
        with pytest.raises(Refused):
            await agent.get(SECRET, secret_name(host.name), namespace=SPACE)
    finally:
        await wire.close()
    again = await identities.ensure(host)
    assert again == made, "a second bootstrap brings the same one"
    await operator.delete(NODE, host.name)
    requests = real_control_plane.kubectl("get", "csr", "-o", "name")
    assert host.name not in requests, "no request is left behind"


async def test_it_is_replaced_in_time_and_removed_with_the_host(
    real_control_plane: RealControlPlane, operator: KubeClient, host: Host
) -> None:
    server = a_server(real_control_plane)
    now = SignedIdentities(operator, server, clock=SystemClock(), ids=SystemIds(), life=LIFE)
    first = await now.ensure(host)
    signed = x509.load_pem_x509_certificate(certificate_in(first.kubeconfig.reveal()) or b"")
    assert signed.not_valid_after_utc - SystemClock().now() <= LIFE
    later = SignedIdentities(operator, server, clock=LaterClock(), ids=SystemIds(), life=LIFE)

    second = await later.ensure(host)
    assert second.kubeconfig != first.kubeconfig
    assert (await now.ensure(host)).kubeconfig == second.kubeconfig
    elsewhere = Server("https://new.test", server.ca)
    moved = SignedIdentities(operator, elsewhere, clock=SystemClock(), ids=SystemIds(), life=LIFE)
    assert (await moved.ensure(host)).kubeconfig != second.kubeconfig, "it would reach nobody"

    await now.remove(host)
    await now.remove(host)
    with pytest.raises(NotFound):
        await operator.get(SECRET, secret_name(host.name), namespace=SPACE)


async def test_the_credential_of_a_lost_mac_opens_nothing_once_a_person_says_so(
    real_control_plane: RealControlPlane, operator: KubeClient, host: Host, tmp_path: Path
) -> None:
    plane = real_control_plane
    identities = SignedIdentities(
        operator, a_server(plane), clock=SystemClock(), ids=SystemIds(), life=LIFE
    )
    file = tmp_path / "kubeconfig"
    file.write_bytes((await identities.ensure(host)).kubeconfig.reveal())
    policy = tmp_path / "lost.yaml"
    policy.write_text(LOST.read_text().replace("system:node:mini-1", f"system:node:{host.name}"))
    wire = HttpWire(kubeconfig.load(file))
    try:
        agent = KubeClient(wire)
        await agent.create(NODE, Node(metadata=ObjectMeta(name=host.name)))
        plane.kubectl("apply", f"--filename={policy}")

        async def refused() -> bool:
            """Say whether it cannot make its Node again: a policy works some moments after it is there."""
            await operator.delete(NODE, host.name)
            try:
                await agent.create(NODE, Node(metadata=ObjectMeta(name=host.name)))
            except Refused as error:
                return "This host is lost" in str(error)
            return False

        await eventually(refused, within_s=60)
    finally:
        await wire.close()
        plane.kubectl("delete", "--ignore-not-found", f"--filename={policy}")
