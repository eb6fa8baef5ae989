"""
The credential of a host's agent: ``system:node:<name>``, one per host, which opens nothing that is not that host's.

What was signed is kept in a Secret of the Host, so that a second bootstrap brings the same one and changes nothing, and
is replaced when a third of its time is left. ``SignedIdentities`` makes the private key here and has the cluster's own
signer sign for it: no authority's key is in our hands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from remuda.hosts import own_secrets
from remuda.kube.certificates import NODE_SIGNER, SIGNING_REQUEST, SigningSpec
from remuda.kube.certificates import CertificateSigningRequest as Request
from remuda.kube.meta import ObjectMeta
from remuda.kube.patches import MergePatch
from remuda.model.errors import RemudaError
from remuda.model.secret import Secret
from remuda.ports.kube import NotFound, Seen

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from remuda.kube.host import Host
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube

KUBECONFIG: Final = "kubeconfig"
_POLL_S: Final = 1.0
_PATIENCE_S: Final = 60.0


class NotSigned(RemudaError):
    """The cluster did not give a certificate. Nothing was left behind."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What an agent shows to the API server."""

    kubeconfig: Secret
    renew_at: datetime


class Identities(Protocol):
    """Gives each host a credential of its own."""

    async def ensure(self, host: Host) -> Identity:
        """Return the host's credential; a new one if there is none, or the old one ends soon."""
        ...

    async def remove(self, host: Host) -> None:
        """Forget a host's credential. Never fails because there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Server:
    """Where hosts find the API server, and how they know it."""

    url: str
    ca: bytes
    """PEM. Empty: the host's own trust store."""


def secret_name(host: str) -> str:
    return f"{host}-node-identity"


@dataclass(frozen=True, slots=True)
class Signed:
    """A certificate of a node and its private key, both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


class KeptIdentities(ABC):
    """Credentials that are kept as Secrets beside the Hosts. Who signs them is said below."""

    def __init__(self, kube: Kube, server: Server, clock: Clock) -> None:
        self._kube, self._server, self._clock = kube, server, clock

    @abstractmethod
    async def _sign(self, host: Host) -> Signed:
        """Make a new credential of a host's agent."""

    async def ensure(self, host: Host) -> Identity:
        """Return the host's credential; a new one if there is none, or the old one ends soon."""
        kept = await self._kept(host)
        if kept is not None and kept.renew_at > self._clock.now():
            return kept
        made = await self._sign(host)
        text = kubeconfig_of(self._server, made.certificate, made.key)
        await own_secrets.keep(self._kube, host, secret_name(host.name), {KUBECONFIG: text})
        return Identity(Secret(text), renew_at(made.certificate))

    async def remove(self, host: Host) -> None:
        """
        Forget a host's credential. What was signed stays good until its end, for nobody can take a certificate back.

        It is gone from a Mac that was reached or wiped. What one that is lost can do with it is in ADR 0017.
        """
        await own_secrets.forget(self._kube, host, secret_name(host.name))

    async def _kept(self, host: Host) -> Identity | None:
        secret = await own_secrets.find(self._kube, host, secret_name(host.name))
        if secret is None:
            return None
        text = secret.data.get(KUBECONFIG, b"")
        certificate = certificate_in(text)
        # One for another address of the API server, or with another authority, would reach nobody.
        if certificate is None or not _is_for(text, self._server, host.name):
            return None
        return Identity(Secret(text), renew_at(certificate))


class SignedIdentities(KeptIdentities):
    """Credentials by CertificateSigningRequest."""

    def __init__(
        self, kube: Kube, server: Server, *, clock: Clock, ids: Ids, life: timedelta
    ) -> None:
        super().__init__(kube, server, clock)
        self._ids, self._life = ids, life

    async def _sign(self, host: Host) -> Signed:
        """Ask for a certificate, approve the request, and wait for the signer. The request is removed in the end."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = f"remuda-{host.name}-{self._ids.suffix(8)}"
        made = await self._kube.create(SIGNING_REQUEST, _request(name, host.name, key, self._life))
        try:
            await self._approve(made)
            return Signed(await self._certificate(made), _pem(key))
        finally:
            await self._drop(made)

    async def _approve(self, made: Request) -> None:
        approved: dict[str, object] = {
            "type": "Approved",
            "status": "True",
            "reason": "RemudaHost",
            "message": "Asked for and approved by the host operator, for the agent of a Host.",
        }
        patch = MergePatch(
            {
                "metadata": {"resourceVersion": made.resource_version},
                "status": {"conditions": [msgspec.to_builtins(approved)]},
            }
        )
        await self._kube.patch(SIGNING_REQUEST, made.name, patch, subresource="approval")

    async def _certificate(self, made: Request) -> bytes:
        deadline = self._clock.monotonic() + _PATIENCE_S
        while True:
            found = await self._kube.get(SIGNING_REQUEST, made.name)
            if found.status.certificate:
                return found.status.certificate
            for condition in found.status.conditions:
                if condition.type in {"Denied", "Failed"}:
                    raise _not_signed(f"it was {condition.type.lower()}: {condition.message}")
            if self._clock.monotonic() >= deadline:
                raise _not_signed(f"no signer answered within {_PATIENCE_S:g} s")
            await self._clock.sleep(_POLL_S)

    async def _drop(self, made: Request) -> None:
        try:
            await self._kube.delete(SIGNING_REQUEST, made.name, seen=Seen(uid=made.uid))
        except NotFound:
            return


def kubeconfig_of(server: Server, certificate: bytes, key: bytes) -> bytes:
    """Return a kubeconfig with everything inside it. JSON is YAML, and nothing in it needs quoting."""
    cluster: dict[str, str] = {"server": server.url}
    if server.ca:
        cluster["certificate-authority-data"] = b64encode(server.ca).decode()
    user = {
        "client-certificate-data": b64encode(certificate).decode(),
        "client-key-data": b64encode(key).decode(),
    }
    name = "remuda"
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )


def renew_at(certificate: bytes) -> datetime:
    """Return when a certificate is replaced: when a third of its time is left."""
    parsed = x509.load_pem_x509_certificate(certificate)
    begins, ends = parsed.not_valid_before_utc, parsed.not_valid_after_utc
    return ends - (ends - begins) / 3


class _User(msgspec.Struct, frozen=True):
    certificate: bytes = msgspec.field(name="client-certificate-data", default=b"")


class _Cluster(msgspec.Struct, frozen=True):
    server: str = ""
    ca: bytes = msgspec.field(name="certificate-authority-data", default=b"")


class _NamedUser(msgspec.Struct, frozen=True):
    user: _User = _User()


class _NamedCluster(msgspec.Struct, frozen=True):
    cluster: _Cluster = _Cluster()


class _Config(msgspec.Struct, frozen=True):
    users: tuple[_NamedUser, ...] = ()
    clusters: tuple[_NamedCluster, ...] = ()


def certificate_in(text: bytes) -> bytes | None:
    """Return the certificate of a kubeconfig that we wrote; None if it is none."""
    config = _config(text)
    return config.users[0].user.certificate or None if config and config.users else None


def _is_for(text: bytes, server: Server, node: str) -> bool:
    config, certificate = _config(text), certificate_in(text)
    if config is None or certificate is None or not config.clusters:
        return False
    cluster = config.clusters[0].cluster
    names = x509.load_pem_x509_certificate(certificate).subject.get_attributes_for_oid(
        NameOID.COMMON_NAME
    )
    whose = names[0].value if names else ""
    return (cluster.server, cluster.ca, whose) == (server.url, server.ca, f"system:node:{node}")


def _config(text: bytes) -> _Config | None:
    try:
        return msgspec.json.decode(text, type=_Config)
    except (msgspec.MsgspecError, ValueError):
        return None


def _request(name: str, node: str, key: ec.EllipticCurvePrivateKey, life: timedelta) -> Request:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
        ]
    )
    signed = x509.CertificateSigningRequestBuilder(subject).sign(key, hashes.SHA256())
    return Request(
        metadata=ObjectMeta(name=name),
        spec=SigningSpec(
            request=signed.public_bytes(serialization.Encoding.PEM),
            signer_name=NODE_SIGNER,
            usages=("digital signature", "client auth"),
            expiration_seconds=int(life.total_seconds()),
        ),
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _not_signed(why: str) -> NotSigned:
    return NotSigned(
        "The agent's credential could not be made",
        why=why.rstrip("."),
        fix="Check that the cluster signs for kubernetes.io/kube-apiserver-client-kubelet (kube-controller-manager"
        " does, if it has the cluster's key)",
    )
