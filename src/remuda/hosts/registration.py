"""How a builder gets a registration with GitHub: a token that is minted when it is needed, and good for an hour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from remuda.kube.host import Host
    from remuda.model.secret import Secret


class Registrations(Protocol):
    """Mints registration tokens of builders."""

    async def token(self, host: Host) -> Secret:
        """Return a fresh token for a builder's organisation. Raises a RemudaError with what to do."""
        ...
