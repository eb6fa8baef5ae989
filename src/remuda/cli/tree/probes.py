"""Asks a part whether it is ready, as a person with curl would. Never raises for a part that is not."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import aiohttp

from remuda.cli.tree.parts import CONTROL_PLANE

if TYPE_CHECKING:
    from remuda.cli.tree.parts import Layout

TIMEOUT_S: Final = 5.0
_SAID_CHARS_MAX: Final = 400
_OK: Final = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """What a part said."""

    answered: bool
    ready: bool = False
    says: str = ""


async def ask(layout: Layout, part: str) -> Answer:
    """Ask one part. One that is alive but has a broken loop is not ready, whatever it says otherwise."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            trusted = await asyncio.to_thread(_trusted, layout, part)
            async with aiohttp.ClientSession() as client:
                for path in ("/healthz", "/readyz"):
                    async with client.get(f"{layout.url(part)}{path}", ssl=trusted) as answer:
                        if answer.status != _OK:
                            said = (await answer.text())[:_SAID_CHARS_MAX]
                            return Answer(answered=True, says=" ".join(said.split()))
    except TimeoutError:
        return Answer(answered=False, says=f"it did not answer within {TIMEOUT_S:.0f} s")
    except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
        return Answer(answered=False, says=f"it does not answer ({type(error).__name__})")
    return Answer(answered=True, ready=True)


def _trusted(layout: Layout, part: str) -> ssl.SSLContext | bool:
    if part != CONTROL_PLANE:
        return True
    return ssl.create_default_context(cafile=str(layout.folder.pki / "ca.crt"))
