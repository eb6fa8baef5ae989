"""What an HTTP server tells a request's handler beside ASGI: that its client went away, without a task that listens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CLIENT: Final = "remuda.client"
"""The extension of an ASGI scope that holds the request's ``client``. Servers that are not ours have none."""


class Client:
    """Who sent a request, as long as its connection lasts."""

    __slots__ = ("_gone", "_tells")

    def __init__(self) -> None:
        self._gone = False
        self._tells: set[Callable[[], None]] = set()

    def on_leave(self, tell: Callable[[], None]) -> None:
        """Have it told when the client goes; at once if it has gone."""
        if self._gone:
            tell()
        else:
            self._tells.add(tell)

    def forget(self, tell: Callable[[], None]) -> None:
        self._tells.discard(tell)

    def leave(self) -> None:
        """Tell everybody who wants to know that the client has gone."""
        self._gone = True
        tells, self._tells = self._tells, set()
        for tell in tells:
            tell()


def client_of(scope: Mapping[str, Any]) -> Client | None:
    """Return who sent the request of an ASGI scope, if its server tells."""
    found = scope.get("extensions", {}).get(CLIENT, {}).get("client")
    return found if isinstance(found, Client) else None
