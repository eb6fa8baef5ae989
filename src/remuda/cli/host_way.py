"""How a person's command reaches one host: who logs in, with what, and whether it is the right host that answers."""

from __future__ import annotations

import sys
import warnings
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import wraps
from getpass import GetPassWarning
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from remuda.adapters.ssh import SshShells
from remuda.model.errors import BadInput
from remuda.model.secret import Secret
from remuda.ports.host_shell import HostKeyUnknown, LoginRefused, Target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from remuda.ports.host_shell import HostShell

SSH_PORT: Final = 22
PASSWORD_BYTES_MAX: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaching:
    """What the options say about the way to a host."""

    address: str
    port: int
    user: str
    key_file: Path | None
    fingerprint: str
    trust_first: bool
    password_stdin: bool

    def password(self) -> Secret:
        """Ask for the account's password. It is shown nowhere."""
        if self.password_stdin:
            line = sys.stdin.buffer.readline(PASSWORD_BYTES_MAX)
            given = line.removesuffix(b"\n")
        else:
            asked = _asked(f"Password of {self.user} on {self.address}")
            given = asked.encode("utf-8", "surrogateescape")
        if not given:
            raise BadInput(
                "The password is empty",
                why="nothing can be done with it",
                fix="Give the account's password; with --password-stdin it is the first line of stdin",
            )
        return Secret(given)

    def target(self, password: Secret | None) -> Target:
        """Return how to log in: by the key if there is one, and only then without sending the password."""
        key = None
        if self.key_file is not None:
            key = Secret(self.key_file.read_bytes())
        return Target(
            address=self.address,
            port=self.port,
            user=self.user,
            key=key,
            password=None if key else password,
            fingerprint=self.fingerprint,
            trust_first=self.trust_first,
        )


def _asked(prompt: str) -> str:
    """Ask a person, hidden. Where what is typed would be seen, it is not asked for."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", GetPassWarning)
        try:
            return str(click.prompt(prompt, hide_input=True, err=True))
        except GetPassWarning:
            raise BadInput(
                "The password cannot be asked for",
                why="there is no terminal on which it would be hidden",
                fix="Run this on a terminal, or give the password on stdin with --password-stdin",
            ) from None


@asynccontextmanager
async def opened(target: Target) -> AsyncIterator[HostShell]:
    """Log in. An unknown host is shown to the person, who may say that it is the right one."""
    shells = SshShells()
    try:
        shell = await _logged_in(shells, target)
    except LoginRefused as refused:
        raise _recovery(target, refused) from None
    try:
        if not target.fingerprint:
            click.echo(f"pinned for this run: --fingerprint {shell.fingerprint}", err=True)
        yield shell
    finally:
        await shells.close(shell)


async def _logged_in(shells: SshShells, target: Target) -> HostShell:
    try:
        return await shells.open(target)
    except HostKeyUnknown as unknown:
        if not sys.stdin.isatty():
            raise
        click.echo(f"{target.address} is not known. It shows the key {unknown.seen}.", err=True)
        if not click.confirm("Is that its own?", err=True):
            raise
        return await shells.open(replace(target, fingerprint=unknown.seen))


def _recovery(target: Target, refused: LoginRefused) -> LoginRefused:
    """Say what a person does about a host that lets nobody in."""
    by = "a screen" if target.password else "a screen, or without --key by its password"
    return LoginRefused(
        refused.what,
        why=refused.why,
        fix=f"{refused.fix}. If nothing helps: log in by {by} (VNC, or the provider's console), switch on Remote "
        f"Login and append the public key to ~{target.user}/.ssh/authorized_keys; a provider that reinstalls the "
        "host puts the keys of your project there by itself",
    )


_OPTIONS: Final = (
    click.argument("address", metavar="[USER@]ADDRESS"),
    click.option("--user", default="", help="The account. By default that before the @, else m1."),
    click.option("--port", type=click.IntRange(1, 65535), default=SSH_PORT, show_default=True, help="Of its SSH."),
    click.option(
        "--key", "key_file",
        type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
        help="A private key to log in with. By default the password is used.",
    ),
    click.option("--fingerprint", default="", metavar="SHA256:…", help="The host's key, if you know it."),
    click.option("--trust-first", is_flag=True, help="Take whatever key the host shows."),
    click.option(
        "--password-stdin", is_flag=True, help="Read the password from the first line of stdin."
    ),
)  # fmt: skip


def reaching_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options, and ``reaching``, what they say."""

    @wraps(command)
    def called(  # noqa: PLR0913 - one per option
        *,
        address: str,
        user: str,
        port: int,
        key_file: Path | None,
        fingerprint: str,
        trust_first: bool,
        password_stdin: bool,
        **others: object,
    ) -> object:
        before, at, after = address.rpartition("@")
        if at and user and user != before:
            raise click.UsageError(f"--user {user} and {address} name two accounts: give one.")
        if not after or after.split() != [after]:
            raise click.UsageError(f"{address!r} names no host: give it as m1@203.0.113.7.")
        reaching = Reaching(
            address=after,
            port=port,
            user=user or before or "m1",
            key_file=key_file,
            fingerprint=fingerprint,
            trust_first=trust_first,
            password_stdin=password_stdin,
        )
        return command(reaching=reaching, **others)

    for option in reversed(_OPTIONS):
        called = option(called)
    return called
