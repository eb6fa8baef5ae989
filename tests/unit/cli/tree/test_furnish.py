"""What a one-machine control plane is furnished with: made once, repeated without harm, never over a person's edits."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from cryptography import x509

from remuda.adapters.kube_client import KubeClient
from remuda.adapters.system import SystemClock, SystemIds
from remuda.cli.tree import furnish
from remuda.cli.tree.decide.driver import Size
from remuda.cli.tree.decide.pool import PoolWish
from remuda.cli.tree.folder import Folder, Kept
from remuda.cli.tree.parts import Layout
from remuda.cli.tree.ports import NAMES
from remuda.cli.tree.retire import is_idle, retire_idle
from remuda.kube.core import NODE, POD
from remuda.kube.names import AUDIENCE, OWNER, RUNNER
from remuda.kube.patches import MergePatch
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.model.errors import BadInput
from remuda.ports.kube import Manifest, Query
from remuda.standalone.pki import load_or_create
from remuda.standalone.plane import ControlPlane
from tests.support.manifests import a_pod

if TYPE_CHECKING:
    from remuda.ports.kube import Kube

WISH = PoolWish(
    name="default",
    namespace="default",
    fleet="local",
    os="linux",
    image="process",
    replicas=2,
    size=Size(1, 128),
)


@pytest.fixture
def kube() -> Kube:
    return KubeClient(ControlPlane.in_memory(SystemClock(), SystemIds()).wire())


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    kept = Kept(
        node="mini",
        driver="process",
        image="process",
        vms=2,
        pool="default",
        ports={name: 9000 + number for number, name in enumerate(NAMES)},
    )
    return Layout(Folder(tmp_path), kept)


async def test_a_pool_is_made_once_and_then_belongs_to_a_person(kube: Kube) -> None:
    await furnish.apply_kinds(kube)
    assert await furnish.make_pool(kube, WISH, SystemClock())
    edit = MergePatch({"spec": {"image": "mine", "replicas": 0}})
    await kube.patch(RUNNER_POOL, "default", edit, namespace="default")

    await furnish.apply_kinds(kube)
    assert not await furnish.make_pool(kube, WISH, SystemClock())

    pool = await kube.get(RUNNER_POOL, "default", namespace="default")
    assert (pool.spec.image, pool.spec.replicas) == ("mine", 0)


async def test_the_operator_gets_a_token_for_dispatch_alone(kube: Kube, layout: Layout) -> None:
    await furnish.give_controller_token(kube, layout)
    await furnish.give_controller_token(kube, layout)

    token = layout.folder.controller_token.read_text()
    found = await kube.review_token(token, audience=AUDIENCE)
    assert found is not None
    assert found.username == f"system:serviceaccount:default:{furnish.ACCOUNT}"
    assert await kube.review_token(token, audience="somebody-else") is None


async def test_a_pool_that_was_there_says_that_it_keeps_its_image(kube: Kube) -> None:
    await furnish.apply_kinds(kube)
    await furnish.make_pool(kube, WISH, SystemClock())

    assert await furnish.pool_keeps(kube, WISH, "") == "", "nobody named one"
    assert await furnish.pool_keeps(kube, WISH, "process") == ""
    said = await furnish.pool_keeps(kube, WISH, "mine")
    assert "keeps its image process" in said
    assert "--image mine" in said


async def test_a_token_that_cannot_be_written_is_said_of_the_folder(
    kube: Kube, layout: Layout
) -> None:
    (layout.folder.root / ".controller-token.new").mkdir()

    with pytest.raises(BadInput, match=r"The data folder .* cannot be used"):
        await furnish.give_controller_token(kube, layout)


def test_the_agent_is_a_node_and_stays_the_same_one(layout: Layout) -> None:
    clock = SystemClock()
    load_or_create(layout.folder.pki, clock, SystemIds())

    furnish.give_node_identity(layout, clock)
    first = layout.folder.node_kubeconfig.read_bytes()
    furnish.give_node_identity(layout, clock)

    assert layout.folder.node_kubeconfig.read_bytes() == first
    assert layout.folder.node_kubeconfig.stat().st_mode & 0o077 == 0
    config = yaml.safe_load(first)
    shown = b64decode(config["users"][0]["user"]["client-certificate-data"])
    subject = x509.load_pem_x509_certificate(shown).subject.rfc4514_string()
    assert subject == "CN=system:node:mini,O=system:nodes"
    assert config["clusters"][0]["cluster"]["server"] == layout.url("control-plane")


def test_without_an_authority_there_is_no_identity(layout: Layout) -> None:
    with pytest.raises(BadInput, match="no certificate authority"):
        furnish.give_node_identity(layout, SystemClock())


def test_the_kubeconfig_in_the_data_folder_is_always_the_newest(layout: Layout) -> None:
    own = layout.folder.control_plane / "kubeconfig"
    own.parent.mkdir()
    own.write_text("first")
    layout.folder.home.kubeconfig.write_text("somebody's copy")

    furnish.show_kubeconfig(layout)
    furnish.show_kubeconfig(layout)
    own.write_text("second")

    assert layout.folder.home.kubeconfig.read_text() == "second"
    assert not Path(layout.folder.home.kubeconfig.readlink()).is_absolute(), "a folder may be moved"


async def test_runners_without_a_job_end_and_those_with_one_do_not(kube: Kube) -> None:
    labels = {RUNNER: "true"}
    pods = {
        "idle": a_pod("idle", meta={"labels": labels}),
        "busy": a_pod("busy", meta={"labels": {**labels, OWNER: "somebody"}}),
        "foreign": a_pod("foreign"),
    }
    for pod in pods.values():
        await kube.create(POD, Manifest(json.dumps(pod).encode(), "default"))

    assert await retire_idle(kube, SystemClock())

    left = await kube.list(POD, Query(namespace="default"))
    assert {pod.name for pod in left.items} == {"busy", "foreign"}
    assert not any(is_idle(pod) for pod in left.items if pod.name == "busy")
    assert (await kube.list(NODE)).items == ()


async def test_identities_are_made_before_the_control_plane_and_are_its_own(layout: Layout) -> None:
    furnish.make_identities(layout, SystemClock(), SystemIds())
    first = layout.folder.home.kubeconfig.read_text()
    furnish.make_identities(layout, SystemClock(), SystemIds())
    assert layout.folder.home.kubeconfig.read_text() == first

    plane = ControlPlane.durable(layout.folder.control_plane, SystemClock(), SystemIds())
    try:
        config = yaml.safe_load(first)
        (cluster,) = config["clusters"]
        assert cluster["cluster"]["server"] == layout.url("control-plane")
        known = b64decode(cluster["cluster"]["certificate-authority-data"])
        assert known == plane.pki.authority.certificate
    finally:
        await plane.close()
