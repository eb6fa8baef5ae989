"""
How a person or a program on the host asks the agent to fetch an image: a socket in its data folder, for its user alone.

One call per connection. A line goes in, ``{"image": …}``; lines come out, ``{"said": …}`` while it is fetched, and at
last ``{"done": true}`` or ``{"error": {what, why, fix}}``. Whoever asked may go: what was begun goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from remuda.model.errors import BadInput, RemudaError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

log = structlog.get_logger(__name__)

SOCKET: Final = "stage.sock"
_PATH_MAX_BYTES: Final = 100
"""The systems take no longer name of a socket: 104 bytes on macOS, 108 on Linux."""
_LINE_MAX_BYTES: Final = 16 * 1024
_ASK_S: Final = 10.0
_NOT_STAGED: Final = "The image was not staged"


class NotStaged(RemudaError):
    """The agent could not fetch the image, or could not be asked."""


class _Asked(msgspec.Struct, frozen=True):
    image: str


class _Fault(msgspec.Struct, frozen=True):
    what: str
    why: str
    fix: str


class _Said(msgspec.Struct, frozen=True, omit_defaults=True):
    said: str = ""
    done: bool = False
    error: _Fault | None = None


@asynccontextmanager
async def serving_stage(
    folder: Path, stage: Callable[[str, Callable[[str], None]], Awaitable[None]]
) -> AsyncIterator[None]:
    """Answer for as long as the block lasts. ``stage`` fetches an image and says how far it is."""
    path = folder / SOCKET
    if len(bytes(path)) > _PATH_MAX_BYTES:
        log.warning(
            "remuda agent stage cannot be used", why=f"the path {path} is too long for a socket"
        )
        yield
        return
    path.unlink(missing_ok=True)  # of an agent that was killed: whoever serves holds the records
    async with asyncio.TaskGroup() as group:
        answering: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = group.create_task(_answer(reader, writer, stage), name="stage")
            answering.add(task)
            task.add_done_callback(answering.discard)

        server = await asyncio.start_unix_server(accept, path, limit=_LINE_MAX_BYTES)
        try:
            path.chmod(0o600)
            yield
        finally:
            server.close()
            path.unlink(missing_ok=True)
            for task in answering:
                task.cancel()


async def ask_to_stage(folder: Path, image: str, say: Callable[[str], None]) -> None:
    """Ask the agent of this data folder to fetch an image, and return when it is there. Raises NotStaged."""
    try:
        reader, writer = await asyncio.open_unix_connection(folder / SOCKET, limit=_LINE_MAX_BYTES)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise NotStaged(
            _NOT_STAGED,
            why=f"no agent could be asked in {folder} ({why})",
            fix="Name the data directory of an agent that runs, and ask as its user",
        ) from None
    try:
        writer.write(msgspec.json.encode(_Asked(image)) + b"\n")
        await writer.drain()
        while line := await reader.readline():
            said = msgspec.json.decode(line, type=_Said)
            if said.done:
                return
            if (fault := said.error) is not None:
                raise NotStaged(fault.what, why=fault.why, fix=fault.fix)
            say(said.said)
    except (OSError, ValueError, msgspec.MsgspecError):
        pass  # as if it had ended in the middle
    finally:
        writer.close()
    raise NotStaged(
        _NOT_STAGED, why="the agent ended meanwhile", fix="Start the agent, and ask once more"
    )


async def _answer(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    stage: Callable[[str, Callable[[str], None]], Awaitable[None]],
) -> None:
    def tell(said: _Said) -> None:
        if not writer.is_closing():
            writer.write(msgspec.json.encode(said) + b"\n")

    try:
        async with asyncio.timeout(_ASK_S):
            image = msgspec.json.decode(await reader.readline(), type=_Asked).image
        _check(image)
        await stage(image, lambda sentence: tell(_Said(said=sentence)))
        tell(_Said(done=True))
    except RemudaError as error:
        tell(_Said(error=_Fault(error.what, error.why, error.fix)))
    except (OSError, TimeoutError, ValueError, msgspec.MsgspecError):
        fix = "Use remuda agent stage of this version"
        tell(_Said(error=_Fault(_NOT_STAGED, "what was asked makes no sense", fix)))
    except Exception:  # the edge: a fault in one answer must not end the agent
        log.exception("image not staged")
        fix = "See the agent's log"
        tell(_Said(error=_Fault(_NOT_STAGED, "the agent met a fault of its own", fix)))
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _check(image: str) -> None:
    if not image or len(image) > 1000 or not image.isprintable() or image.startswith("-"):  # noqa: PLR2004 - longer than any reference
        raise BadInput(
            _NOT_STAGED,
            why=f"{image[:100]!r} is no reference of an image",
            fix="Write it as pools do in spec.image",
        )
