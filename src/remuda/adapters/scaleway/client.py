"""
Scaleway's Apple silicon API, v1alpha1. Fills ``remuda.ports.machines.Machines``.

Decoding is tolerant: a field that is missing, null or new breaks nothing. A machine of which only the id and the name
make sense is shown with these, as one that nobody can use: were it hidden, its Host would be given a second one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote, unquote, urlsplit

import msgspec

from remuda.adapters.scaleway.wire import Ask, ScalewaySettings, ScalewayWire
from remuda.kube.times import parse_time
from remuda.model.secret import Secret
from remuda.ports.machines import Image, Machine, MachinesError, MachinesUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

T = TypeVar("T", bound=msgspec.Struct)

SEALED: Final = "<sealed>"
"""What stands in place of a password that is not told any more. Never a password."""
UNREADABLE: Final = "unreadable"
_ROOT: Final = "/apple-silicon/v1alpha1/zones"
_WHERE: Final = "Check the API's address"


class _Supported(msgspec.Struct, frozen=True):
    server_type: str | None = None


class _Os(msgspec.Struct, frozen=True):
    id: str | None = None
    name: str | None = None
    family: str | None = None
    version: str | None = None
    is_beta: bool | None = None
    supported_server_types: tuple[_Supported, ...] | None = None
    compatible_server_types: tuple[str, ...] | None = None

    def image(self) -> Image | None:
        if not self.id or not self.name:
            return None
        supported = {s.server_type for s in self.supported_server_types or () if s.server_type}
        return Image(
            id=self.id,
            name=self.name,
            family=self.family or "",
            version=self.version or "",
            beta=bool(self.is_beta),
            types=tuple(sorted(supported | set(self.compatible_server_types or ()))),
        )


class _Named(msgspec.Struct, frozen=True):
    """The least that must be known of a machine."""

    id: str
    name: str


class _Server(msgspec.Struct, frozen=True):
    id: str | None = None
    name: str | None = None
    type: str | None = None
    zone: str | None = None
    ip: str | None = None
    status: str | None = None
    delivered: bool | None = None
    deletion_scheduled: bool | None = None
    os: _Os | None = None
    updated_at: str | None = None
    ssh_username: str | None = None
    sudo_password: str | None = None
    vnc_url: str | None = None

    def machine(self, zone: str) -> Machine | None:
        if not self.id or not self.name:
            return None
        return Machine(
            id=self.id,
            name=self.name,
            zone=self.zone or zone,
            type=self.type or "",
            address=self.ip or "",
            state=self.status or "unknown_status",
            delivered=bool(self.delivered),
            leaving=bool(self.deletion_scheduled),
            image=None if self.os is None else self.os.image(),
            changed_at=_time(self.updated_at),
            user=self.ssh_username or "",
            password=_password(self),
        )


class _Page(msgspec.Struct, frozen=True):
    """One page of a list; which of the two lists it is says the request."""

    total_count: int | None = None
    servers: tuple[msgspec.Raw, ...] | None = None
    os: tuple[msgspec.Raw, ...] | None = None


class ScalewayMachines:
    """The Macs of one API key."""

    def __init__(self, settings: ScalewaySettings) -> None:
        self._settings = settings
        self._wire = ScalewayWire(settings)

    async def close(self) -> None:
        await self._wire.close()

    async def list(self, zone: str) -> tuple[Machine, ...]:
        """Return all machines of a zone, in the order of their ids."""
        query = {"project_id": self._settings.project} if self._settings.project else {}
        what = f"The Macs of zone {zone} could not be listed"
        path = f"{_ROOT}/{_part(zone)}/servers"
        raws = await self._pages(what, path, query, lambda page: page.servers or ())
        machines = (_machine(what, zone, bytes(raw)) for raw in raws)
        return tuple(sorted(machines, key=lambda machine: machine.id))

    async def get(self, zone: str, machine: str) -> Machine:
        what = f"The Mac {machine} could not be looked at"
        return _machine(what, zone, await self._wire.send(Ask(what=what, path=_of(zone, machine))))

    async def rename(self, zone: str, machine: str, name: str) -> Machine:
        what = f"The Mac {machine} could not be renamed to {name}"
        # The name alone: another key in this body would cancel the contract or change the network.
        ask = Ask(what=what, method="PATCH", path=_of(zone, machine), body={"name": name})
        return _machine(what, zone, await self._wire.send(ask))

    async def reboot(self, zone: str, machine: str) -> None:
        what = f"The Mac {machine} could not be rebooted"
        path = f"{_of(zone, machine)}/reboot"
        await self._wire.send(Ask(what=what, method="POST", path=path, body={}))

    async def reinstall(self, zone: str, machine: str, image: str) -> None:
        what = f"The Mac {machine} could not be installed anew"
        path = f"{_of(zone, machine)}/reinstall"
        body = {"os_id": image, "enable_kext": False}
        await self._wire.send(Ask(what=what, method="POST", path=path, body=body))

    async def images(self, zone: str, type: str) -> tuple[Image, ...]:  # noqa: A002 - the provider's own word
        """Return what can be installed on a type of machines now, in the order of their ids."""
        what = f"The systems for {type} in zone {zone} could not be listed"
        path = f"{_ROOT}/{_part(zone)}/os"
        raws = await self._pages(what, path, {"server_type": type}, lambda page: page.os or ())
        found = [_decoded(raw, _Os) for raw in raws]
        images = [i for o in found if o is not None and (i := o.image()) is not None]
        return tuple(sorted(images, key=lambda image: image.id))

    async def _pages(
        self,
        what: str,
        path: str,
        query: Mapping[str, str],
        items: Callable[[_Page], tuple[msgspec.Raw, ...]],
    ) -> tuple[msgspec.Raw, ...]:
        """Return the items of all pages. A list that moves while it is read may show one twice; never none of it."""
        found: dict[bytes, msgspec.Raw] = {}
        seen = 0
        for number in range(1, self._settings.pages_max + 1):
            size = self._settings.page_size
            asked = {**query, "page": str(number), "page_size": str(size)}
            page = _decoded_page(
                what, await self._wire.send(Ask(what=what, path=path, query=asked))
            )
            here = items(page)
            seen += len(here)
            found |= {bytes(raw): raw for raw in here}
            if not here or seen >= (page.total_count or 0):
                return tuple(found.values())
        raise MachinesError(
            what,
            why=f"there are more than {self._settings.pages_max} pages",
            fix="Give --scaleway-project, so that only the fleet's Macs are listed",
        )


def _machine(what: str, zone: str, body: bytes) -> Machine:
    """Return what is told of a machine. One that cannot even be named is an error: it may be anybody's."""
    full = _decoded(body, _Server)
    if full is not None and (machine := full.machine(zone)) is not None:
        return machine
    named = _decoded(body, _Named)
    if named is None:
        why = "the answer holds something that is no Mac"
        raise MachinesUnavailable(what, why=why, fix=_WHERE)
    return Machine(
        id=named.id, name=named.name, zone=zone, type="", state=UNREADABLE, delivered=False
    )


def _password(server: _Server) -> Secret | None:
    """Return the account's password: as told, or as part of the address for screen sharing; never what hides one."""
    given = server.sudo_password or ""
    if not given and server.vnc_url:
        try:
            given = unquote(urlsplit(server.vnc_url).password or "")
        except ValueError:
            given = ""
    return Secret(given.encode()) if given and given != SEALED else None


def _time(text: str | None) -> datetime | None:
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None


def _decoded(body: bytes | msgspec.Raw, shape: type[T]) -> T | None:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, ValueError):
        return None


def _decoded_page(what: str, body: bytes) -> _Page:
    try:
        return msgspec.json.decode(body, type=_Page)
    except (msgspec.MsgspecError, ValueError) as error:
        # An empty list would look like "no Macs at all".
        why = f"the answer makes no sense ({error})"
        raise MachinesUnavailable(what, why=why, fix=_WHERE) from None


def _of(zone: str, machine: str) -> str:
    return f"{_ROOT}/{_part(zone)}/servers/{_part(machine)}"


def _part(text: str) -> str:
    return quote(text, safe="")
