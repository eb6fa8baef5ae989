"""
Credentials of hosts signed by an authority whose key is in a folder of this machine: that of ``remuda up``.

Its control plane serves no CertificateSigningRequests, and whoever runs it has the key anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cryptography import x509

from remuda.hosts.identity import KeptIdentities, Signed
from remuda.model.errors import BadInput
from remuda.standalone import pki

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.hosts.identity import Server
    from remuda.kube.host import Host
    from remuda.ports.clock import Clock
    from remuda.ports.kube import Kube


class FolderIdentities(KeptIdentities):
    """Signs with the authority in a folder."""

    def __init__(self, kube: Kube, server: Server, clock: Clock, folder: Path) -> None:
        super().__init__(kube, server, clock)
        self._folder = folder

    async def _sign(self, host: Host) -> Signed:
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
        return Signed(made.certificate, made.key)
