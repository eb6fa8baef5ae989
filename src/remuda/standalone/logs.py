"""
A Pod's log, fetched from the kubelet endpoint of the Pod's Node: ``/containerLogs/NAMESPACE/POD/CONTAINER``.

The control plane shows a client certificate of its own authority, by which an agent knows who asks. As a real API
server by default, it does not check the agent's serving certificate: nothing secret is sent, and a host that could pose
as the agent could write the log anyway. It stores nothing and follows no redirects.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import aiohttp

from remuda.standalone.errors import Cause, StatusError, bad_request, invalid, not_found
from remuda.standalone.objects import Obj, name_of, namespace_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from remuda.standalone.kinds import ResourceKind
    from remuda.standalone.pki import Pki
    from remuda.standalone.rest import Rest
    from remuda.standalone.store import Store

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 30.0
"""Until the agent begins to answer. A followed log may then be silent for as long as it likes."""

_BAD_GATEWAY = 502
_ERROR_TEXT_MAX = 2048
_FLAGS = ("follow", "previous", "timestamps")
_NUMBERS = {"limitBytes": 1, "sinceSeconds": 1, "tailLines": 0}
"""Parameters that are numbers, and the least that each may be."""
_ADDRESS_TYPES = ("InternalIP", "ExternalIP", "Hostname")


@dataclass(frozen=True, slots=True)
class LogStream:
    """A log that goes on: bytes as they come."""

    content: aiohttp.StreamReader | None

    async def chunks(self) -> AsyncIterator[bytes]:
        if self.content is None:
            return
        async for chunk in self.content.iter_any():
            yield chunk


class PodLogs:
    """Fetches logs from the agents. Close it at the end."""

    def __init__(self, rest: Rest, store: Store, pki: Pki) -> None:
        self._store = store
        self._pods, self._nodes = (_kind(rest, plural) for plural in ("pods", "nodes"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # see the module's text
        self._tls = context
        self._session: aiohttp.ClientSession | None = None
        self.use_certificates(pki)

    def use_certificates(self, pki: Pki) -> None:
        """Show this certificate from the next connection on."""
        self._tls.load_cert_chain(pki.path("kubelet-client.crt"), pki.path("kubelet-client.key"))

    @asynccontextmanager
    async def open(
        self, namespace: str, name: str, query: Mapping[str, str]
    ) -> AsyncIterator[LogStream]:
        """Open a Pod's log. StatusError if it cannot be had."""
        pod = self._store.get(self._pods, namespace, name)
        if pod is None:
            raise not_found("", "pods", name)
        container = choose_container(pod, query.get("container", ""))
        parameters = log_parameters(name, query)
        node_name = pod["spec"].get("nodeName")
        if not node_name:
            yield LogStream(None)  # no Node, no log yet: empty, as a real cluster answers
            return
        node = self._store.get(self._nodes, "", node_name)
        if node is None:
            raise not_found("", "nodes", node_name)
        url = log_url(node, pod, container, parameters)
        async with await self._get(url, node_name) as answer:
            await _check(answer, name)
            yield LogStream(answer.content)

    async def _get(self, url: str, node: str) -> aiohttp.ClientResponse:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await self._client().get(url, ssl=self._tls, allow_redirects=False)
        except (aiohttp.ClientError, TimeoutError) as error:
            why = "it did not answer in time" if isinstance(error, TimeoutError) else str(error)
            text = f"cannot read the log from node {node} at {urlsplit(url).netloc}: {why}"
            raise StatusError(_BAD_GATEWAY, "BadGateway", text) from None

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:  # made late: a session belongs to the running loop
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
            self._session = aiohttp.ClientSession(timeout=timeout)
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def choose_container(pod: Obj, asked: str) -> str:
    """Return the container whose log is meant; 400 if that is not clear."""
    spec, pod_name = pod["spec"], name_of(pod)
    main = [c["name"] for c in spec.get("containers") or ()]
    names = [c["name"] for c in spec.get("initContainers") or ()] + main
    if asked:
        if asked not in names:
            raise bad_request(f"container {asked} is not valid for pod {pod_name}")
        return asked
    if len(main) == 1:
        return str(main[0])
    listed = " ".join(names)
    raise bad_request(
        f"a container name must be specified for pod {pod_name}, choose one of: [{listed}]"
    )


def log_parameters(pod_name: str, query: Mapping[str, str]) -> dict[str, str]:
    """Return what is passed on to the agent; 400 or 422 for what makes no sense."""
    passed = {flag: "true" for flag in _FLAGS if query.get(flag) in {"true", "1"}}
    for name, least in _NUMBERS.items():
        text = query.get(name)
        if text is None:
            continue
        try:
            number = int(text)
        except ValueError:
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
        if number < least:
            raise invalid("", "PodLogOptions", pod_name, [_too_small(name, number, least)])
        passed[name] = str(number)
    if since := query.get("sinceTime"):
        passed["sinceTime"] = since
    return passed


def _too_small(name: str, number: int, least: int) -> Cause:
    why = (
        f"must be greater than or equal to {least}"
        if least == 0
        else f"must be greater than {least - 1}"
    )
    return Cause(name, "FieldValueInvalid", f"Invalid value: {number}: {why}")


def log_url(node: Obj, pod: Obj, container: str, parameters: Mapping[str, str]) -> str:
    """Return where a Node's agent serves a container's log; 502 if the Node does not say where."""
    status: dict[str, Any] = node.get("status") or {}
    addresses = {a.get("type"): a.get("address") for a in status.get("addresses") or ()}
    host = next((addresses[t] for t in _ADDRESS_TYPES if addresses.get(t)), None)
    endpoint = (status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}
    port = endpoint.get("Port") or endpoint.get("port")
    if not host or not port:
        missing = "address" if not host else "log port (status.daemonEndpoints.kubeletEndpoint)"
        raise StatusError(_BAD_GATEWAY, "BadGateway", f"node {name_of(node)} has no {missing}")
    path = f"/containerLogs/{namespace_of(pod)}/{name_of(pod)}/{container}"
    netloc = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return urlunsplit(("https", netloc, path, urlencode(parameters), ""))


async def _check(answer: aiohttp.ClientResponse, pod_name: str) -> None:
    if answer.status == HTTPStatus.OK:
        return
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        said = (await answer.content.read(_ERROR_TEXT_MAX)).decode(errors="replace").strip()
    if answer.status == HTTPStatus.NOT_FOUND:
        raise StatusError(404, "NotFound", said or f'the log of pod "{pod_name}" was not found')
    if HTTPStatus.BAD_REQUEST <= answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        raise StatusError(answer.status, "BadRequest", said)
    text = f"the agent that runs pod {pod_name} answered {answer.status}: {said}"
    raise StatusError(_BAD_GATEWAY, "BadGateway", text)


def _kind(rest: Rest, plural: str) -> ResourceKind:
    return next(k for k in rest.kinds if (k.group, k.plural) == ("", plural))
