"""What a person's ``kubectl drain`` does to runners: ADR 0007 says that it wants ``--force``."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from remuda.kube.runner_pod import runner_pod
from tests.support.eventually import eventually
from tests.support.nodes import a_node, live_nodes, node_path
from tests.support.runner_pods import SETTINGS, a_runner_pool

if TYPE_CHECKING:
    from tests.support.control_plane import RealControlPlane
    from tests.support.raw import Json, Raw

VM_HOST: Json = {"key": "remuda.dev/vm-host", "effect": "NoSchedule"}
PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.asyncio(loop_scope="session")
async def test_a_drain_cordons_the_host_and_leaves_its_runners_alone(
    real_control_plane: RealControlPlane, real: Raw
) -> None:
    small = {"cpu": "100m", "memory": "64Mi"}
    pool = a_runner_pool(namespace="default", fleet="drained", os="darwin", resources=small)
    async with live_nodes(real) as nodes:
        host = a_node("drained", "drained", taints=[VM_HOST])
        await nodes.add(host, **{"kubernetes.io/os": "darwin"})
        account = {"metadata": {"name": "mac-1"}}
        (await real.post("/api/v1/namespaces/default/serviceaccounts", account)).ok()
        (await real.post(PODS, json.loads(runner_pod(pool, "mac-1", SETTINGS)))).ok()
        await eventually(
            lambda: real.get(f"{PODS}/mac-1"), lambda answer: "nodeName" in answer.body["spec"]
        )

        with pytest.raises(subprocess.CalledProcessError) as refusal:
            await asyncio.to_thread(real_control_plane.kubectl, "drain", "drained", "--timeout=5s")

        kept = (await real.get(f"{PODS}/mac-1")).ok()
        assert "declare no controller" in refusal.value.stderr
        assert "deletionTimestamp" not in kept["metadata"]
        assert (await real.get(node_path("drained"))).ok()["spec"]["unschedulable"] is True
        await real.delete(f"{PODS}/mac-1", gracePeriodSeconds="0")
