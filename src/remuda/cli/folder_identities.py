"""
Credentials of hosts signed by an authority whose key is in a folder of this machine: that of ``remuda up``.

Its control plane serves no CertificateSigningRequests, and whoever runs it has the key anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cryptography import x509

from remuda.hosts.identity import Identity, kubeconfig_of, renew_at
from remuda.model.errors import BadInput
from remuda.model.secret import Secret
from remuda.standalone import pki

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.hosts.identity import Server
    from remuda.kube.host import Host
    from remuda.ports.clock import Clock


class FolderIdentities:
    """Signs a new one each time: nothing is kept, so nothing is there to be stolen but the authority itself."""

    def __init__(self, folder: Path, server: Server, clock: Clock) -> None:
        self._folder, self._server, self._clock = folder, server, clock

    async def ensure(self, host: Host) -> Identity:
        try:
            authority = pki.Identity(
                (self._folder / "ca.crt").read_bytes(), (self._folder / "ca.key").read_bytes()
            )
            x509.load_pem_x509_certificate(authority.certificate)
        except (OSError, ValueError) as error:
            raise BadInput(
                f"Host {host.name} cannot be given an identity",
                why=f"the authority in {self._folder} cannot be read ({type(error).__name__})",
                fix="Give --pki the folder control-plane/pki of a remuda up",
            ) from None
        user, groups = f"system:node:{host.name}", ("system:nodes",)
        made = pki.new_client(authority, user, groups, self._clock.now())
        text = kubeconfig_of(self._server, made.certificate, made.key)
        return Identity(Secret(text), renew_at(made.certificate))

    async def remove(self, host: Host) -> None:
        """Forget nothing: nothing is kept."""
        del host
