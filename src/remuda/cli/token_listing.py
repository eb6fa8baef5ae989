"""``remuda server tokens list``: who may use the API. Texts of tokens are kept nowhere, so none is shown."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec resolves annotations at run time
from typing import TYPE_CHECKING, Final

from remuda.cli.listing import Listing
from remuda.cli.tables import Column, age
from remuda.ports.api import Row

if TYPE_CHECKING:
    from remuda.ports.api_tokens import ApiToken


class TokenRow(Row, frozen=True, kw_only=True):
    """A token without its text."""

    name: str
    role: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


def row_of(token: ApiToken) -> TokenRow:
    return TokenRow(
        name=token.name,
        role=token.role.value,
        created_at=token.created_at,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
    )


def state(token: TokenRow, now: datetime) -> str:
    """Say whether it is still good."""
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= now else "good"


def _until(token: TokenRow, _: datetime) -> str:
    return "" if token.expires_at is None else f"{token.expires_at:%Y-%m-%d %H:%M}"


TOKENS: Final[Listing[TokenRow]] = Listing(
    one="token",
    many="tokens",
    key=lambda token: token.name,
    columns=(
        Column("NAME", lambda token, _: token.name, whole=True),
        Column("ROLE", lambda token, _: token.role),
        Column("STATE", state, is_state=True, whole=True),
        Column("UNTIL", _until),
        Column("AGE", lambda token, now: age(token.created_at, now)),
        Column("REVOKED", lambda token, now: age(token.revoked_at, now), wide=True),
    ),
)
