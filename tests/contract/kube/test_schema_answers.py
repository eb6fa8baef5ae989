"""The recorded answers of the real API server about schemas: still its own, and ours."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.backends import CRDS
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.support.raw import Answer, Json, Raw
    from tests.support.space import Space

FILE = Path(__file__).parents[2] / "unit/standalone/schema/recorded.json"
RECORDED: Json = json.loads(FILE.read_text())
CASES = RECORDED["cases"]
CREATES = [case for case in CASES if "old" not in case]
RATCHETED = [case for case in CASES if "ratchet" in case.get("old", {})]
UPDATES = [case for case in CASES if "old" in case and case not in RATCHETED]


def a_crd(plural: str, schema: Json) -> Json:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.test.dev"},
        "spec": {
            "group": "test.dev",
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural[:-1], "kind": plural[:-1].capitalize()},
            "versions": [version],
        },
    }


async def served(raw: Raw, space: Space, plural: str, schema: Json) -> str:
    """Create a CRD, wait until it is served, and return the path of its objects."""
    (await raw.post(CRDS, a_crd(plural, schema))).ok()
    path = f"/apis/test.dev/v1/namespaces/{space.name}/{plural}"
    await eventually(lambda: raw.get(path), lambda answer: answer.status == 200)
    return path


def a_probe(plural: str, name: str, case: Json, key: str) -> Json:
    kind = plural[:-1].capitalize()
    probe = {"apiVersion": "test.dev/v1", "kind": kind, "metadata": {"name": name}}
    return probe | ({"spec": case[key]} if key in case else {})


def expected(case: Json) -> Json:
    return sorted(case["refused"]) if "refused" in case else case["stored"]


def found(answer: Answer) -> Json:
    if answer.status in (200, 201):
        return answer.body["spec"]
    return sorted(list(cause) for cause in answer.causes)


async def test_creates_are_answered_as_recorded(raw: Raw, space: Space) -> None:
    path = await served(raw, space, "probes", RECORDED["schema"])

    for case in CREATES:
        answer = await raw.post(path, a_probe("probes", case["name"], case, "spec"), dryRun="All")
        assert (case["id"], found(answer)) == (case["id"], expected(case))

    (await raw.delete(f"{CRDS}/probes.test.dev")).ok()


async def test_updates_are_answered_as_recorded(raw: Raw, space: Space) -> None:
    path = await served(raw, space, "changes", RECORDED["schema"])

    for number, case in enumerate(UPDATES):
        before = (await raw.post(path, a_probe("changes", f"p{number}", case, "old"))).ok()
        answer = await raw.put(f"{path}/p{number}", before | {"spec": case["spec"]})
        assert (case["id"], found(answer)) == (case["id"], expected(case))

    (await raw.delete(f"{CRDS}/changes.test.dev")).ok()


async def test_a_tightened_schema_tolerates_what_does_not_change(raw: Raw, space: Space) -> None:
    loose = copy.deepcopy(RECORDED["schema"])
    loose["properties"]["spec"]["properties"]["ratchet"] = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }
    path = await served(raw, space, "ratchets", loose)
    stored = [
        (await raw.post(path, a_probe("ratchets", f"r{number}", case, "old"))).ok()
        for number, case in enumerate(RATCHETED)
    ]

    tight = {"spec": {"versions": a_crd("ratchets", RECORDED["schema"])["spec"]["versions"]}}
    (await raw.merge(f"{CRDS}/ratchets.test.dev", tight)).ok()
    refused = a_probe("ratchets", "late", {"spec": {"ratchet": {"enum": "z"}}}, "spec")
    await eventually(
        lambda: raw.post(path, refused, dryRun="All"), lambda answer: answer.status == 422
    )

    for before, case in zip(stored, RATCHETED, strict=True):
        answer = await raw.put(
            f"{path}/{before['metadata']['name']}", before | {"spec": case["spec"]}
        )
        assert (case["id"], found(answer)) == (case["id"], expected(case))

    (await raw.delete(f"{CRDS}/ratchets.test.dev")).ok()
