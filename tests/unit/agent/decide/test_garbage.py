"""What may be removed from a host, and above all what may not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agent.decide.garbage import (
    DeleteOrphan,
    DropImage,
    Garbage,
    GarbagePolicy,
    Host,
    Need,
    StopOrphan,
    collect,
)
from remuda.agent.decide.lifecycle import Observed
from remuda.agent.decide.recorded import ImageState, State
from remuda.ports.vms import golden_name, vm_name
from tests.unit.agent.builders import IMAGE, NOON, UID, a_record, ago, an_image

if TYPE_CHECKING:
    from remuda.agent.decide.recorded import ImageRecord, VmRecord

POLICY = GarbagePolicy()
OTHER = "registry.example/mac@sha256:" + "b" * 64
THIRD = "registry.example/mac@sha256:" + "c" * 64
LONG_AGO = ago(hours=2)


def doing(garbage: Garbage) -> list[tuple[str, str]]:
    """Return what is done to what."""
    return [
        (type(r).__name__, r.record.golden if isinstance(r, DropImage) else r.record.vm)
        for r in garbage.removals
    ]


def orphan(
    record: VmRecord, observed: Observed, *, gone: timedelta | None = timedelta(hours=2)
) -> Host:
    gone_since = {} if gone is None else {record.pod_uid: NOON - gone}
    return Host(vms={record.vm: observed}, records=(record,), gone_since=gone_since)


DELETES = [("DeleteOrphan", vm_name(UID))]
STOPS = [("StopOrphan", vm_name(UID))]


@pytest.mark.parametrize(
    ("host", "removed"),
    [
        pytest.param(
            orphan(a_record(State.EXITED), Observed.STOPPED), DELETES,
            id="a stopped VM whose Pod is gone goes",
        ),
        pytest.param(
            orphan(a_record(State.CLONING), Observed.STOPPED), DELETES,
            id="a half clone whose Pod is gone goes",
        ),
        pytest.param(
            orphan(a_record(State.EXITED), Observed.STOPPED, gone=timedelta(seconds=59)), [],
            id="a Pod that has only just gone is given a moment",
        ),
        pytest.param(
            orphan(a_record(State.EXITED), Observed.STOPPED, gone=None), [],
            id="a VM with a Pod is not ours to collect",
        ),
        pytest.param(
            orphan(a_record(State.STARTED), Observed.RUNNING), STOPS,
            id="an orphan that runs is stopped first",
        ),
        pytest.param(
            orphan(a_record(State.STARTED), Observed.RUNNING, gone=timedelta(minutes=9)), [],
            id="an orphan that runs has its grace",
        ),
        pytest.param(
            orphan(a_record(State.DELIVERED, delivered_at=ago(hours=3)), Observed.RUNNING), [],
            id="an orphan with a job is left to its job",
        ),
        pytest.param(
            orphan(a_record(State.DELIVERING, started_at=ago(hours=3)), Observed.RUNNING), [],
            id="an orphan that may have a job is left to it",
        ),
        pytest.param(
            orphan(a_record(State.DELIVERED, job_deadline=ago(seconds=1)), Observed.RUNNING), STOPS,
            id="until the deadline of the job",
        ),
        pytest.param(
            orphan(a_record(State.DELIVERED, delivered_at=ago(hours=25)), Observed.RUNNING), STOPS,
            id="or until no job can last any longer",
        ),
        pytest.param(
            orphan(a_record(State.EXITED), Observed.UNKNOWN), [],
            id="what cannot be seen is left",
        ),
        pytest.param(
            orphan(a_record(State.REFUSED), Observed.STOPPED), [],
            id="the namesake that a Pod was refused for is left",
        ),
        pytest.param(
            Host(vms={vm_name(UID): Observed.STOPPED}), [],
            id="a VM without a record is not ours, even with our name",
        ),
        pytest.param(
            Host(vms={"builder": Observed.STOPPED, golden_name(IMAGE): Observed.STOPPED}), [],
            id="nor is a golden without a record",
        ),
        pytest.param(
            Host(vms={}, records=(a_record(State.EXITED),), gone_since={UID: LONG_AGO}), [],
            id="what is not there needs no deletion",
        ),
        pytest.param(
            replace(
                orphan(a_record(State.EXITED), Observed.STOPPED),
                vms={vm_name(UID): Observed.STOPPED, f"{vm_name(UID)}-2": Observed.STOPPED},
            ),
            DELETES, id="a name that begins like ours is another name",
        ),
    ],
)  # fmt: skip
def test_vms(host: Host, removed: list[tuple[str, str]]) -> None:
    assert doing(collect(host, POLICY, Need.NONE, NOON)) == removed


def goldens(*images: ImageRecord, observed: Observed = Observed.STOPPED) -> Host:
    return Host(vms={r.golden: observed for r in images}, images=images)


OLD = an_image(OTHER, wanted_at=ago(hours=25))
OLDER = an_image(THIRD, wanted_at=ago(hours=26))
FRESH = an_image(IMAGE, wanted_at=ago(hours=1))


def dropped(*images: ImageRecord) -> list[tuple[str, str]]:
    return [("DropImage", r.golden) for r in images]


@pytest.mark.parametrize(
    ("host", "need", "removed"),
    [
        pytest.param(goldens(OLD, FRESH), Need.NONE, dropped(OLD), id="after a day an image goes"),
        pytest.param(goldens(FRESH, an_image(OTHER)), Need.NONE, [], id="before that it stays"),
        pytest.param(goldens(OLD), Need.NONE, [], id="the last golden stays, however old"),
        pytest.param(goldens(OLD, OLDER), Need.NONE, dropped(OLDER), id="of several the newest stays"),
        pytest.param(
            replace(goldens(OLD, FRESH), wanted_images=frozenset({OTHER})), Need.NO_SPACE,
            dropped(FRESH), id="a wanted image stays, whatever the need",
        ),
        pytest.param(
            replace(goldens(OLD, FRESH), busy_images=frozenset({OTHER})), Need.NO_SPACE,
            dropped(FRESH), id="an image that is being cloned stays",
        ),
        pytest.param(
            replace(goldens(OLD, FRESH), records=(a_record(State.DELIVERED, image=OTHER),)),
            Need.NO_SPACE, dropped(FRESH), id="an image that a VM was made from stays",
        ),
        pytest.param(
            replace(goldens(OLD, FRESH), records=(a_record(State.CLEARED, image=OTHER),)),
            Need.NONE, dropped(OLD), id="a VM that is gone needs no image",
        ),
        pytest.param(
            goldens(FRESH, an_image(OTHER)), Need.ROOM, dropped(FRESH),
            id="under pressure age does not count, but the newest stays",
        ),
        pytest.param(
            goldens(OLD, FRESH), Need.NO_SPACE, dropped(OLD, FRESH),
            id="for an image that does not fit, all that nobody uses goes",
        ),
        pytest.param(goldens(OLD, FRESH, observed=Observed.RUNNING), Need.NO_SPACE, [], id="a golden that runs stays"),
        pytest.param(
            goldens(OLD, FRESH, observed=Observed.UNKNOWN), Need.NO_SPACE, [],
            id="a golden that cannot be seen stays",
        ),
        pytest.param(
            replace(goldens(OLD, FRESH), unreadable=True), Need.NO_SPACE, [],
            id="while a record cannot be read, its golden may be any",
        ),
        pytest.param(
            goldens(an_image(OTHER, ImageState.FETCHING), FRESH), Need.NONE,
            dropped(an_image(OTHER, ImageState.FETCHING)), id="half an image that nobody wants goes",
        ),
        pytest.param(
            Host(vms={}, images=(OLD,)), Need.NONE, dropped(OLD),
            id="a pulled image whose golden is gone does not count as one",
        ),
    ],
)  # fmt: skip
def test_images(host: Host, need: Need, removed: list[tuple[str, str]]) -> None:
    assert doing(collect(host, POLICY, need, NOON)) == removed


@pytest.mark.parametrize("need", Need)
def test_a_builder_collects_nothing_whatever_the_need(need: Need) -> None:
    host = replace(goldens(OLD, OLDER), records=(a_record(State.EXITED),))
    host = replace(
        host, vms={**host.vms, vm_name(UID): Observed.STOPPED}, gone_since={UID: LONG_AGO}
    )
    assert collect(host, POLICY, need, NOON).removals != ()
    assert collect(host, replace(POLICY, enabled=False), need, NOON).removals == ()


def test_what_stays_says_why() -> None:
    host = Host(
        vms={"builder": Observed.RUNNING, vm_name(UID): Observed.RUNNING},
        records=(a_record(State.STARTED),),
    )
    assert {s.name: s.why for s in collect(host, POLICY, Need.NONE, NOON).spared} == {
        vm_name(UID): "its Pod is there",
        "builder": "we have no record of it: it is not ours",
    }


# --- properties -------------------------------------------------------------------------------------------------------

uids = st.sampled_from([f"uid-{n}" for n in range(4)])
images = st.sampled_from([IMAGE, OTHER, THIRD])
times = st.integers(0, 72).map(lambda h: ago(hours=h))
vm_records = st.builds(
    a_record,
    st.sampled_from(State),
    uids,
    image=images,
    delivered_at=st.none() | times,
    job_deadline=st.none() | times,
)
image_records = st.builds(an_image, images, st.sampled_from(ImageState), times)
names = st.sampled_from(
    [vm_name(f"uid-{n}") for n in range(6)] + [golden_name(i) for i in (IMAGE, OTHER, THIRD)]
)
hosts = st.builds(
    Host,
    vms=st.dictionaries(names, st.sampled_from(Observed)),
    records=st.lists(vm_records, unique_by=lambda r: r.pod_uid).map(tuple),
    images=st.lists(image_records, unique_by=lambda r: r.image).map(tuple),
    gone_since=st.dictionaries(uids, times),
    wanted_images=st.frozensets(images),
    busy_images=st.frozensets(images),
    unreadable=st.booleans(),
)
needs = st.sampled_from(Need)


@given(hosts, needs)
def test_nothing_goes_that_is_not_ours_alive_or_running(host: Host, need: Need) -> None:
    for removal in collect(host, POLICY, need, NOON).removals:
        if isinstance(removal, DropImage):
            assert removal.record in host.images
            assert removal.record.image not in host.wanted_images | host.busy_images
            assert host.vms.get(removal.record.golden) in {None, Observed.STOPPED, Observed.ABSENT}
            live = [r for r in host.records if r.state not in {State.CLEARED, State.REFUSED}]
            assert removal.record.image not in {r.image for r in live}
            continue
        assert removal.record in host.records
        assert removal.record.state is not State.REFUSED
        since = host.gone_since[removal.record.pod_uid]
        observed = host.vms[removal.record.vm]
        assert observed is (
            Observed.RUNNING if isinstance(removal, StopOrphan) else Observed.STOPPED
        )
        grace = POLICY.running_grace if observed is Observed.RUNNING else POLICY.stopped_grace
        assert since + grace <= NOON


@given(hosts)
def test_a_whole_golden_stays_if_there_was_one(host: Host) -> None:
    there = {name for name, observed in host.vms.items() if observed is not Observed.ABSENT}
    whole = {r.golden for r in host.images if r.state is ImageState.READY} & there
    gone = {
        r.record.golden
        for r in collect(host, POLICY, Need.ROOM, NOON).removals
        if isinstance(r, DropImage)
    }
    assert not whole or whole - gone


@given(hosts, needs)
def test_the_order_of_what_is_known_does_not_matter(host: Host, need: Need) -> None:
    turned = replace(
        host,
        records=host.records[::-1],
        images=host.images[::-1],
        vms=dict(reversed(list(host.vms.items()))),
    )
    assert collect(turned, POLICY, need, NOON) == collect(host, POLICY, need, NOON)


@given(hosts)
def test_more_need_never_frees_less(host: Host) -> None:
    removed = [set(doing(collect(host, POLICY, need, NOON))) for need in Need]
    assert removed[0] <= removed[1] <= removed[2]


def test_deletions_are_of_orphans() -> None:
    (only,) = collect(
        orphan(a_record(State.EXITED), Observed.STOPPED), POLICY, Need.NONE, NOON
    ).removals
    assert isinstance(only, DeleteOrphan)
    assert only.why == "its Pod is gone and it is stopped"
