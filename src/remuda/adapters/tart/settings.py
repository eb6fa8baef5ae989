"""What the driver of Tart is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.agent.settings import Deadlines

if TYPE_CHECKING:
    from collections.abc import Mapping

VMS_MAX: Final = 2
"""How many guests with macOS the system runs at once."""
SHARE: Final = "mailbox"
"""Guests with macOS see their mailbox as ``/Volumes/My Shared Files/mailbox``."""
_PASSED: Final = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR"}
    | {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}
)
_OURS: Final = "TART_"


@dataclass(frozen=True, slots=True, kw_only=True)
class TartSettings:
    """Where things are, and how patient to be."""

    folder: Path
    """For mailboxes, logs, and what is known of each run. The driver's own."""
    env: Mapping[str, str] = field(repr=False)
    """Our environment. Only what Tart needs of it goes on; the credentials of a registry may be in it."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    program: str = "tart"
    softnet: bool = False
    """
    Whether softnet keeps guests from one another and from private networks. Else they share a NAT, and the host's
    firewall has to.
    """
    insecure: bool = False
    """Whether registries are spoken to without TLS."""
    vms_max: int | None = VMS_MAX
    settle_s: float = 2.0
    """How long a VM must have run, or its guest have shown itself, for its first moments to be over."""

    @property
    def home(self) -> Path:
        """Return Tart's own folder."""
        return Path(self.env.get("TART_HOME") or Path(self.env.get("HOME", "/")) / ".tart")

    def call_env(self) -> dict[str, str]:
        """Return the environment of each call. Tart removes no image of its own accord: it does not know ours."""
        passed = {
            name: value
            for name, value in self.env.items()
            if name in _PASSED or name.startswith(_OURS)
        }
        return {**passed, "TART_NO_AUTO_PRUNE": "1"}

    def run_env(self) -> dict[str, str]:
        """Return the environment of a VM's process, which lives long and needs no registry."""
        return {k: v for k, v in self.call_env().items() if not k.startswith("TART_REGISTRY_")}
