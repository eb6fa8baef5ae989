"""Our client of Scaleway's API, against a server that is made of the SDK's own types."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from scaleway.applesilicon.v1alpha1 import ServerStatus  # type: ignore[import-untyped] # it has types and no marker
from scaleway.applesilicon.v1alpha1.marshalling import unmarshal_OS, unmarshal_Server  # type: ignore[import-untyped] # it has types and no marker

from remuda.adapters.scaleway.client import UNREADABLE, ScalewayMachines
from remuda.adapters.scaleway.wire import ScalewaySettings
from remuda.model.secret import Secret
from remuda.ports.machines import (
    MachineBusy,
    MachineGone,
    MachinesError,
    MachinesRefused,
    MachinesThrottled,
    MachinesUnavailable,
)
from tests.support.scaleway_server import (
    TOKEN,
    ZONE,
    FakeScaleway,
    a_server,
    an_os,
    serving,
    spelled,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def a_client(
    fake: FakeScaleway, *, timeout_s: float = 60.0, page_size: int = 100
) -> AsyncIterator[ScalewayMachines]:
    async with serving(fake) as url:
        settings = ScalewaySettings(
            token=Secret(TOKEN.encode()), api_url=url, timeout_s=timeout_s, page_size=page_size
        )
        client = ScalewayMachines(settings)
        try:
            yield client
        finally:
            await client.close()


def test_the_fake_speaks_as_the_sdk_reads() -> None:
    server = a_server("a", "pool-1")

    assert unmarshal_Server(json.loads(json.dumps(spelled(server)))) == server
    assert unmarshal_OS(spelled(an_os())) == an_os()


async def test_a_machine_is_told_in_our_words() -> None:
    fake = FakeScaleway()
    fake.add(a_server("a", "pool-1", deletion_scheduled=True))
    async with a_client(fake) as client:
        (machine,) = await client.list(ZONE)
        same = await client.get(ZONE, "a")

    assert machine == same
    assert (machine.id, machine.name, machine.type, machine.address) == (
        "a",
        "pool-1",
        "M2-M",
        "192.0.2.7",
    )
    assert machine.delivered
    assert machine.leaving
    assert machine.image is not None
    assert (machine.image.family, machine.image.types) == ("Sequoia", ("M2-M",))
    assert machine.password == Secret(b"canary-password")
    assert "canary" not in repr(machine)
    assert set(fake.tokens) == {TOKEN}


@pytest.mark.parametrize(
    ("told", "vnc", "password"),
    [
        ("secret", "", b"secret"),
        ("", "vnc://m1:from%20vnc@192.0.2.7", b"from vnc"),
        ("<sealed>", "vnc://m1:x@192.0.2.7", None),
        ("", "vnc://m1:%3Csealed%3E@192.0.2.7", None),
        ("", "", None),
        ("", "vnc://[", None),
    ],
)
async def test_only_a_real_password_is_one(told: str, vnc: str, password: bytes | None) -> None:
    fake = FakeScaleway()
    fake.add(a_server("a", "pool-1", sudo_password=told, vnc_url=vnc))
    async with a_client(fake) as client:
        machine = await client.get(ZONE, "a")

    assert machine.password == (None if password is None else Secret(password))


async def test_lists_are_read_to_their_last_page() -> None:
    fake = FakeScaleway()
    fake.add(*(a_server(f"id-{n:03d}", f"pool-{n}") for n in range(25)))
    async with a_client(fake, page_size=10) as client:
        machines = await client.list(ZONE)

    assert [m.id for m in machines] == [f"id-{n:03d}" for n in range(25)]
    assert len(fake.calls) == 3


async def test_a_machine_of_which_little_makes_sense_is_still_seen() -> None:
    """Were it hidden, its Host would be given a second one."""
    fake = FakeScaleway()
    odd = {"id": "a", "name": "remuda-x-1", "ip": {"new": "shape"}}
    body = json.dumps({"total_count": 1, "servers": [odd]})
    fake.faults["GET servers"] = [(200, {}, body)]
    async with a_client(fake) as client:
        (machine,) = await client.list(ZONE)

    assert (machine.name, machine.state, machine.delivered) == ("remuda-x-1", UNREADABLE, False)


@pytest.mark.parametrize("body", ["[]", "not json", '{"servers": [{"id": "a"}], "total_count": 1}'])
async def test_an_answer_without_meaning_is_not_an_empty_list(body: str) -> None:
    fake = FakeScaleway()
    fake.faults["GET servers"] = [(200, {}, body)]
    async with a_client(fake) as client:
        with pytest.raises(MachinesUnavailable):
            await client.list(ZONE)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, MachineGone),
        (410, MachineGone),
        (401, MachinesRefused),
        (403, MachinesRefused),
        (409, MachineBusy),
        (429, MachinesThrottled),
        (500, MachinesUnavailable),
        (503, MachinesUnavailable),
        (400, MachinesError),
        (302, MachinesError),
    ],
)
async def test_errors_are_told_apart_by_what_to_do(status: int, kind: type[MachinesError]) -> None:
    fake = FakeScaleway()
    said = json.dumps({"type": "some", "message": "the provider's words"})
    fake.faults["PATCH a"] = [(status, {"Retry-After": "7"}, said)]
    async with a_client(fake) as client:
        with pytest.raises(MachinesError) as raised:
            await client.rename(ZONE, "a", "b")

    assert type(raised.value) is kind
    assert "the provider's words" in str(raised.value)
    assert TOKEN not in str(raised.value)
    if isinstance(raised.value, MachinesThrottled):
        assert raised.value.retry_after_s == 7


async def test_a_wrong_moment_is_told_from_a_wrong_request() -> None:
    fake = FakeScaleway()
    said = json.dumps({"type": "transient_state", "message": "resource is in a transient state"})
    fake.faults["POST reinstall"] = [(400, {}, said)]
    async with a_client(fake) as client:
        with pytest.raises(MachineBusy):
            await client.reinstall(ZONE, "a", "os")


async def test_no_answer_is_an_error_in_time_and_holds_no_token() -> None:
    fake = FakeScaleway(lost={"PATCH a"})
    fake.add(a_server("a", "pool-1"))
    async with a_client(fake, timeout_s=0.5) as client:
        with pytest.raises(MachinesUnavailable) as raised:
            await client.rename(ZONE, "a", "b")

    assert TOKEN not in str(raised.value)
    assert raised.value.__cause__ is None
    assert fake.servers["a"].name == "b", "whether it was carried out is unknown, and here it was"


async def test_a_rename_sends_the_name_and_nothing_else() -> None:
    fake = FakeScaleway()
    fake.add(a_server("a", "pool-1"))
    async with a_client(fake) as client:
        assert (await client.rename(ZONE, "a", "b")).name == "b"
        await client.reboot(ZONE, "a")
        await client.reinstall(ZONE, "a", "os-sequoia-15.6")
        images = await client.images(ZONE, "M2-M")

    assert fake.writes() == [
        ("PATCH", "/servers/a", {"name": "b"}),
        ("POST", "/servers/a/reboot", {}),
        ("POST", "/servers/a/reinstall", {"os_id": "os-sequoia-15.6", "enable_kext": False}),
    ]
    assert fake.servers["a"].status is ServerStatus.REINSTALLING
    assert [image.name for image in images] == ["macos-sequoia-15.6"]


async def test_ids_cannot_leave_their_place_in_the_address() -> None:
    fake = FakeScaleway()
    async with a_client(fake) as client:
        with pytest.raises(MachineGone):
            await client.get(ZONE, "../../../account")

    assert fake.calls[0][1].startswith("/servers/")
