"""CertificateSigningRequest: how a credential of a node is asked for. Only the fields that we read or write."""

from __future__ import annotations

from typing import Final

from remuda.kube.kinds import Kind
from remuda.kube.meta import Condition, Part, Resource

NODE_SIGNER: Final = "kubernetes.io/kube-apiserver-client-kubelet"
"""Signs what proves ``system:node:<name>`` to the API server, and nothing else."""


class SigningSpec(Part, frozen=True):
    request: bytes = b""
    """A PKCS#10 request in PEM; Base64 on the wire."""
    signer_name: str = ""
    usages: tuple[str, ...] = ()
    expiration_seconds: int | None = None


class SigningStatus(Part, frozen=True):
    certificate: bytes = b""
    """The certificate in PEM, and those between it and the authority."""
    conditions: tuple[Condition, ...] = ()


class CertificateSigningRequest(Resource, frozen=True):
    spec: SigningSpec = SigningSpec()
    status: SigningStatus = SigningStatus()


SIGNING_REQUEST = Kind(
    CertificateSigningRequest,
    "certificates.k8s.io",
    "v1",
    "CertificateSigningRequest",
    "certificatesigningrequests",
    namespaced=False,
)


class Signer(Resource, frozen=True):
    """Not an object of the API: a name that rights are given for."""


SIGNER = Kind(Signer, "certificates.k8s.io", "v1", "Signer", "signers", namespaced=False)
