"""A throw-away certificate authority for one test run. Never for anything that lives longer."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from pathlib import Path

# Fixed and wide, so that no clock is asked.
_FROM = datetime(2020, 1, 1, tzinfo=UTC)
_UNTIL = _FROM + timedelta(days=36500)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """A CA in a folder: it signs server and client certificates there."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("remuda-test-ca", ())
        certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / "ca.crt"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        self.key_file = folder / "ca.key"
        self.key_file.write_bytes(
            self._key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )

    def server(self, name: str) -> KeyPair:
        """Sign a certificate for a server on loopback."""
        names: list[x509.GeneralName] = [
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            x509.DNSName("localhost"),
        ]
        return self._sign(
            name,
            _name(name, ()),
            x509.SubjectAlternativeName(names),
            ExtendedKeyUsageOID.SERVER_AUTH,
        )

    def client(self, user: str, groups: tuple[str, ...] = ()) -> KeyPair:
        """Sign a client certificate; Kubernetes reads the user from CN and the groups from O."""
        file_name = user.replace(":", "-")
        return self._sign(file_name, _name(user, groups), None, ExtendedKeyUsageOID.CLIENT_AUTH)

    def _sign(
        self,
        file_name: str,
        subject: x509.Name,
        names: x509.SubjectAlternativeName | None,
        usage: x509.ObjectIdentifier,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self._name, key.public_key()).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        pair = KeyPair(self._folder / f"{file_name}.crt", self._folder / f"{file_name}.key")
        certificate = builder.sign(self._key, hashes.SHA256())
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(_pem(key))
        return pair


def service_account_key(file: Path) -> Path:
    """Write a new key for ServiceAccount tokens."""
    file.write_bytes(_pem(ec.generate_private_key(ec.SECP256R1())))
    return file


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _name(user: str, groups: tuple[str, ...]) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
    )
