"""Certificates that are made once, kept, and renewed before they end."""

from __future__ import annotations

import base64
import secrets
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import ExtensionOID, NameOID

from remuda.model.errors import BadInput
from remuda.standalone import pki as pki_module
from remuda.standalone.pki import Pki, load_or_create, write_kubeconfig, write_secret

if TYPE_CHECKING:
    from pathlib import Path

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


class ClockAt:
    def __init__(self, time: datetime) -> None:
        self._time = time

    def now(self) -> datetime:
        return self._time

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class RealSecrets:
    def uid(self) -> str:
        raise NotImplementedError

    def suffix(self, length: int = 5) -> str:
        raise NotImplementedError

    def secret(self, length_bytes: int = 32) -> bytes:
        return secrets.token_bytes(length_bytes)

    def fraction(self) -> float:
        raise NotImplementedError


def opened(folder: Path, *, after: timedelta = timedelta(0)) -> Pki:
    return load_or_create(folder, ClockAt(NOON + after), RealSecrets())


def certificate(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def test_a_second_start_uses_the_same_certificates_and_keys(tmp_path: Path) -> None:
    first = opened(tmp_path / "pki")
    assert opened(tmp_path / "pki", after=timedelta(days=300)) == first


def test_every_file_is_its_owners_alone(tmp_path: Path) -> None:
    pki = opened(tmp_path / "pki")
    write_kubeconfig(tmp_path / "pki" / "kubeconfig", "https://127.0.0.1:6443", pki)
    modes = {p.name: p.stat().st_mode & 0o777 for p in (tmp_path / "pki").iterdir()}
    assert set(modes.values()) == {0o600}
    assert {"ca.key", "server.crt", "admin.key", "tokens.key", "admin.token", "kubeconfig"} <= set(
        modes
    )
    assert (tmp_path / "pki").stat().st_mode & 0o777 == 0o700


def test_leaves_are_renewed_near_their_end_and_the_authority_stays(tmp_path: Path) -> None:
    first = opened(tmp_path)
    later = opened(tmp_path, after=timedelta(days=336))
    assert later.authority == first.authority
    assert later.server != first.server
    assert later.admin != first.admin
    assert later.token_key == first.token_key
    assert opened(tmp_path, after=timedelta(days=337)) == later


def test_a_renewed_authority_signs_new_leaves(tmp_path: Path) -> None:
    opened(tmp_path)
    opened(tmp_path, after=timedelta(days=3284))  # fresh leaves of the old authority
    renewed = opened(tmp_path, after=timedelta(days=3286))
    ca = certificate(renewed.authority.certificate)
    for identity in (renewed.server, renewed.admin, renewed.kubelet_client):
        certificate(identity.certificate).verify_directly_issued_by(ca)


def test_a_key_without_its_certificate_is_made_again(tmp_path: Path) -> None:
    first = opened(tmp_path)
    write_secret(tmp_path / "server.key", first.admin.key)
    assert opened(tmp_path).server != first.server


def test_a_broken_certificate_is_said_and_not_replaced(tmp_path: Path) -> None:
    opened(tmp_path)
    write_secret(tmp_path / "ca.crt", b"not a certificate")
    with pytest.raises(BadInput, match="cannot be read"):
        opened(tmp_path)


def test_the_server_is_named_for_loopback_and_nothing_else(tmp_path: Path) -> None:
    server = certificate(opened(tmp_path).server.certificate)
    names = server.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
    assert isinstance(names, x509.SubjectAlternativeName)
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert {"localhost", "kubernetes.default"} <= set(names.get_values_for_type(x509.DNSName))


def test_the_administrator_is_in_the_group_that_may_do_everything(tmp_path: Path) -> None:
    subject = certificate(opened(tmp_path).admin.certificate).subject
    (group,) = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert group.value == "system:masters"


def test_the_kubeconfig_holds_all_that_a_client_needs(tmp_path: Path) -> None:
    pki = opened(tmp_path)
    write_kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:6443", pki)
    config = yaml.safe_load((tmp_path / "kubeconfig").read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    assert cluster["server"] == "https://127.0.0.1:6443"
    assert base64.b64decode(cluster["certificate-authority-data"]) == pki.authority.certificate
    assert base64.b64decode(user["client-key-data"]) == pki.admin.key


def test_openssl_takes_the_chain(tmp_path: Path) -> None:
    pki = opened(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.path("server.crt"), pki.path("server.key"))
    context.load_verify_locations(pki.path("ca.crt"))
    assert len(context.get_ca_certs()) == 1


def test_no_key_shows_in_a_repr(tmp_path: Path) -> None:
    pki = opened(tmp_path)
    shown = f"{pki!r} {pki.admin!r}"
    assert "PRIVATE" not in shown
    assert pki.admin_token not in shown


def test_a_leaf_never_outlives_its_authority() -> None:
    assert pki_module.CA_RENEW_BEFORE >= pki_module.LEAF_LIFE


@pytest.mark.parametrize(
    ("name", "content"), [("admin.token", b""), ("tokens.key", b""), ("tokens.key", b"scrap")]
)
def test_a_secret_that_is_none_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    opened(tmp_path)
    (tmp_path / name).write_bytes(content)

    with pytest.raises(BadInput, match=rf"{name} cannot be read"):
        opened(tmp_path)


@pytest.mark.parametrize(("days", "same"), [(0.5, True), (300, False)])
def test_certificates_from_the_future_are_made_again(
    tmp_path: Path, days: float, *, same: bool
) -> None:
    ahead = opened(tmp_path, after=timedelta(days=days))

    assert (opened(tmp_path).server == ahead.server) is same
