"""The sums that scheduling reads must be those of the store, whatever happened on the way."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from remuda.standalone.node_rooms import NodeRooms

VM = "remuda.dev/vm"


def a_node(name: str, vms: int) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {}, "status": {"allocatable": {VM: str(vms)}}}


def a_pod(uid: str, node: str, phase: str) -> dict[str, Any]:
    container = {"resources": {"requests": {VM: str(len(uid))}}}
    return {
        "metadata": {"name": uid, "namespace": "ci", "uid": uid},
        "spec": {"containers": [container], **({"nodeName": node} if node else {})},
        "status": {"phase": phase},
    }


uids, names = st.sampled_from(["p", "qq", "rrr"]), st.sampled_from(["a", "b"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("node"), names, st.integers(0, 3)),
        st.tuples(st.just("node gone"), names),
        st.tuples(st.just("pod"), uids, st.sampled_from(["Pending", "Running", "Failed"])),
        st.tuples(st.just("bound"), uids, names),
        st.tuples(st.just("pod gone"), uids),
    ),
    max_size=30,
)


@given(steps)
def test_what_was_noted_step_by_step_is_what_a_listing_gives(steps: list[tuple[Any, ...]]) -> None:
    nodes: dict[str, dict[str, Any]] = {}
    pods: dict[str, dict[str, Any]] = {}
    noted = NodeRooms()
    for step in steps:
        match step:
            case ("node", name, vms):
                nodes[name] = a_node(name, vms)
                noted.note_node(nodes[name])
            case ("node gone", name):
                nodes.pop(name, None)
                noted.forget_node(name)
            case ("pod", uid, phase):
                # As in the store: a Pod stays on its Node, and one that is over does not come back.
                old = pods.get(uid)
                ended = old is not None and old["status"]["phase"] == "Failed"
                node = old["spec"].get("nodeName", "") if old else ""
                pods[uid] = a_pod(uid, node, "Failed" if ended else phase)
                noted.note_pod(pods[uid])
            case ("bound", uid, name):
                if uid in pods and "nodeName" not in pods[uid]["spec"]:
                    pods[uid] = a_pod(uid, name, pods[uid]["status"]["phase"])
                    noted.note_pod(pods[uid])
            case _:
                pods.pop(step[1], None)
                noted.forget_pod(step[1])
        noted.places()  # asked in between, so that what is remembered can go stale
    fresh = NodeRooms()
    fresh.read(nodes.values(), pods.values())
    assert noted.places() == fresh.places()


def test_a_pod_bound_by_hand_that_makes_no_sense_still_takes_a_place() -> None:
    rooms = NodeRooms()
    bad = a_pod("p", "a", "Running")
    bad["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "much"}
    rooms.read([a_node("a", 1)], [bad])
    (place,) = rooms.places()
    assert (place.pod_count, place.used) == (1, {})


def test_a_node_that_makes_no_sense_takes_nobody() -> None:
    rooms = NodeRooms()
    node = a_node("a", 1)
    node["status"]["allocatable"] = {"cpu": "much"}
    rooms.read([node], [])
    assert rooms.places() == []
