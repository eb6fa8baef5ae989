"""A host's Node, Lease and logs on a real API server, as ``system:node`` and no more: kubectl sees what is so."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from remuda.adapters.kube_client import KubeClient
from remuda.adapters.kubelet_gate import Gate
from remuda.adapters.kubelet_server import KubeletEndpoint, serving_kubelet
from remuda.adapters.serving_certificate import ServingCertificate
from remuda.adapters.status_server import Listen
from remuda.adapters.system import SystemClock, SystemIds
from remuda.agent.decide.capacity import HostOffer
from remuda.agent.decide.disk import DiskSpace, DiskState
from remuda.agent.decide.node_shown import NodeAbout
from remuda.agent.decide.recorded import State, Verdict, VmRecord
from remuda.agent.facts import read_facts
from remuda.agent.lease import LeaseSettings, LeaseThread
from remuda.agent.ledger import OneThread
from remuda.agent.log_reading import LogReading, LogSources
from remuda.agent.log_store import DiskLogStore
from remuda.agent.mailbox import HostMailbox
from remuda.agent.node import NodeApi, NodeKeeper
from remuda.agent.parts import HostState
from remuda.agent.settings import AgentSettings
from remuda.control.events import EventRecorder, EventSettings
from remuda.control.health import Health
from remuda.control.reflector import Reflector
from remuda.kube.core import NODE
from remuda.kube.names import image_label
from remuda.ports.kube import Query
from remuda.ports.vms import Abilities, vm_name
from remuda.ports.wire import Request
from tests.support.eventually import eventually
from tests.support.kubectl import Kubectl
from tests.support.node_identity import node_identity, wire_of
from tests.support.nodes import lease_path, node_path
from tests.support.raw import Raw
from tests.support.space import Space

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from remuda.ports.kube import Kube
    from remuda.ports.wire import Wire
    from tests.support.control_plane import RealControlPlane

Json = dict[str, Any]
WITHIN_S = 60.0
IMAGE = "registry.test/mac:1"
ABILITIES = Abilities(
    runtime="memory",
    guest_os=frozenset({"darwin"}),
    isolated=False,
    vms_max=2,
    pulls=True,
    shared_goldens=False,
    sees_guest_disk=False,
)
WELL = HostState(
    offered_vms=2,
    most_vms=2,
    images=frozenset(),
    disk=DiskState(),
    disk_space=DiskSpace(500, 1000),
)


class Host:
    """The Node's side of an agent, without VMs: its guests are files that the test writes."""

    def __init__(self, plane: RealControlPlane, folder: Path) -> None:
        suffix = SystemIds().suffix()
        self.plane, self.folder = plane, folder
        self.name, self.space = f"host-{suffix}", Space(f"host-{suffix}")
        self.identity = node_identity(plane, self.name)
        self.kubectl = Kubectl(str(plane.assets / "kubectl"), plane.access.kubeconfig)
        self.state = WELL
        self.records: list[VmRecord] = []
        self.store = DiskLogStore(folder / "logs")
        self.keeper: NodeKeeper
        self.admin: Raw
        self.port = 0

    # --- the agent's side ---

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Host]:
        clock, ids = SystemClock(), SystemIds()
        async with AsyncExitStack() as stack:
            self.admin = Raw(await stack.enter_async_context(wire_of(self.plane.access.kubeconfig)))
            (await self.admin.post("/api/v1/namespaces", self._named(self.space.name))).ok()
            wire = await stack.enter_async_context(wire_of(self.identity.kubeconfig))
            threads = OneThread("logs")
            stack.callback(threads.close)
            sources = LogSources(
                records=lambda: self.records, mailbox=self._mailbox, store=self.store
            )
            endpoint = KubeletEndpoint(
                certificate=ServingCertificate(self.folder / "pki", ("127.0.0.1",), clock),
                client_ca=self.identity.client_ca,
                listen=Listen("127.0.0.1", 0),
            )
            serving = serving_kubelet(
                endpoint, LogReading(sources, threads, clock), Gate(self.name, wire, clock), clock
            )
            self.port = await stack.enter_async_context(serving)
            kube = KubeClient(wire)
            nodes = Reflector(
                kube, NODE, Query(fields=f"metadata.name={self.name}"), clock=clock, ids=ids
            )
            events = EventRecorder(kube, EventSettings(component="agent"), clock=clock, ids=ids)
            self.keeper = NodeKeeper(
                NodeApi(kube=kube, nodes=nodes, events=events),
                self._about(),
                lambda: self.state,
                clock=clock,
                ids=ids,
                health=Health(clock),
            )
            lease = LeaseThread(
                LeaseSettings(node=self.name, heartbeat_s=1.0),
                self._connect,
                lambda: self.keeper.uid,
                clock=clock,
                ids=ids,
            )
            async with asyncio.TaskGroup() as group:
                await self.keeper.register()
                loops = (nodes.run, events.run, self.keeper.run, lease.run)
                tasks = [group.create_task(loop()) for loop in loops]
                try:
                    yield self
                finally:
                    for task in tasks:
                        task.cancel()
                    await self._clean()

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[Kube]:
        async with wire_of(self.identity.kubeconfig) as wire:
            yield KubeClient(wire)

    def _about(self) -> NodeAbout:
        settings = AgentSettings(
            node=self.name,
            data=self.folder,
            offer=HostOffer(cpus=8, memory_mib=16384, vms=2, pods=20),
            fleet="minis",
            provider_id=f"test://{self.name}",
            address="127.0.0.1",
        )
        return NodeAbout(
            settings=settings, abilities=ABILITIES, facts=read_facts("1"), port=self.port
        )

    async def _clean(self) -> None:
        for record in self.records:
            await self.admin.delete(self.space.path("pods", record.pod), gracePeriodSeconds="0")
        await self.admin.delete(f"/api/v1/namespaces/{self.space.name}")
        await self.admin.delete(node_path(self.name))

    # --- the test's side ---

    async def node(self) -> Json:
        answer = await self.admin.get(node_path(self.name))
        body: Json = answer.body if answer.status == 200 else {}
        return body

    async def until(self, accept: Callable[[Json], bool]) -> Json:
        return await eventually(self.node, accept, within_s=WITHIN_S)

    async def run_pod(self, name: str) -> None:
        """Make a Pod on this host, and be its running VM."""
        pod = {
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.name,
                "containers": [{"name": "runner", "image": IMAGE}],
                "tolerations": [{"operator": "Exists"}],
            },
        }
        # The namespace's ServiceAccount is made a moment after the namespace.
        made = await eventually(
            lambda: self.admin.post(self.space.path("pods"), pod),
            lambda answer: answer.status == 201,
            within_s=WITHIN_S,
        )
        record = VmRecord(
            pod_uid=made.uid,
            namespace=self.space.name,
            pod=name,
            image=IMAGE,
            state=State.STARTED,
            accepted_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
        self.mailbox(record).make()
        self.records.append(record)
        status = {"phase": "Running"}
        await self.admin.merge(self.space.path("pods", name, "status"), {"status": status})

    def _mailbox(self, vm: str) -> Path:
        return self.folder / "mailboxes" / vm

    def mailbox(self, record: VmRecord) -> HostMailbox:
        return HostMailbox(self._mailbox(vm_name(record.pod_uid)))

    def write(self, text: str) -> None:
        with (self._mailbox(self.records[0].vm) / "runner.log").open("a") as log:
            log.write(text)

    def end(self, *, remove: bool = True) -> None:
        """End the runner, as the agent does it: keep the log, write the verdict, take the mailbox away."""
        [record] = self.records
        verdict = Verdict(
            succeeded=True,
            exit_code=0,
            reason="Completed",
            message="",
            finished_at=SystemClock().now(),
        )
        self.store.keep(record.pod_uid, self.mailbox(record), verdict)
        self.records = [replace(record, state=State.EXITED, verdict=verdict)]
        if remove:
            self.mailbox(record).remove()

    def _named(self, name: str) -> Json:
        return {"metadata": {"name": name}}

    async def logs(self, *arguments: str, fails: bool = False) -> str:
        """Ask as people do."""
        command = ("logs", f"--namespace={self.space.name}", *arguments)
        return await asyncio.to_thread(self.kubectl, *command, fails=fails)


async def test_a_host_registers_reports_and_comes_back(
    real_control_plane: RealControlPlane, tmp_path: Path
) -> None:
    async with Host(real_control_plane, tmp_path).running() as host:
        node = await host.until(lambda node: _ready(node) and not _not_ready_taint(node))
        assert [t["key"] for t in node["spec"]["taints"]] == ["remuda.dev/vm-host"]
        assert node["spec"]["providerID"] == f"test://{host.name}"
        assert node["metadata"]["labels"]["kubernetes.io/os"] == "darwin"
        assert node["status"]["capacity"]["remuda.dev/vm"] == "2"
        assert node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] == host.port

        host.state = replace(WELL, images=frozenset({IMAGE}), disk=DiskState(host_low=True))
        host.keeper.poke()
        key = image_label(IMAGE)
        node = await host.until(lambda node: key in node["metadata"]["labels"])
        await host.until(lambda node: _condition(node, "DiskPressure") == "True")
        host.state = WELL
        host.keeper.poke()
        await host.until(lambda node: key not in node["metadata"]["labels"])

        lease = (await host.admin.get(lease_path(host.name))).ok()
        (await host.admin.delete(lease_path(host.name))).ok()
        (await host.admin.delete(node_path(host.name))).ok()
        again = await host.until(
            lambda found: bool(found) and found["metadata"]["uid"] != node["metadata"]["uid"]
        )
        assert "remuda.dev/vm-host" in [t["key"] for t in again["spec"]["taints"]]
        await host.until(lambda node: _ready(node) and not _not_ready_taint(node))
        await eventually(
            lambda: host.admin.get(lease_path(host.name)),
            lambda a: a.status == 200 and _owner(a.body) == again["metadata"]["uid"],
            within_s=WITHIN_S,
        )
        assert lease["spec"]["holderIdentity"] == host.name


async def test_kubectl_logs_shows_a_running_and_an_ended_runner(
    real_control_plane: RealControlPlane, tmp_path: Path
) -> None:
    async with Host(real_control_plane, tmp_path).running() as host:
        await host.run_pod("mare")
        assert await host.logs("mare") == ""
        host.write("one\ntwo\nthree\n")
        assert await host.logs("mare") == "one\ntwo\nthree\n"
        assert await host.logs("mare", "--tail=1") == "three\n"
        assert await host.logs("mare", "--limit-bytes=3") == "one"
        assert (await host.logs("mare", "--timestamps", "--tail=1")).endswith("Z three\n")
        assert "a runner runs once" in await host.logs("mare", "--previous", fails=True)
        host.end()
        assert await host.logs("mare", "--since=1h") == "one\ntwo\nthree\n"
        host.records = []
        assert "runs no VM for it" in await host.logs("mare", fails=True)


async def test_kubectl_follows_a_log_to_its_end(
    real_control_plane: RealControlPlane, tmp_path: Path
) -> None:
    async with Host(real_control_plane, tmp_path).running() as host:
        await host.run_pod("mare")
        host.write("one\n")
        command = ("logs", "--follow", f"--namespace={host.space.name}", "mare")
        with host.kubectl.following(*command) as lines:
            assert await asyncio.to_thread(next, lines) == "one"
            host.write("two\n")
            assert await asyncio.to_thread(next, lines) == "two"
            host.write("three\n")
            host.end()
            assert await asyncio.to_thread(list, lines) == ["three"]


async def test_a_log_is_there_at_every_moment(
    real_control_plane: RealControlPlane, tmp_path: Path
) -> None:
    """Many readers and followers while a log grows, is kept, and its mailbox goes: none fails, none misses a line."""
    async with (
        Host(real_control_plane, tmp_path).running() as host,
        wire_of(real_control_plane.access.kubeconfig) as wire,
    ):
        await host.run_pod("mare")
        path = host.space.path("pods", "mare", "log")
        lines = [f"line {number}\n" for number in range(200)]
        whole = "".join(lines).encode()
        ended = asyncio.Event()

        async def look() -> list[bytes]:
            found: list[bytes] = []
            while not ended.is_set() or not found or found[-1] != whole:
                found.append(await _log(wire, path))
            return found

        async with asyncio.timeout(4 * WITHIN_S), asyncio.TaskGroup() as group:
            looking = [group.create_task(look()) for _ in range(6)]
            following = [group.create_task(_log(wire, path, follow="true")) for _ in range(6)]
            for line in lines:
                host.write(line)
                await asyncio.sleep(0.01)
            host.end(remove=False)
            await asyncio.sleep(0.1)
            host.end()
            ended.set()
        for task in looking:
            assert all(whole.startswith(part) for part in task.result())
        assert {task.result() for task in following} == {whole}


async def test_only_who_may_proxy_to_the_node_reads_its_logs(
    real_control_plane: RealControlPlane, tmp_path: Path
) -> None:
    async with Host(real_control_plane, tmp_path).running() as host:
        await host.run_pod("mare")
        host.write("one\n")
        other = await _direct(host, "system:node:another", ("system:nodes",))
        assert other.startswith(b"HTTP/1.1 403 ")
        reader = f"reader-{host.name}"
        host.kubectl(
            "create",
            "clusterrolebinding",
            reader,
            "--clusterrole=system:kubelet-api-admin",
            f"--user={reader}",
        )
        try:
            allowed = await _direct(host, reader, ())
            assert allowed.startswith(b"HTTP/1.1 200 ")
            assert b"one\n" in allowed
        finally:
            host.kubectl("delete", "clusterrolebinding", reader)


async def _log(wire: Wire, path: str, **query: str) -> bytes:
    """Read a log through the API server, to its end. Anything but 200 is a failure."""
    request = Request("GET", path, tuple(query.items()), accept="*/*")
    async with wire.stream(request, connect_timeout_s=WITHIN_S, idle_timeout_s=WITHIN_S) as stream:
        content = b"".join([chunk async for chunk in stream.chunks()])
        assert stream.status == 200, content
        return content


async def _direct(host: Host, user: str, groups: tuple[str, ...]) -> bytes:
    """Ask the host itself, past the API server."""
    pair = host.plane.client_certificate(user, groups)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(pair.certificate, pair.key)
    async with asyncio.timeout(WITHIN_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", host.port, ssl=context)
        path = f"/containerLogs/{host.space.name}/mare/runner"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: host\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return answer


def _condition(node: Json, kind: str) -> str:
    conditions = node.get("status", {}).get("conditions", ())
    return next((str(c["status"]) for c in conditions if c["type"] == kind), "")


def _ready(node: Json) -> bool:
    return _condition(node, "Ready") == "True"


def _not_ready_taint(node: Json) -> bool:
    return any(t["key"].startswith("node.kubernetes.io/") for t in node["spec"].get("taints", ()))


def _owner(lease: Json) -> str:
    return next((str(o["uid"]) for o in lease["metadata"].get("ownerReferences", ())), "")
