"""``remuda``: finds the command and turns errors into what a person can act on. Commands load when called."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from remuda.model.errors import BadInput, RemudaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem


_CURES: Final = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "Free disk space"),
    errno.EROFS: "Make its disk writable",
    errno.EIO: "Look for faults of the disk (dmesg)",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "See that you may do that"),
    errno.EMFILE: "Let it open more files (ulimit -n)",
    errno.ENFILE: "Close other programs: the system has no more open files to give",
}
"""Errors of the system that can come anywhere, and are no bugs (disks, rights, open files), and what helps."""
_INTERRUPTED: Final = 130
"""As in ``exits``, which would have to be loaded for it."""


@dataclass(frozen=True, slots=True)
class _Command:
    """One command, imported only when it is called: ``remuda --help`` stays instant."""

    module: str
    attribute: str
    summary: str
    extra: str = ""
    """What to install for it, if more than the package itself: ``remuda[extra]``."""

    @property
    def package(self) -> str:
        return f"remuda[{self.extra}]" if self.extra else "remuda"


COMMANDS = {
    "agent": _Command("remuda.cli.agent", "agent", "Run VMs for the Pods of this host.", "agent"),
    "completion": _Command(
        "remuda.cli.completion", "completion", "Print what a shell needs to complete commands."
    ),
    "control-plane": _Command(
        "remuda.cli.control_plane",
        "control_plane",
        "Serve a Kubernetes API on one machine.",
        "standalone",
    ),
    "controller": _Command("remuda.cli.controller", "controller", "Run the RunnerPool operator."),
    "demo": _Command(
        "remuda.cli.demo.command",
        "demo",
        "Hurt a fleet of its own and see that no job is lost.",
        "agent,server,standalone",
    ),
    "doctor": _Command(
        "remuda.cli.doctor.command", "doctor", "Look for what is wrong, and mend what is safe."
    ),
    "down": _Command(
        "remuda.cli.down",
        "down",
        "End the remuda up of this machine.",
        "agent,server,standalone",
    ),
    "explain": _Command(
        "remuda.cli.explain", "explain", "Say why something is as it is, and what to do next."
    ),
    "host": _Command("remuda.cli.host", "host", "Prepare or bootstrap one Mac, by hand.", "hosts"),
    "hosts": _Command("remuda.cli.hosts", "hosts", "List hosts; drain one."),
    "jobs": _Command("remuda.cli.jobs", "jobs", "List jobs and how far each is."),
    "man": _Command("remuda.cli.man", "man", "Write manual pages."),
    "poller": _Command(
        "remuda.cli.poller", "poller", "Wait for a runner's one job, inside its Pod."
    ),
    "pools": _Command("remuda.cli.pools", "pools", "List pools; pause, scale or roll one."),
    "run": _Command("remuda.cli.run", "run", "Run a command on a fresh single-use runner."),
    "runners": _Command("remuda.cli.runners", "runners", "List runners, where and with which job."),
    "server": _Command(
        "remuda.cli.server", "server", "Run dispatch: jobs in, job configs out.", "server"
    ),
    "setup": _Command(
        "remuda.cli.setup", "setup", "Connect a GitHub, by an App of your own.", "server"
    ),
    "sim": _Command("remuda.cli.sim", "sim", "Run the real code on virtual time.", "standalone"),
    "status": _Command(
        "remuda.cli.status",
        "status",
        "Say how the remuda up of this machine is.",
        "agent,server,standalone",
    ),
    "top": _Command("remuda.cli.top.command", "top", "Show the fleet on a living screen.", "tui"),
    "up": _Command(
        "remuda.cli.up", "up", "Run a whole fleet on this machine.", "agent,server,standalone"
    ),
}


SECTIONS = {
    "A fleet on this machine": ("up", "run", "status", "down", "setup", "demo"),
    "Look at a fleet": ("top", "jobs", "runners", "pools", "hosts", "explain", "doctor"),
    "Parts of a fleet of many machines": (
        "server",
        "controller",
        "agent",
        "poller",
        "control-plane",
        "host",
    ),
}
"""How ``remuda --help`` sorts the commands."""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if (found := COMMANDS.get(cmd_name)) is None:
            return None
        try:
            command = getattr(importlib.import_module(found.module), found.attribute)
        except ModuleNotFoundError as error:
            if (error.name or "remuda").startswith("remuda"):
                raise  # our own bug: no package to install would help
            raise BadInput(
                f"remuda {cmd_name} cannot start",
                why=f"the Python package {error.name} is not installed",
                fix=f"Install it with: pip install '{found.package}'",
            ) from error
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run a command. One that is interrupted ends as shells expect it, with 130."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("\nremuda: interrupted.", err=True)
            ctx.exit(_INTERRUPTED)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer commands without loading them all."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only shells ask for it

        names = (name for name in self.list_commands(ctx) if name.startswith(incomplete))
        offered = [CompletionItem(name, help=COMMANDS[name].summary) for name in names]
        return [*offered, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        width = max(map(len, COMMANDS))
        for title, names in _sections().items():
            with formatter.section(title):
                formatter.write_dl([(n.ljust(width), COMMANDS[n].summary) for n in names])


def _sections() -> dict[str, list[str]]:
    """Return the commands as people look for them; one that was given no section is among the others."""
    told = {name for names in SECTIONS.values() for name in names}
    others = sorted(set(COMMANDS) - told)
    return {**{title: list(names) for title, names in SECTIONS.items()}, "Other commands": others}


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 refused, 130 interrupted.",
)
@click.version_option(package_name="remuda", prog_name="remuda")
def remuda() -> None:
    """
    Keep a warm pool of single-use CI runners.

    \b
    Examples:
      remuda demo                                see it keep its promise, on a fleet of its own
      remuda up --detach                         a whole fleet on this machine
      remuda run -- make test                    a command on a fresh runner of it
      remuda top                                 watch it live
      remuda explain job JOB                     why does it wait?
      remuda doctor                              what is wrong?
      remuda sim --list                          the scenarios of the simulator
      remuda agent --help                        the VMs of one host, for a fleet of many
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. A fault of the world is three plain lines and its exit code, never a traceback."""
    _open_closed_streams()
    try:
        remuda(args=arguments)
    except (RemudaError, OSError, ExceptionGroup) as raised:
        found = faults(raised)
        if not found:
            raise
        if (
            sys.flags.dev_mode
        ):  # python -X dev, or PYTHONDEVMODE=1: for who looks for a bug behind it
            sys.excepthook(type(raised), raised, raised.__traceback__)
        for error in found:
            click.echo(f"remuda: {error.what}\n  why: {error.why}\n  fix: {error.fix}", err=True)
        from remuda.cli.exits import code_of  # noqa: PLC0415 - it knows what errors there are

        sys.exit(code_of(found))


def _open_closed_streams() -> None:
    """Let output go nowhere that was closed by whoever started us, before a file of ours gets its number."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - it stays open, and pathlib is slow to load


def faults(raised: Exception) -> tuple[RemudaError, ...]:
    """Return the faults of the world in what was raised by one task or several; none if there is a bug among them."""
    if isinstance(raised, RemudaError):
        return (raised,)
    if isinstance(raised, OSError) and raised.errno in _CURES:
        return (_by_system(raised),)
    if not isinstance(raised, ExceptionGroup):
        return ()
    each = [faults(inner) for inner in raised.exceptions]
    return tuple(error for found in each for error in found) if all(each) else ()


def _by_system(error: OSError) -> BadInput:
    """Say of an error that nobody expected at that place what the system says of it."""
    where = f"{error.filename}: " if error.filename else ""
    return BadInput(
        "The system refused something",
        why=f"{where}{error.strerror}",
        fix=f"{_CURES[error.errno or 0]}, and do it again",
    )


if __name__ == "__main__":
    main()
