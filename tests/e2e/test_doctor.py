"""``remuda doctor`` on a fleet that lives: well, then broken for real, named, mended, and well again."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from remuda.adapters.kube_client import HttpWire, KubeClient
from remuda.adapters.kube_client.kubeconfig import load
from remuda.cli.doctor.gather_kube import DEFINITION
from remuda.cli.tree.parts import AGENT, NAMESPACE
from remuda.kube.core import NODE, POD, SERVICE_ACCOUNT, ServiceAccount
from remuda.kube.meta import ObjectMeta
from remuda.kube.names import POOL, RUNNER, VM_CLEANUP
from remuda.ports.kube import Manifest, NotFound
from tests.support.eventually import eventually
from tests.support.trees import Tree, a_tree

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

WAIT_S = 120.0
FIELDS = {"name", "group", "level", "sentence", "evidence", "fix", "invariants", "mendable"}


@pytest.fixture(scope="module")
def kept_tree() -> Iterator[Tree]:
    with a_tree("--vms=2") as tree:
        tree.up()
        yield tree


@pytest.fixture
async def kube(kept_tree: Tree) -> AsyncIterator[KubeClient]:
    client = KubeClient(HttpWire(load(kept_tree.kubeconfig)))
    try:
        yield client
    finally:
        await client.close()


async def ask(tree: Tree, *more: str) -> Any:  # noqa: ANN401 - JSON
    """Return what the doctor says. Its exit code fits to that."""
    answer = await asyncio.to_thread(tree.remuda, "doctor", "--json", *more)
    said, _ = json.JSONDecoder().raw_decode(answer.said)  # what it does goes to stderr, behind it
    assert answer.code == (0 if said["ok"] else 1), answer.said
    assert all(set(check) == FIELDS for check in said["checks"])
    return said


def levels(said: Any) -> dict[str, str]:  # noqa: ANN401 - JSON
    return {check["name"]: check["level"] for check in said["checks"]}


def failed(said: Any) -> list[str]:  # noqa: ANN401 - JSON
    return [name for name, level in levels(said).items() if level == "fail"]


async def until_well(tree: Tree) -> Any:  # noqa: ANN401 - JSON
    async def probe() -> Any:  # noqa: ANN401 - JSON
        return await ask(tree)

    return await eventually(probe, lambda said: said["ok"], within_s=WAIT_S)


async def test_a_fleet_that_is_well(kept_tree: Tree) -> None:
    said = await until_well(kept_tree)

    found = levels(said)
    assert {name for name, level in found.items() if level == "skip"} == {"kvm", "github"}, said
    assert found["crds"] == found["rights"] == found["jobs-invariants"] == "ok"
    table = kept_tree.remuda("doctor")
    assert table.code == 0
    assert "runners-terminating" in table.said
    assert "No check failed" in table.said


async def test_a_wrong_token_is_named_and_hides_no_other_check(kept_tree: Tree) -> None:
    said = await ask(kept_tree, "--token=rmd_this-is-none")
    assert "dispatch-token" in failed(said)
    assert levels(said)["dispatch-api"] == levels(said)["crds"] == "ok"
    assert levels(said)["jobs-queue"] == "skip"


async def test_a_runner_that_is_stuck_is_let_go_and_a_second_look_is_clean(
    kept_tree: Tree, kube: KubeClient
) -> None:
    await a_ghost(kube, "ghost-a")
    only = ("--only=runners-terminating", "--stuck-after=1s")

    async def stuck() -> Any:  # noqa: ANN401 - JSON
        return await ask(kept_tree, *only)

    said = await eventually(stuck, lambda said: not said["ok"], within_s=WAIT_S)
    (check,) = said["checks"]
    assert check["mendable"]
    assert "its host ghost is gone, and nothing is behind it" in check["evidence"][0]

    planned = await ask(kept_tree, *only, "--fix", "--dry-run")
    assert [one["outcome"] for one in planned["mended"]] == ["planned"]
    await kube.get(POD, "ghost-a", namespace=NAMESPACE)

    mended = await ask(kept_tree, *only, "--fix")
    assert mended["ok"]
    assert [one["outcome"] for one in mended["mended"]] == ["done"]
    with pytest.raises(NotFound):
        await kube.get(POD, "ghost-a", namespace=NAMESPACE)
    assert (await ask(kept_tree, *only, "--fix"))["mended"] == []


async def test_a_job_on_a_host_that_fell_silent_is_never_let_go(
    kept_tree: Tree, kube: KubeClient
) -> None:
    """Nobody tends the tree, the agent is killed, its Node is deleted: the job in its VM runs on all the same."""
    tree, go = kept_tree, kept_tree.data / "go"
    go.unlink(missing_ok=True)
    job = await tree.post(f"until [ -e {go} ]; do sleep 0.1; done")
    pod = (await tree.until_job(job, "running"))["pod"]
    kept = tree.folder.kept()
    assert kept is not None

    tree.kill_supervisor()
    tree.kill(AGENT)
    await kube.delete(DEFINITION, "hosts.remuda.dev")
    await kube.delete(POD, pod, namespace=NAMESPACE, grace_s=1)
    await kube.delete(NODE, kept.node)

    async def broken() -> Any:  # noqa: ANN401 - JSON
        return await ask(tree, "--fix", "--stuck-after=1s")

    said = await eventually(broken, lambda s: "runners-terminating" in failed(s), within_s=WAIT_S)
    assert {"up-running", "up-parts", "crds"} <= set(failed(said)), failed(said)
    stuck = next(c for c in said["checks"] if c["name"] == "runners-terminating")
    line = next(line for line in stuck["evidence"] if line.startswith(pod))
    assert "nothing is behind it" not in line
    assert not any(pod in one["what"] for one in said["mended"])
    await kube.get(POD, pod, namespace=NAMESPACE)
    assert (await tree.api.get(f"/api/v1/jobs/{job}"))["state"] == "running"

    go.touch()
    tree.up()
    await tree.until_job(job)
    said = await until_well(tree)
    assert levels(said)["crds"] == "ok"


async def a_ghost(kube: KubeClient, name: str) -> None:
    """Leave a runner behind on a host that does not exist, being deleted, with our finalizer on it."""
    labels = {RUNNER: "true", POOL: "default"}
    meta = ObjectMeta(name=name, namespace=NAMESPACE, labels=labels)
    await kube.create(SERVICE_ACCOUNT, ServiceAccount(metadata=meta))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "finalizers": [VM_CLEANUP]},
        "spec": {
            "nodeName": "ghost",
            "serviceAccountName": name,
            "automountServiceAccountToken": False,
            "containers": [{"name": "runner", "image": "process"}],
        },
    }
    await kube.create(POD, Manifest(json.dumps(pod).encode(), namespace=NAMESPACE))
    await kube.delete(POD, name, namespace=NAMESPACE, grace_s=1)
