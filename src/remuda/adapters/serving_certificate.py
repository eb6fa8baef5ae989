"""
The certificate that the agent's log endpoint shows: made by the agent itself, kept in its data folder, renewed in time.

An API server takes it unless it was started with ``--kubelet-certificate-authority``; then give the agent one that this
authority signed. It protects who asks for a log from listeners; who asks is known by *their* certificate, not by this.
"""

from __future__ import annotations

import ipaddress
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from remuda.control.durable import open_folder, write_whole
from remuda.control.untrusted import NotAFile, read_file
from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from remuda.ports.clock import Clock

LIFE: Final = timedelta(days=365)
RENEW_BEFORE: Final = timedelta(days=30)
_CLOCK_SLACK: Final = timedelta(minutes=5)
_FILE: Final = "kubelet.pem"
_SIZE_MAX_BYTES: Final = 64 * 1024


class ServingCertificate:
    """A certificate and its key in one file, so that they always fit together."""

    def __init__(self, folder: Path, names: tuple[str, ...], clock: Clock) -> None:
        self._folder, self._clock = folder, clock
        self._names = tuple(dict.fromkeys(name for name in names if name))

    def file(self) -> Path:
        """Return the file, made anew if there is none that will do. Blocks."""
        now = self._clock.now()
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open_folder(self._folder) as folder:
                found = read_file(folder, _FILE, _SIZE_MAX_BYTES)
                if found is None or not _will_do(found, self._names, now):
                    write_whole(folder, _FILE, _made(self._names, now))
        except (OSError, NotAFile) as error:
            raise BadInput(
                f"The certificate in {self._folder} cannot be used",
                why=str(error),
                fix="See that the folder belongs to the agent's user, or remove the file",
            ) from None
        return self._folder / _FILE


def _will_do(pem: bytes, names: tuple[str, ...], now: datetime) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        key = serialization.load_pem_private_key(pem, password=None)
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    if certificate.public_key() != key.public_key():
        return False
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return begins <= now < ends - RENEW_BEFORE and set(found) == set(map(_general, names))


def _made(names: tuple[str, ...], now: datetime) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "remuda-agent")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SLACK)
        .not_valid_after(now + LIFE)
        .add_extension(x509.SubjectAlternativeName(map(_general, names)), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
