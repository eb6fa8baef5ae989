"""
The control plane's own certificates and keys, in its data folder: made once, reused, renewed near their end.

Every file is 0600 and appears whole or not at all, so that a crash never leaves half a key behind. Nothing here talks
to the network, and no key ever leaves the folder except inside a kubeconfig: the administrator's, or that of a node.
"""

from __future__ import annotations

import ipaddress
import os
from base64 import b64encode
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from remuda.model.errors import BadInput
from remuda.standalone.tokens import new_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids

CA_LIFE = timedelta(days=3650)
LEAF_LIFE = timedelta(days=365)
CA_RENEW_BEFORE = LEAF_LIFE  # no leaf may outlive the authority that signed it
LEAF_RENEW_BEFORE = timedelta(days=30)
_CLOCK_SLACK = timedelta(minutes=5)
_CLOCK_FAULT = timedelta(days=1)
"""A clock that was ahead by less is waited for: new certificates would lock out who trusts the old ones."""

SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
SERVER_ADDRESSES = ("127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate and its key, as PEM. The key never shows in a repr."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Identity(...)"


@dataclass(frozen=True, slots=True)
class Pki:
    """What the control plane proves itself and its users with."""

    folder: Path
    authority: Identity
    server: Identity
    admin: Identity
    kubelet_client: Identity
    """How the control plane shows itself to the agents, when it asks them for logs."""
    token_key: bytes
    admin_token: str

    def __repr__(self) -> str:
        return f"Pki({str(self.folder)!r})"

    def path(self, name: str) -> Path:
        """Return the file of a part, such as ``ca.crt`` or ``server.key``."""
        return self.folder / name


def load_or_create(folder: Path, clock: Clock, ids: Ids) -> Pki:
    """Read the folder's certificates and keys; make what is missing, broken off or near its end."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    now = clock.now()
    authority = _kept(folder, "ca", now, CA_RENEW_BEFORE, lambda: new_authority(now))
    ca = x509.load_pem_x509_certificate(authority.certificate)

    def leaf(name: str, make: Callable[[], Identity]) -> Identity:
        return _kept(folder, name, now, LEAF_RENEW_BEFORE, make, ca)

    return Pki(
        folder=folder,
        authority=authority,
        server=leaf("server", lambda: new_server(authority, now)),
        admin=leaf("admin", lambda: new_client(authority, "admin", ("system:masters",), now)),
        kubelet_client=leaf(
            "kubelet-client",
            lambda: new_client(authority, "remuda-control-plane", ("system:masters",), now),
        ),
        token_key=_kept_key(folder / "tokens.key", ids),
        admin_token=_kept_bytes(
            folder / "admin.token", lambda: ids.secret().hex().encode()
        ).decode(),
    )


# --- Certificates -----------------------------------------------------------------------------------------------------


def new_authority(now: datetime) -> Identity:
    """Make the authority that signs everything else of this control plane."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "remuda control plane")])
    builder = _dated(now, CA_LIFE).subject_name(name).issuer_name(name)
    builder = builder.public_key(key.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
    )
    return _identity(builder.sign(key, hashes.SHA256()), key)


def new_server(authority: Identity, now: datetime) -> Identity:
    """Make the certificate of the HTTPS front, good for loopback only."""
    names = [x509.DNSName(name) for name in SERVER_NAMES]
    addresses = [x509.IPAddress(ipaddress.ip_address(text)) for text in SERVER_ADDRESSES]
    return _signed(
        authority,
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")]),
        (
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
            x509.SubjectAlternativeName([*names, *addresses]),
        ),
        now,
    )


def new_client(authority: Identity, user: str, groups: tuple[str, ...], now: datetime) -> Identity:
    """Make a certificate that proves a user and its groups, as Kubernetes reads them: CN and O."""
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    return _signed(authority, x509.Name(attributes), (usage,), now)


def _signed(
    authority: Identity,
    subject: x509.Name,
    extensions: tuple[x509.ExtensionType, ...],
    now: datetime,
) -> Identity:
    ca = x509.load_pem_x509_certificate(authority.certificate)
    ca_key = serialization.load_pem_private_key(authority.key, password=None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey), "the authority's key is ours: P-256"
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _dated(now, LEAF_LIFE).subject_name(subject).issuer_name(ca.subject)
    builder = builder.public_key(key.public_key()).add_extension(
        x509.BasicConstraints(ca=False, path_length=None), critical=True
    )
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return _identity(builder.sign(ca_key, hashes.SHA256()), key)


def _dated(now: datetime, life: timedelta) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        serial_number=x509.random_serial_number(),
        not_valid_before=now - _CLOCK_SLACK,
        not_valid_after=now + life,
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _identity(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Identity:
    return Identity(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


# --- Files ------------------------------------------------------------------------------------------------------------


def _kept(
    folder: Path,
    name: str,
    now: datetime,
    renew_before: timedelta,
    make: Callable[[], Identity],
    ca: x509.Certificate | None = None,
) -> Identity:
    found = _read(folder, name)
    if found is not None and _is_good(found, now, renew_before, ca):
        return found
    made = make()
    write_secret(folder / f"{name}.key", made.key)
    write_secret(folder / f"{name}.crt", made.certificate)
    return made


def _read(folder: Path, name: str) -> Identity | None:
    try:
        return Identity(
            (folder / f"{name}.crt").read_bytes(), (folder / f"{name}.key").read_bytes()
        )
    except FileNotFoundError:
        return None


def _is_good(
    found: Identity, now: datetime, renew_before: timedelta, ca: x509.Certificate | None
) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(found.certificate)
        key = serialization.load_pem_private_key(found.key, password=None)
    except ValueError as error:
        raise _unreadable("A certificate of the control plane", str(error)) from None
    # A crash between the two files leaves a key without its certificate.
    if certificate.public_key() != key.public_key():
        return False
    # One from the far future was made while the clock was wrong: no client takes it until then.
    ends, begins = certificate.not_valid_after_utc, certificate.not_valid_before_utc
    if ends < now + renew_before or begins > now + _CLOCK_FAULT:
        return False
    return ca is None or _is_signed_by(certificate, ca)


def _is_signed_by(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    extension = x509.AuthorityKeyIdentifier
    signer = certificate.extensions.get_extension_for_class(extension).value.key_identifier
    own = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    return signer == own


def _kept_bytes(path: Path, make: Callable[[], bytes]) -> bytes:
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        made = make()
        write_secret(path, made)
        return made
    if not found.strip():  # nobody may come in with an empty secret
        raise _unreadable(str(path), "it is empty")
    return found


def _kept_key(path: Path, ids: Ids) -> bytes:
    found = _kept_bytes(path, lambda: new_key(ids.secret(64)))
    try:
        serialization.load_pem_private_key(found, password=None)
    except ValueError as error:
        raise _unreadable(str(path), str(error)) from None
    return found


def _unreadable(what: str, why: str) -> BadInput:
    return BadInput(
        f"{what} cannot be read",
        why=why,
        fix="Restore the data folder, or remove its pki folder to have new certificates, keys and tokens made",
    )


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read: whole, durable, or not at all."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    # Created 0600 rather than changed to it: there is no moment at which others could read it.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_kubeconfig(path: Path, server: str, pki: Pki) -> None:
    """Write the administrator's kubeconfig, with all it needs inside it."""
    write_secret(path, _kubeconfig(server, pki.authority, pki.admin))


def write_node_kubeconfig(path: Path, server: str, folder: Path, node: str, clock: Clock) -> None:
    """
    Write the kubeconfig of an agent: ``system:node:`` and its name, in the group of nodes, signed by this authority.

    The control plane must have made its authority. The certificate is kept in its folder and renewed near its end, so
    write the file anew now and then. Nothing is told to the API server: a node's name is all that it needs.
    """
    authority = _read(folder, "ca")
    if authority is None:
        raise BadInput(
            f"The node {node} cannot be given an identity",
            why=f"{folder} has no certificate authority",
            fix="Start the control plane once: it makes one",
        )
    now = clock.now()
    identity = _kept(
        folder,
        f"node-{node}",
        now,
        LEAF_RENEW_BEFORE,
        lambda: new_client(authority, f"system:node:{node}", ("system:nodes",), now),
        x509.load_pem_x509_certificate(authority.certificate),
    )
    write_secret(path, _kubeconfig(server, authority, identity))


def _kubeconfig(server: str, authority: Identity, user: Identity) -> bytes:
    name = "remuda"
    cluster = {
        "server": server,
        "certificate-authority-data": b64encode(authority.certificate).decode(),
    }
    shown = {
        "client-certificate-data": b64encode(user.certificate).decode(),
        "client-key-data": b64encode(user.key).decode(),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": shown}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return yaml.safe_dump(config, sort_keys=False).encode()
