"""Where an API server is and how to trust it. Holds addresses and keys; opens nothing."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from remuda.model.errors import BadInput


@dataclass(frozen=True, slots=True)
class Credential:
    """What a request proves its sender with: a bearer token, a client certificate (PEM), both, or nothing."""

    token: str = field(default="", repr=False)
    certificate_pem: bytes = field(default=b"", repr=False)
    key_pem: bytes = field(default=b"", repr=False)


class Credentials(Protocol):
    """Where credentials come from. They may change while the process runs."""

    async def current(self) -> Credential:
        """Return what to send now. Raises ``remuda.ports.kube.Refused`` if there is nothing."""
        ...

    async def renew(self, refused: Credential) -> Credential:
        """Return something newer than ``refused``, to which the server said 401, or the same if there is none."""
        ...


class Fixed:
    """One credential for good."""

    def __init__(self, credential: Credential = Credential()) -> None:  # noqa: B008 - frozen
        self._credential = credential

    async def current(self) -> Credential:
        return self._credential

    async def renew(self, refused: Credential) -> Credential:
        del refused
        return self._credential


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One API server, as one user."""

    server: str
    """Its URL; a path in it is put before every request's own."""

    credentials: Credentials = field(default_factory=Fixed)
    ca_pem: bytes = b""
    """Whom to trust; empty means the machine's own roots."""

    insecure: bool = False
    """Trust anyone. Only a kubeconfig that says so itself."""

    tls_server_name: str = ""
    proxy_url: str = field(default="", repr=False)  # it may hold a password
    namespace: str = "default"
    """The namespace that a kubeconfig's context names."""

    def __post_init__(self) -> None:
        _check_url("The server address", self.server, ("http", "https"))
        if "@" in urlsplit(self.server).netloc:
            raise BadInput(
                f"The server address {self.server.rpartition('@')[2]!r} cannot be used",
                why="a user or password stands in it, and addresses are shown in errors",
                fix="Use a token or a client certificate",
            )
        if self.proxy_url:
            _check_url("The proxy address", self.proxy_url, ("http", "https"))

    def tls(self, credential: Credential) -> ssl.SSLContext | None:
        """Return how to trust and be trusted, or None for plain HTTP."""
        if urlsplit(self.server).scheme != "https":
            return None
        context = _trusting(self)
        if credential.certificate_pem:
            _add_certificate(context, credential)
        return context


def explicit(server: str, *, token: str = "", ca_pem: bytes = b"") -> Connection:
    """Return a connection from what a person typed."""
    return Connection(server=server, ca_pem=ca_pem, credentials=Fixed(Credential(token=token)))


def _trusting(connection: Connection) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(
            cadata=connection.ca_pem.decode("ascii") if connection.ca_pem else None
        )
    except (ssl.SSLError, ValueError) as error:
        raise BadInput(
            "The CA certificate cannot be used",
            why=f"it is not PEM ({type(error).__name__})",
            fix="Give the file that begins with -----BEGIN CERTIFICATE-----",
        ) from None
    if connection.ca_pem:
        # From Python 3.13 on the default refuses CAs without a key identifier, and clusters have such CAs.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if connection.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _add_certificate(context: ssl.SSLContext, credential: Credential) -> None:
    # The standard library reads a certificate and its key from a file only: one that nobody else can read, and briefly.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "client.pem")
        file.touch(mode=0o600)
        file.write_bytes(credential.certificate_pem + b"\n" + credential.key_pem)
        try:
            # A key with a passphrase is refused: without one, OpenSSL would ask whoever sits at the terminal.
            context.load_cert_chain(file, password="")
        except (ssl.SSLError, ValueError) as error:
            raise BadInput(
                "The client certificate cannot be used",
                why=f"certificate and key are not PEM or do not belong together ({type(error).__name__})",
                fix="Give both parts of one pair",
            ) from None


def _check_url(what: str, url: str, schemes: tuple[str, ...]) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        shown = url.rpartition("@")[2]  # a password may stand before the @
        raise BadInput(
            f"{what} {shown!r} cannot be used",
            why="it is not a URL with a host",
            fix=f"Write it as {schemes[-1]}://host:port",
        )
