"""clone: a VM from another, or from an image. Either the whole new VM is there or nothing of it."""

from __future__ import annotations

import importlib
import uuid
from typing import TYPE_CHECKING

from remuda.adapters.registry.names import ImageName
from remuda.model.errors import BadInput
from tests.support.tart.cache import Cache
from tests.support.tart.failures import TartError
from tests.support.tart.home import copy_sparse
from tests.support.tart.locks import folder_lock
from tests.support.tart.moments import pause
from tests.support.tart.program import refuse
from tests.support.tart.vms import FILES, Vm, new_mac, same_mac

if TYPE_CHECKING:
    import argparse

    from tests.support.tart.faults import Desk
    from tests.support.tart.home import Home


def clone_(home: Home, desk: Desk, asked: argparse.Namespace) -> None:
    if "/" in asked.new or asked.new in {"", ".", ".."}:
        refuse("<new-name> should be a local name")
    source = _source(home, desk, asked)
    scratch = home.tmp / str(uuid.uuid4())  # noqa: TID251 - a program's own scratch name
    scratch.mkdir()
    with folder_lock(scratch), folder_lock(home.folder):
        config = source.config()
        for name in FILES:
            copy_sparse(source.folder / name, scratch / name)
        if source.saved_state.exists():
            copy_sparse(source.saved_state, scratch / source.saved_state.name)
        elif _is_taken(home, config["macAddress"]):
            Vm(asked.new, scratch).save({**config, "macAddress": new_mac()})
        if fault := desk.take("clone", asked.new, "stall"):
            pause(fault.seconds or 1_000_000)
        home.put(scratch, asked.new)
    source.touch()


def _source(home: Home, desk: Desk, asked: argparse.Namespace) -> Vm:
    if "/" not in asked.source:
        return home.open_local(asked.source)
    image = image_of(asked.source)
    cache = Cache(home.images)
    if not cache.vm(image).initialized:
        # Only now: an HTTP client takes longer to import than a clone takes.
        registry = importlib.import_module("tests.support.tart.transfers")
        registry.fetch(home, desk, image, asked)
    return cache.vm(image)


def _is_taken(home: Home, mac: str) -> bool:
    return any(same_mac(vm.config()["macAddress"], mac) for vm in home.local())


def image_of(text: str) -> ImageName:
    try:
        return ImageName.parse(text)
    except BadInput as error:
        raise TartError(f"failed to parse remote name: {error.why}") from None
