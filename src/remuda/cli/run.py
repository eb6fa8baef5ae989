"""``remuda run``: a command on a fresh single-use runner."""

from __future__ import annotations

import asyncio
import os
import posixpath
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from remuda.cli.completion import names_of, pool_names
from remuda.cli.exits import INTERRUPTED, NO_RESULT, TERMINATED
from remuda.cli.finding import Where, api_options
from remuda.model.errors import RemudaError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO

    from remuda.cli.progress import Screen
    from remuda.cli.run_files import Carrying
    from remuda.cli.run_words import Verdict
    from remuda.cli.unpacking import Wanted
    from remuda.ports.api import NewJob

_UNITS: Final = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_DURATION: Final = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s?)?")
_TIMEOUT_MAX_S: Final = 86_400
_SCRIPT_MAX_BYTES: Final = 256 * 1024
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME_MAX: Final = 100


class Duration(click.ParamType[int]):
    """A time such as 90, 90s, 10m or 1h30m, in whole seconds."""

    name = "duration"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's own
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        if isinstance(value, int):
            return value
        found = _DURATION.fullmatch(str(value).strip())
        if found is None or not any(found.groups()):
            self.fail(f"{value!r} is not a time such as 90s, 10m or 1h30m.", param, ctx)
        seconds = sum(
            int(number or 0) * unit
            for number, unit in zip(found.groups(), _UNITS.values(), strict=True)
        )
        if not 1 <= seconds <= _TIMEOUT_MAX_S:
            self.fail(f"{value!r} is not between 1s and 24h.", param, ctx)
        return seconds


@click.command(
    "run",
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS] [--]",
    epilog="Exit codes: the command's own; 2 usage, 124 it took too long, 125 there is no exit code of its own,"
    " 130 interrupted, 141 nobody reads the output, 143 told to end.",
)
@click.option(
    "--pool",
    envvar="REMUDA_POOL",
    show_envvar=True,
    default="default",
    show_default=True,
    help="The pool whose runners may take it.",
    shell_complete=names_of(pool_names),
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Duration(),
    default="1h",
    show_default=True,
    help="How long it may take, from its hand-over to a runner on: 90s, 10m, 1h30m. At most a day.",
)
@click.option(
    "--script",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Run this file instead of a command: with its own #! line, or by sh. - reads standard input.",
)
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    help="A variable of its environment; NAME alone takes it from here. May be repeated. No place for secrets.",
)
@click.option(
    "--upload",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="A folder whose content the command finds where it begins. At most 64 MiB, packed.",
)
@click.option(
    "--download",
    "downloads",
    multiple=True,
    metavar="PATH[:DIR]",
    help="A file or folder to bring back, however the command ends, into DIR (default: here). May be repeated.",
)
@click.option("--name", default="", help="What to call it in lists. Default: the program's name.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing but what the command prints.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@api_options
def run(  # noqa: PLR0913 - the options of a command
    *,
    where: Where,
    pool: str,
    timeout_s: int,
    script: Path | None,
    variables: tuple[str, ...],
    upload: Path | None,
    downloads: tuple[str, ...],
    name: str,
    command: tuple[str, ...],
    quiet: bool,
) -> None:
    """
    Run a command on a fresh single-use runner.

    Its output comes as it is printed, both streams on standard output; its exit code is returned. Ctrl-C cancels the
    job and waits for its end; a second one leaves at once.

    \b
    Examples:
      remuda run -- make test
      remuda run --pool mac --timeout 30m -- xcodebuild test
      remuda run --script build.sh --env CI=true
      remuda run --upload . --download dist -- make dist
      remuda run -- sh -c 'exit 7'; echo $?
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    from remuda.cli.progress import Screen  # noqa: PLC0415 - help needs none of it
    from remuda.cli.run_files import Carrying  # noqa: PLC0415 - likewise
    from remuda.ports.api import NewJob  # noqa: PLC0415 - likewise

    job = NewJob(
        pool=pool,
        script=_script(script, command),
        command=_checked(command),
        env=dict(_variable(text) for text in variables),
        timeout_s=timeout_s,
        name=_shown(name or _default_name(script, command)),
    )
    carrying = Carrying(upload=upload, download=_wanted(downloads))
    screen = Screen(sys.stderr, quiet=quiet)
    out = sys.stdout.buffer
    try:
        verdict = asyncio.run(_run(where, job, carrying, screen, out))
    except RemudaError as error:
        screen.clear()
        click.echo(f"remuda: {error.what}\n  why: {error.why}\n  fix: {error.fix}", err=True)
        sys.exit(NO_RESULT)
    if verdict.says:
        click.echo(f"remuda: {verdict.says}", err=True)
    sys.exit(verdict.code)


# --- what is asked for ---


def _script(file: Path | None, command: Sequence[str]) -> str:
    if file is None:
        if not command:
            raise click.UsageError("Say what to run: remuda run -- COMMAND…, or --script FILE.")
        return ""
    if command:
        raise click.UsageError("Either --script or a command, not both.")
    shown = "The script" if str(file) == "-" else f"The script {file}"
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise click.UsageError(f"{shown} cannot be read: {error.strerror}.") from None
    if len(data) > _SCRIPT_MAX_BYTES:
        raise click.UsageError(f"{shown} has more than {_SCRIPT_MAX_BYTES // 1024} KiB.")
    if not data.strip():
        raise click.UsageError(f"{shown} is empty.")
    return _text(data, shown)


def _text(data: bytes, what: str) -> str:
    if b"\0" in data:
        raise click.UsageError(f"{what} holds a NUL character.")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise click.UsageError(f"{what} is not UTF-8.") from None


def _checked(command: Sequence[str]) -> tuple[str, ...]:
    """Refuse what would not arrive as it is."""
    for argument in command:
        _text(os.fsencode(argument), f"The argument {_shown(argument)!r}")
    if command and not command[0]:
        raise click.UsageError("The name of the program is empty.")
    if command and command[0].startswith("-"):
        fix = "Write ./ before it if a program has such a name; options of remuda run stand before --."
        raise click.UsageError(f"{_shown(command[0])!r} is no program. {fix}")
    return tuple(command)


def _variable(text: str) -> tuple[str, str]:
    name, given, value = text.partition("=")
    if _VARIABLE.fullmatch(name) is None:
        raise click.UsageError(
            f"--env {_shown(name)!r}: a name is letters, digits and underscores."
        )
    if not given:
        found = os.environ.get(name)
        if found is None:
            raise click.UsageError(f"--env {name}: there is no such variable here.")
        value = found
    _text(os.fsencode(value), f"The value of --env {name}")
    return name, value


def _wanted(texts: Sequence[str]) -> tuple[Wanted, ...]:
    from remuda.cli.unpacking import Wanted  # noqa: PLC0415 - help needs none of it
    from remuda.model.job_files import PATHS_MAX, path_fault  # noqa: PLC0415 - likewise

    if len(texts) > PATHS_MAX:
        raise click.UsageError(f"--download is given more than {PATHS_MAX} times.")
    found = []
    for text in texts:
        path, _, into = text.partition(":")
        _text(os.fsencode(path), f"The path {_shown(path)!r}")
        path = posixpath.normpath(path) if path else path
        if fault := path_fault(path):
            raise click.UsageError(f"--download {_shown(text)!r}: {fault}.")
        if into and Path(into).exists() and not Path(into).is_dir():
            raise click.UsageError(f"--download {_shown(text)!r}: {into} is no folder.")
        found.append(Wanted(path, Path(into or ".")))
    return tuple(found)


def _default_name(script: Path | None, command: Sequence[str]) -> str:
    if script is not None:
        return "script" if str(script) == "-" else script.name
    return os.path.basename(command[0]) if command else ""  # noqa: PTH119 - a text of another machine's path


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:_NAME_MAX].strip()


# --- doing it ---


async def _run(
    where: Where, job: NewJob, carrying: Carrying, screen: Screen, out: BinaryIO
) -> Verdict:
    from remuda.adapters.system import SystemClock, SystemIds  # noqa: PLC0415 - help needs none of it
    from remuda.cli.run_job import Run, Stop  # noqa: PLC0415 - likewise

    stop = Stop()
    _heed_signals(stop, screen)
    async with where.api() as api:
        run_ = Run(api=api, clock=SystemClock(), out=_Stdout(out), screen=screen, stop=stop)
        return await carrying.run(run_, job, key=SystemIds().uid())


def _heed_signals(stop: Any, screen: Screen) -> None:  # noqa: ANN401 - loaded late
    def told(code: int) -> None:
        if stop.code is not None:
            screen.clear()
            os._exit(code)  # even if a write hangs: that is what the second one is for
        stop.ask(code)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, told, INTERRUPTED)
    loop.add_signal_handler(signal.SIGTERM, told, TERMINATED)


class _Stdout:
    """Standard output, byte by byte as it came. Written beside the loop: a reader that is slow must not stop us."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    async def write(self, data: bytes) -> None:
        from remuda.cli.run_job import OutputFailed  # noqa: PLC0415 - help needs none of it

        try:
            await asyncio.to_thread(self._write, data)
        except BrokenPipeError:
            self._abandon()
            raise
        except OSError as error:
            self._abandon()
            raise OutputFailed(
                "The output of the job could not be written",
                why=error.strerror or type(error).__name__,
                fix="Make room where it goes, and run it again: the job is cancelled",
            ) from None

    def _write(self, data: bytes) -> None:
        self._stream.write(data)
        self._stream.flush()

    def _abandon(self) -> None:
        """Keep the interpreter from trying once more at its end."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
