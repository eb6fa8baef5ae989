"""Reads what the Kubernetes API knows of a fleet. Changes nothing: access reviews only ask."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from remuda.adapters.kube_client import ClientSettings, HttpWire, KubeClient
from remuda.adapters.kube_client.refusals import parse_status, refusal
from remuda.agent.lease import NAMESPACE as NODE_LEASES
from remuda.cli.doctor.asking import CALL_S, ahead_s, asked, unread
from remuda.cli.doctor.decide.facts import CrdFacts, KubeFacts, Right, Unread
from remuda.control.permissions import Need
from remuda.kube import crd
from remuda.kube.core import LEASE, NODE, POD, SERVICE_ACCOUNT
from remuda.kube.kinds import Kind
from remuda.kube.meta import Resource
from remuda.kube.names import RUNNER
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.model.errors import RemudaError
from remuda.ports.kube import NotFound, Query
from remuda.ports.wire import Request

if TYPE_CHECKING:
    from remuda.adapters.kube_client import Connection
    from remuda.cli.finding import Where
    from remuda.kube.core import Lease
    from remuda.ports.clock import Clock

T = TypeVar("T", bound=Resource)

OPERATOR_LEASE: Final = "remuda-controller"
"""The name of the Lease that the operator's replicas share."""
_OK: Final = 200
_AWAY: Final = "The Kubernetes API could not be asked."


class _Definition(Resource, frozen=True):
    """A CustomResourceDefinition."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)


DEFINITION: Final = Kind(
    _Definition,
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
)


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str = ""


@dataclass(frozen=True, slots=True)
class _Purpose:
    need: Need
    purpose: str


def no_cluster(where: Where) -> Unread | None:
    """Say why no cluster is meant; None: one is."""
    if where.kubeconfig is not None:
        return None
    if where.is_named:
        why = "No kubeconfig is named beside the server: give --kubeconfig to look at the cluster too."
        return Unread(why=why, asked=False)
    if not where.home.kubeconfig.is_file():
        why = "No remuda up has run here, and no kubeconfig is named."
        return Unread(why=why, asked=False)
    return None


async def kube_facts(where: Where, clock: Clock) -> KubeFacts | Unread:
    """Ask for all of it. What is refused or does not come is left out, with the reason."""
    if (none := no_cluster(where)) is not None:
        return none
    try:
        connection, namespace = where.connection(), where.namespace()
    except RemudaError as error:
        return unread(error)
    wire = HttpWire(connection)
    kube = KubeClient(wire, ClientSettings(call_timeout_s=CALL_S))
    try:
        version = await asked(_version(wire), CALL_S)
        if isinstance(version, Unread):
            return _nothing(connection.server, namespace, version)
        return await _facts(kube, connection, namespace, version, clock)
    finally:
        await kube.close()


async def _facts(
    kube: KubeClient, connection: Connection, namespace: str, version: str, clock: Clock
) -> KubeFacts:
    ours = Query(namespace=namespace, labels=f"{RUNNER}=true")
    pods, pools, nodes, leases, accounts = await asyncio.gather(
        asked(_all(kube, POD, ours)),
        asked(_all(kube, RUNNER_POOL, Query(namespace=namespace))),
        asked(_all(kube, NODE, Query())),
        asked(_all(kube, LEASE, Query(namespace=NODE_LEASES))),
        asked(_all(kube, SERVICE_ACCOUNT, ours)),
    )
    rights, ahead, crds, election = await asyncio.gather(
        asked(_rights(kube, namespace)),
        _ahead_s(connection, clock),
        asked(_crds(kube)),
        asked(_election(kube, namespace)),
    )
    stranger = rights if isinstance(rights, Unread) and rights.refused else None
    return KubeFacts(
        server=connection.server,
        namespace=namespace,
        version=stranger or version,
        ahead_s=ahead,
        crds=crds,
        rights=rights,
        pools=pools,
        pods=pods,
        nodes=nodes,
        node_leases=leases,
        accounts=accounts,
        election=election,
    )


async def _all(kube: KubeClient, kind: Kind[T], query: Query) -> tuple[T, ...]:
    return (await kube.list(kind, query)).items


def _nothing(server: str, namespace: str, why: Unread) -> KubeFacts:
    """Say of a server that does not answer that nothing is known."""
    away = Unread(why=_AWAY)
    return KubeFacts(
        server=server,
        namespace=namespace,
        version=why,
        ahead_s=away,
        crds=away,
        rights=away,
        pools=away,
        pods=away,
        nodes=away,
        node_leases=away,
        accounts=away,
        election=away,
    )


async def _version(wire: HttpWire) -> str:
    response = await wire.send(Request("GET", "/version"), timeout_s=CALL_S)
    if response.status != _OK:
        what = "Its version was not told"
        raise refusal(what, parse_status(response.status, response.body))
    try:
        return msgspec.json.decode(response.body, type=_Version).git_version or "no version told"
    except (msgspec.MsgspecError, ValueError):
        raise RemudaError(
            "Its answer makes no sense",
            why="it does not tell its version as a Kubernetes API does",
            fix="Check the server's address in the kubeconfig",
        ) from None


async def _ahead_s(connection: Connection, clock: Clock) -> float | Unread:
    if connection.proxy_url:
        return Unread(why="It is asked through a proxy.")
    try:
        tls = connection.tls(await connection.credentials.current())
    except RemudaError as error:
        return unread(error)
    url = f"{connection.server.rstrip('/')}/version"
    return await ahead_s(url, clock, tls=tls, name=connection.tls_server_name)


async def _election(kube: KubeClient, namespace: str) -> Lease | None:
    try:
        return await kube.get(LEASE, OPERATOR_LEASE, namespace=namespace)
    except NotFound:
        return None


# --- our kinds --------------------------------------------------------------------------------------------------------


async def _crds(kube: KubeClient) -> tuple[CrdFacts, ...]:
    found = []
    for manifest in crd.manifests():
        name = str(manifest["metadata"]["name"])
        try:
            installed = await kube.get(DEFINITION, name)
        except NotFound:
            found.append(CrdFacts(name, installed=False))
            continue
        found.append(CrdFacts(name, installed=True, same=holds(installed.spec, manifest["spec"])))
    return tuple(found)


def holds(there: Any, ours: Any) -> bool:  # noqa: ANN401 - JSON
    """Say whether all that ours says is there. API servers add defaults of their own."""
    if isinstance(ours, dict):
        return isinstance(there, dict) and all(
            key in there and holds(there[key], value) for key, value in ours.items()
        )
    if isinstance(ours, list | tuple):
        return (
            isinstance(there, list)
            and len(there) == len(ours)
            and all(holds(one, other) for one, other in zip(there, ours, strict=True))
        )
    return bool(there == ours)


# --- what we may do ---------------------------------------------------------------------------------------------------


def purposes(namespace: str) -> tuple[_Purpose, ...]:
    """Return what the commands do to the API server, and which of them."""
    looks, mends = "remuda doctor", "remuda doctor --fix"
    return (
        _Purpose(Need("list", RUNNER_POOL, namespace), looks),
        _Purpose(Need("list", POD, namespace), looks),
        _Purpose(Need("list", NODE), "remuda doctor, explain host"),
        _Purpose(Need("list", SERVICE_ACCOUNT, namespace), looks),
        _Purpose(Need("get", LEASE, namespace), looks),
        _Purpose(Need("list", LEASE, NODE_LEASES), looks),
        _Purpose(Need("get", DEFINITION), looks),
        _Purpose(Need("patch", RUNNER_POOL, namespace), "remuda pools pause, resume, scale, roll"),
        _Purpose(Need("patch", NODE), "remuda hosts drain, undrain"),
        _Purpose(Need("patch", POD, namespace), mends),
        _Purpose(Need("delete", POD, namespace), mends),
        _Purpose(Need("delete", SERVICE_ACCOUNT, namespace), mends),
    )


async def _rights(kube: KubeClient, namespace: str) -> tuple[Right, ...]:
    wanted = purposes(namespace)
    answers = await asyncio.gather(
        *(kube.may_i(p.need.verb, p.need.kind, namespace=p.need.namespace) for p in wanted)
    )
    return tuple(
        Right(str(p.need), p.purpose, allowed=may) for p, may in zip(wanted, answers, strict=True)
    )
