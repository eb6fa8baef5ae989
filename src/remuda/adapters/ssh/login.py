"""
Who logs in, and to whom: the host's key is judged before anything is sent, and each credential is offered once.

Accounts lock after some wrong passwords. A server may ask again, or by another method; it gets no second answer.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

import asyncssh

from remuda.ports.host_shell import HostKeyChanged, HostKeyUnknown, LoginRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.ports.host_shell import HostShellError, Target


class Login(asyncssh.SSHClient):
    """One attempt to log in to one host."""

    def __init__(self, target: Target, known: str) -> None:
        self._target = target
        self._known = known
        """The fingerprint that this host must show; empty: none is known."""
        self._password = target.password
        self.seen = ""
        self.fault: HostShellError | None = None
        """Why the host's key was not taken, if it was not."""

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        del host, addr, port
        self.seen = key.get_fingerprint("sha256")
        self.fault = self._judge(self.seen)
        return self.fault is None

    def _judge(self, seen: str) -> HostShellError | None:
        where = place(self._target)
        if self._known:
            if hmac.compare_digest(self._known.encode(), seen.encode()):
                return None
            return HostKeyChanged(
                f"{where} is not the host that it was",
                why=f"it shows the key {seen}, and {self._known} is pinned",
                fix="If it was installed anew, forget the pinned key; otherwise find out who answers there, "
                "and send it nothing",
                seen=seen,
            )
        if self._target.trust_first:
            return None
        return HostKeyUnknown(
            f"{where} is not known",
            why=f"it shows the key {seen}, none is pinned, and trust on first use is not allowed",
            fix="Compare this key with the host's own (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub there) "
            "and pin it, or allow trust on first use",
            seen=seen,
        )

    def password_auth_requested(self) -> str | None:
        return self._password_once()

    def kbdint_auth_requested(self) -> str | None:
        return "" if self._password is not None else None

    def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str] | None:
        del name, instructions, lang
        if not prompts:
            return []
        hidden = [echo for _, echo in prompts] == [False]
        if not hidden or (password := self._password_once()) is None:
            return None  # more than one question, or a shown one, is not about the password
        return [password]

    def _password_once(self) -> str | None:
        password, self._password = self._password, None
        return None if password is None else password.reveal().decode()


def place(target: Target) -> str:
    """Return who and where, as people write it."""
    address = f"[{target.address}]" if ":" in target.address else target.address
    port = "" if target.port == 22 else f":{target.port}"  # noqa: PLR2004 - the port of SSH
    return f"{target.user}@{address}{port}"


def key_of(target: Target) -> asyncssh.SSHKey | None:
    """Read the private key. No text of it, nor of the library's errors about it, goes on."""
    if target.key is None:
        return None
    try:
        return asyncssh.import_private_key(target.key.reveal())
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, ValueError) as error:
        locked = "passphrase" in str(error).lower()
    why = "it has a passphrase" if locked else "it is no private key"
    raise LoginRefused(
        f"the private key for {place(target)} cannot be used",
        why=why,
        fix="Give a private key in OpenSSH's or PEM form, without a passphrase: nobody is there to type it",
    )


def check_password(target: Target) -> None:
    """Refuse a password that SSH cannot carry: it is UTF-8 there."""
    try:
        _ = target.password and target.password.reveal().decode()
    except UnicodeDecodeError:
        raise LoginRefused(
            f"the password for {place(target)} cannot be used to log in",
            why="SSH carries UTF-8, and it is not",
            fix="Log in with a key",
        ) from None


def refused(target: Target) -> LoginRefused:
    """Say that the host does not take what was offered."""
    offered = [
        *(["the key"] if target.key else []),
        *(["the password"] if target.password else []),
    ]
    return LoginRefused(
        f"{place(target)} does not let us in",
        why=f"it took neither {' nor '.join(offered)}"
        if len(offered) > 1
        else f"it does not take {offered[0] if offered else 'a login without key and password'}",
        fix=f"Put the public key into ~{target.user}/.ssh/authorized_keys there, check that Remote Login is on for "
        f"{target.user}, and that user and password are right; it is not tried again, because accounts lock",
    )
