"""Our check of Pods and the Pods that we make, against the Pod Security admission of a real API server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from remuda.kube.runner_pod import Placement, runner_pod
from tests.support.eventually import eventually
from tests.support.restricted import ALLOWED, FORBIDDEN, Row
from tests.support.runner_pods import DOCKER, KATA, SETTINGS, a_runner_pool, the_example

if TYPE_CHECKING:
    from remuda.kube.runner_pool import RunnerPool
    from tests.support.raw import Answer, Json, Raw

ENFORCE = "pod-security.kubernetes.io/enforce"


class Cluster:
    """A real API server with a namespace that enforces restricted, one that enforces nothing, and a runtime class."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw

    async def prepare(self) -> None:
        for name, labels in (("restricted", {ENFORCE: "restricted"}), ("free", {})):
            meta = {"name": name, "labels": labels}
            (await self._raw.post("/api/v1/namespaces", {"metadata": meta})).ok()
            account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            await eventually(lambda path=account: self._raw.get(path), lambda a: a.status == 200)  # type: ignore[misc]
            accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
            (await self._raw.post(accounts, {"metadata": {"name": "mac-1"}})).ok()
        kata = {"metadata": {"name": "kata-qemu"}, "handler": "kata-qemu"}
        answer = await self._raw.post("/apis/node.k8s.io/v1/runtimeclasses", kata)
        assert answer.status in (201, 409)  # the server is shared: it may be there

    async def asked_for(self, namespace: str, pod: Json) -> Answer:
        """Ask whether the Pod would be admitted; nothing is kept."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        return await self._raw.post(path, pod, dryRun="All", fieldValidation="Strict")

    async def asked_for_runner(
        self,
        namespace: str,
        pool: RunnerPool,
        placement: Placement = Placement(),  # noqa: B008 - frozen
    ) -> Answer:
        body = json.loads(runner_pod(pool, "mac-1", SETTINGS, placement))
        return await self.asked_for(namespace, body)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(real: Raw) -> Cluster:
    made = Cluster(real)
    await made.prepare()
    return made


def a_pod(row: Row) -> Json:
    meta = {"name": "asked", "annotations": row.annotations}
    return {"metadata": meta, "spec": {"restartPolicy": "Never", **row.spec}}


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"os": "darwin"}, id="a macOS VM"),
        pytest.param({"os": "linux"}, id="a Linux VM"),
        pytest.param(KATA, id="a Kata Pod"),
        pytest.param({"template": the_example()}, id="a VM with the template of the docs"),
        pytest.param({**KATA, "template": the_example()}, id="a Kata Pod with it"),
    ],
)
async def test_runners_are_admitted_where_restricted_is_enforced(
    cluster: Cluster, spec: Json
) -> None:
    pool = a_runner_pool(namespace="restricted", **spec)

    (await cluster.asked_for_runner("restricted", pool)).ok()
    (await cluster.asked_for_runner("restricted", pool, Placement(("a", "b"), "c"))).ok()


@pytest.mark.asyncio(loop_scope="session")
async def test_docker_is_admitted_only_where_nothing_is_enforced(cluster: Cluster) -> None:
    refusal = await cluster.asked_for_runner("restricted", a_runner_pool(namespace="", **DOCKER))
    admitted = await cluster.asked_for_runner("free", a_runner_pool(namespace="", **DOCKER))

    assert refusal.status == 403
    assert "privileged" in refusal.body["message"]
    admitted.ok()


@pytest.mark.asyncio(loop_scope="session")
async def test_a_real_server_judges_every_row_of_the_table_as_we_do(cluster: Cluster) -> None:
    """The whole table at once: what differs is listed, row by row."""
    wrong: list[tuple[object, ...]] = []
    for row in (*ALLOWED, *FORBIDDEN):
        answer = await cluster.asked_for("restricted", a_pod(row))
        admitted = answer.status == 201
        refused = answer.status == 403 and "violates PodSecurity" in answer.body["message"]
        if not (refused if row.fields else admitted):
            wrong.append((row.says, answer.status, answer.body.get("message")))
        free = await cluster.asked_for("free", a_pod(row))
        if free.status != 201:
            wrong.append((row.says, "is no valid Pod at all", free.body.get("message")))
    assert wrong == []
