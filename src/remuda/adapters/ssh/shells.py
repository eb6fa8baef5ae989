"""
Opens ways to hosts over SSH.

Nothing of this machine's user is used: no agent, no key file, no known hosts, no configuration. What a host shows as
its key is compared with what is pinned, or with what it showed before in this process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import asyncssh

from remuda.adapters.ssh.login import Login, check_password, key_of, place, refused
from remuda.adapters.ssh.shell import SshShell
from remuda.ports.host_shell import Unreachable

if TYPE_CHECKING:
    from remuda.ports.host_shell import HostShell, HostShellError, Target

HOST_KEY_KINDS: Final = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)
"""In this order, whatever the library prefers: a host has several keys, and must always show the pinned one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SshSettings:
    """How long SSH may take."""

    connect_s: float = 15.0
    login_s: float = 30.0
    keepalive_s: float = 10.0
    keepalive_misses_max: int = 3
    """A host that is silent for this many keepalives is gone."""
    hang_up_s: float = 5.0


class SshShells:
    """Logs in to hosts. One object per run: it remembers which key each place showed."""

    def __init__(self, settings: SshSettings | None = None) -> None:
        self._settings: Final = settings or SshSettings()
        self._shown: Final[dict[tuple[str, int], str]] = {}
        # The library logs commands, users and reasons of its own wording: none of it is ours to publish.
        logging.getLogger("asyncssh").setLevel(logging.CRITICAL + 1)

    async def open(self, target: Target) -> HostShell:
        """Log in. Raises ``HostShellError`` and nothing else."""
        key = key_of(target)
        check_password(target)
        where = (target.address, target.port)
        login = Login(target, target.fingerprint or self._shown.get(where, ""))
        try:
            connection = await self._connected(target, login, key)
        except TimeoutError:
            raise login.fault or self._silent(target) from None
        except asyncssh.PermissionDenied:
            raise login.fault or refused(target) from None
        except (OSError, asyncssh.Error) as error:
            raise login.fault or _unreachable(target, error) from None
        finally:
            if login.seen and login.fault is None:
                self._shown[where] = login.seen
        return SshShell(connection, place(target), login.seen)

    async def _connected(
        self, target: Target, login: Login, key: asyncssh.SSHKey | None
    ) -> asyncssh.SSHClientConnection:
        told = self._settings
        async with asyncio.timeout(told.connect_s + told.login_s):
            return await asyncssh.connect(
                target.address,
                target.port,
                username=target.user,
                config=None,
                known_hosts=([], [], []),
                server_host_key_algs=HOST_KEY_KINDS,
                client_factory=lambda: login,
                client_keys=[key] if key else None,
                public_key_auth=key is not None,
                password_auth=target.password is not None,
                kbdint_auth=target.password is not None,
                host_based_auth=False,
                gss_auth=False,
                gss_kex=False,
                agent_path=None,
                preferred_auth="publickey,password,keyboard-interactive",
                connect_timeout=told.connect_s,
                login_timeout=told.login_s,
                keepalive_interval=told.keepalive_s,
                keepalive_count_max=told.keepalive_misses_max,
                encoding=None,
            )

    def _silent(self, target: Target) -> HostShellError:
        return Unreachable(
            f"{place(target)} does not answer",
            why=f"no login came about within {self._settings.connect_s + self._settings.login_s:g} s",
            fix="Check that the host is up and that its port of SSH can be reached from here",
        )

    async def close(self, shell: HostShell) -> None:
        """Hang up. Never raises."""
        assert isinstance(shell, SshShell)
        await shell.hang_up(self._settings.hang_up_s)


def _unreachable(target: Target, error: Exception) -> HostShellError:
    why = "it hung up"
    if isinstance(error, OSError):
        # A name that is not known has a number of its own kind, and says itself what it means.
        named = isinstance(error, socket.gaierror) or error.errno is None
        why = (
            error.strerror if named else os.strerror(error.errno or 0)
        ) or "the connection failed"
    return Unreachable(
        f"{place(target)} does not answer as a host with SSH does",
        why=why[0].lower() + why[1:],
        fix="Check the address, that the host is up, and that Remote Login is on",
    )
