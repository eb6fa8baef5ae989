"""Pools and the Pods made from them, for the tests of what a runner looks like."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from remuda.kube.runner_pod import Placement, PodSettings, runner_pod
from remuda.kube.runner_pool import RunnerPool

Json = dict[str, Any]

SETTINGS = PodSettings(dispatch_url="https://dispatch.test", poller_image="registry.test/remuda:1")
KATA: Json = {"runtimeClassName": "kata-qemu"}
DOCKER: Json = {**KATA, "docker": {"enabled": True}, "podSecurity": "unrestricted"}
IMAGE = "registry.test/runner@sha256:0"


def a_runner_pool(*, name: str = "mac", namespace: str = "runners", **spec: Any) -> RunnerPool:  # noqa: ANN401 - JSON
    """Return a pool of VMs; ``**KATA`` makes it one of Pods."""
    body = {
        "metadata": {"name": name, "namespace": namespace, "uid": "u", "generation": 1},
        "spec": {"image": IMAGE, "fleet": "barn", "labels": ["self-hosted"], **spec},
    }
    return msgspec.convert(body, RunnerPool)


def pod_of(pool: RunnerPool, placement: Placement = Placement()) -> Json:  # noqa: B008 - frozen
    """Return the manifest of the runner mac-1, decoded."""
    found: Json = json.loads(runner_pod(pool, "mac-1", SETTINGS, placement))
    return found


def with_template(template: object, **spec: Any) -> RunnerPool:  # noqa: ANN401 - JSON
    return a_runner_pool(**spec, template=template)


def the_example() -> Json:
    """Return the template that the page about runner Pods shows."""
    page = Path(__file__).resolve().parents[2] / "docs/reference/runner-pods.md"
    [example] = re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    found: Json = yaml.safe_load(example)["spec"]["template"]
    return found


def container(pod: Json, name: str = "runner") -> Json:
    """Return a container or init container by its name."""
    every: list[Json] = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    return next(c for c in every if c["name"] == name)


def env(found: Json) -> dict[str, str]:
    """Return a container's variables; one taken from a field shows the field."""
    return {
        v["name"]: v["value"] if "value" in v else v["valueFrom"]["fieldRef"]["fieldPath"]
        for v in found.get("env", [])
    }
