"""The names and errors of the port that VMs are asked through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.names import image_label
from remuda.model.errors import Retry
from remuda.ports.vms import (
    HostUnfit,
    NameTaken,
    NoSlot,
    NoSpace,
    NotThere,
    Refused,
    StillRunning,
    TimedOut,
    VmsError,
    golden_name,
    vm_name,
)

UID = "0b6f5e2e-7a52-4a5e-9a1c-52a1a6d3c001"


def test_a_vm_bears_the_whole_uid_of_its_pod() -> None:
    assert vm_name(UID) == f"remuda-{UID}"
    assert len(vm_name(UID)) <= 63


def test_a_golden_is_named_as_the_label_of_its_image() -> None:
    image = "ghcr.io/tuist/tuist-runner@sha256:" + "a" * 64
    assert golden_name(image) == "remuda-golden-9c8af651fdf30b10"
    assert image_label(image) == "remuda.dev/image-9c8af651fdf30b10"


@given(st.text(), st.uuids())
def test_no_vm_is_named_as_a_golden(image: str, uid: object) -> None:
    assert vm_name(str(uid)) != golden_name(image)


@pytest.mark.parametrize(
    ("error", "retry"),
    [
        (VmsError, Retry.SOON),
        (NotThere, Retry.SOON),
        (NameTaken, Retry.NEVER),
        (StillRunning, Retry.SOON),
        (NoSpace, Retry.SOON),
        (NoSlot, Retry.SOON),
        (Refused, Retry.NEVER),
        (HostUnfit, Retry.SOON),
    ],
)
def test_an_error_says_whether_to_try_again(error: type[VmsError], retry: Retry) -> None:
    assert error("The VM was not cloned", why="x", fix="Do y").retry is retry


def test_a_call_that_hung_says_which() -> None:
    error = TimedOut("tart list hung", why="no answer in 30 s", fix="It is tried again", op="list")
    assert error.op == "list"
    assert error.retry is Retry.SOON
    assert str(error) == "tart list hung: no answer in 30 s. It is tried again."
