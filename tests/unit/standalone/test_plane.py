"""The control plane as a whole: in memory on virtual time, and durable across restarts."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from remuda.adapters.system import SystemClock, SystemIds
from remuda.model.errors import BadInput
from remuda.ports.wire import Request
from remuda.sim.clock import SimClock
from remuda.sim.ids import SeededIds
from remuda.sim.loop import run
from remuda.standalone.http import HttpSettings
from remuda.standalone.plane import (
    CERTIFICATE_CHECK_S,
    ControlPlane,
    DurableControlPlane,
    PortTaken,
)

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.standalone.local_wire import LocalWire

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def a_config_map(name: str) -> Request:
    return Request("POST", CONFIGMAPS, body=json.dumps({"metadata": {"name": name}}).encode())


async def asked(wire: LocalWire, request: Request) -> tuple[int, Any]:
    answer = await wire.send(request, timeout_s=5)
    return answer.status, json.loads(answer.body)


def durable(path: Path) -> DurableControlPlane:
    return ControlPlane.durable(path, SystemClock(), SystemIds())


def test_one_in_memory_is_furnished_before_anything_runs() -> None:
    async def main() -> list[str]:
        plane = ControlPlane.in_memory(SimClock(asyncio.get_running_loop()), SeededIds(1, "plane"))
        _, answer = await asked(plane.wire(), Request("GET", "/api/v1/serviceaccounts"))
        assert {account["metadata"]["name"] for account in answer["items"]} == {"default"}
        return [account["metadata"]["namespace"] for account in answer["items"]]

    assert run(main) == ["default", "kube-node-lease", "kube-public", "kube-system"]


def test_a_stranger_is_refused_without_a_network_too() -> None:
    async def main() -> int:
        plane = ControlPlane.in_memory(SimClock(asyncio.get_running_loop()), SeededIds(1, "plane"))
        status, _ = await asked(plane.wire("wrong"), Request("GET", CONFIGMAPS))
        return status

    assert run(main) == 401


def test_the_same_seed_gives_the_same_credentials() -> None:
    async def main() -> str:
        plane = ControlPlane.in_memory(SimClock(asyncio.get_running_loop()), SeededIds(1, "plane"))
        path = "/api/v1/namespaces/default/serviceaccounts/default/token"
        _, answer = await asked(plane.wire(), Request("POST", path, body=b"{}"))
        return plane.admin_token + str(answer["status"]["token"])

    assert run(main) == run(main)


def test_its_controllers_run_until_cancelled() -> None:
    async def main() -> int:
        plane = ControlPlane.in_memory(SimClock(asyncio.get_running_loop()), SeededIds(1, "plane"))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(plane.run(), name="plane")
            home = {"metadata": {"name": "ci"}}
            body = json.dumps(home).encode()
            await asked(plane.wire(), Request("POST", "/api/v1/namespaces", body=body))
            await asyncio.sleep(1)
            path = "/api/v1/namespaces/ci/serviceaccounts/default"
            status, _ = await asked(plane.wire(), Request("GET", path))
            task.cancel()
        return status

    assert run(main) == 200


async def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    first = durable(tmp_path / "data")
    await first.bootstrap()
    assert (await asked(first.wire(), a_config_map("a")))[0] == 201
    token = first.admin_token
    await first.close()

    second = durable(tmp_path / "data")
    await second.bootstrap()
    status, _ = await asked(second.wire(token), Request("GET", f"{CONFIGMAPS}/a"))
    await second.close()
    assert status == 200


async def test_a_directory_has_one_control_plane_at_a_time(tmp_path: Path) -> None:
    plane = durable(tmp_path)
    with pytest.raises(BadInput, match="in use"):
        durable(tmp_path)
    await plane.close()
    await durable(tmp_path).close()


def test_what_the_system_says_of_the_directory_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()  # stands for a full disk, and for all else that can happen to files
    with pytest.raises(BadInput, match="cannot be used") as refused:
        durable(tmp_path)
    assert "Is a directory" in str(refused.value)


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(BadInput, match=r"thesis\.txt"):
        durable(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    assert tmp_path.stat().st_mode & 0o777 == 0o755


class HurryingClock(SystemClock):
    """A clock on which three hundred days pass whenever somebody sleeps for a day."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead

    async def sleep(self, seconds: float) -> None:
        if seconds == CERTIFICATE_CHECK_S:
            await asyncio.sleep(0.2)
            self.ahead += timedelta(days=300)
        else:
            await asyncio.sleep(seconds)


async def test_certificates_are_renewed_while_it_runs(tmp_path: Path) -> None:
    plane = ControlPlane.durable(tmp_path, HurryingClock(), SystemIds())
    first = plane.pki
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def shown() -> bytes:
        host, port = (await address).removeprefix("https://").split(":")
        pem = await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))
        return pem.encode()

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        task = group.create_task(plane.serve(HttpSettings(port=0), address.set_result), name="it")
        assert (await shown()).split() == first.server.certificate.split()
        while plane.pki == first:  # noqa: ASYNC110 - the passing of days has no event
            await asyncio.sleep(0.05)
        assert (await shown()).split() == plane.pki.server.certificate.split()
        task.cancel()
    assert base64.b64encode(plane.pki.admin.key).decode() in plane.kubeconfig.read_text()
    await plane.close()


async def test_a_controller_that_fails_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    plane = durable(tmp_path)
    await plane.bootstrap()
    nodes = next(kind for kind in plane.kinds if kind.plural == "nodes")
    meta = {"name": "a", "uid": "1", "creationTimestamp": "2026-11-15T12:00:00Z"}
    plane.store.put(nodes, {"metadata": meta, "status": {"conditions": [5]}})  # past all checks
    await plane.store.settled()
    home = Request("POST", "/api/v1/namespaces", body=b'{"metadata": {"name": "ci"}}')
    account = Request("GET", "/api/v1/namespaces/ci/serviceaccounts/default")
    with capture_logs() as logs:
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            task = group.create_task(plane.run(), name="plane")
            await asyncio.sleep(0.1)
            assert (await asked(plane.wire(), home))[0] == 201
            while (await asked(plane.wire(), account))[0] != 200:  # noqa: ASYNC110 - a write by another
                await asyncio.sleep(0.01)
            task.cancel()
    await plane.close()
    assert [entry["controller"] for entry in logs] == ["node-lifecycle"]


async def test_a_taken_port_is_said_and_the_directory_let_go(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    plane = durable(tmp_path)
    try:
        with pytest.raises(PortTaken, match=f"cannot listen on 127.0.0.1:{port}"):
            await plane.serve(HttpSettings(port=port))
    finally:
        await plane.close()
        server.close()
    await durable(tmp_path).close()
