"""What an account's password may not hold, whoever uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from remuda.model.secret import Secret


def check_password(password: Secret) -> None:
    """Raise ``BadInput`` for a password that no Mac can have. Its text shows nothing of the password."""
    held = password.reveal()
    if b"\0" in held:
        raise _refused(
            "it has a NUL byte, at which macOS ends a password", "Give it without that byte"
        )
    if b"\n" in held or b"\r" in held:
        raise _refused(
            "it has a line break in it, at which sudo ends a password",
            "Give it without the line break: a file that was written with an editor often ends with one",
        )


def _refused(why: str, fix: str) -> BadInput:
    return BadInput("The account's password cannot be used", why=why, fix=fix)
