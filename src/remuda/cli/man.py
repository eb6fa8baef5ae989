"""``remuda man``: manual pages of every command, made of their help. Knows of roff what it needs and no more."""

from __future__ import annotations

import errno
import inspect
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from remuda.adapters.system import SystemClock
from remuda.cli.helps import PLAIN_EXITS
from remuda.cli.listing_group import LIST, ListingGroup
from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

SECTION: Final = 1
_KEPT: Final = "\b"
"""How click marks a paragraph that must not be re-wrapped."""
_EXIT_CODES: Final = "Exit codes:"
"""How a help's last line begins that manual pages have a section for."""


@click.command(epilog=PLAIN_EXITS)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def man(folder: Path) -> None:
    """
    Write a manual page for each command into a folder.

    \b
    Examples:
      remuda man ~/.local/share/man/man1    then: man remuda, man remuda-jobs
      remuda man ./man1                     for a package
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    from remuda.cli.main import remuda  # noqa: PLC0415 - it imports this module by name

    try:
        folder.mkdir(parents=True, exist_ok=True)
        today = SystemClock().now().date()
        made = dict(pages(remuda, Edition(version("remuda"), today)))
        for name, page in made.items():
            (folder / f"{name}.{SECTION}").write_text(page, encoding="utf-8")
    except OSError as error:
        raise BadInput(
            f"The manual pages could not be written into {folder}",
            why=error.strerror or errno.errorcode.get(error.errno or 0, str(error)),
            fix="Name another folder, or make room",
        ) from None
    click.echo(f"{len(made)} pages written into {folder}.")


@dataclass(frozen=True, slots=True)
class Edition:
    """Which version pages are about, and of which day they are."""

    release: str
    day: date


def pages(root: click.Command, edition: Edition) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page. Commands whose packages are not installed have none."""
    context = click.Context(root, info_name="remuda", terminal_width=80, **root.context_settings)
    yield from _pages(context, edition)


def _pages(context: click.Context, edition: Edition) -> Iterator[tuple[str, str]]:
    name = context.command_path.replace(" ", "-")
    below = list(_below(context))
    yield name, page(context, [child.command_path for child in below], edition)
    for child in below:
        yield from _pages(child, edition)


def _below(context: click.Context) -> Iterator[click.Context]:
    group = context.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(context):
        try:
            command = group.get_command(context, name)
        except BadInput as error:
            click.echo(f"remuda: no page for {name}: {error.why}", err=True)
            continue
        if command is not None and not command.hidden:
            yield click.Context(command, info_name=name, parent=context)


def page(context: click.Context, below: list[str], edition: Edition) -> str:
    """Return one manual page."""
    command, path = context.command, context.command_path
    name, source = path.replace(" ", "-"), f"remuda {edition.release}"
    lines = [
        f'.TH "{escaped(name.upper())}" "{SECTION}" "{edition.day}" "{escaped(source)}" "Remuda"',
        ".SH NAME",
        f"{escaped(name)} \\- {escaped(command.get_short_help_str(200).rstrip('.'))}",
        ".SH SYNOPSIS",
        *_synopsis(context),
        ".SH DESCRIPTION",
        *_paragraphs(inspect.cleandoc(command.help or "")),
        *_options(context),
    ]
    if command.epilog:
        text = inspect.cleandoc(command.epilog)
        title = "EXIT STATUS" if text.startswith(_EXIT_CODES) else "NOTES"
        lines += [f".SH {title}", *_paragraphs(text.removeprefix(_EXIT_CODES).lstrip())]
    others = [*below, *([context.parent.command_path] if context.parent else [])]
    if others:
        named = ", ".join(
            f"\\fB{escaped(other.replace(' ', '-'))}\\fR({SECTION})" for other in others
        )
        lines += [".SH SEE ALSO", named]
    return "\n".join(lines) + "\n"


def _synopsis(context: click.Context) -> list[str]:
    formatter = context.make_formatter()
    context.command.format_usage(context, formatter)
    usages = formatter.getvalue().replace("Usage:", "").split(context.command_path)
    said = [" ".join(usage.split()) for usage in usages[1:]]
    lines = [f"\\fB{escaped(context.command_path)}\\fR {escaped(rest)}".rstrip() for rest in said]
    return [text for line in lines for text in (".br", line)][1:]


def _options(context: click.Context) -> list[str]:
    command = context.command
    # A group that lists by itself takes the options of its listing.
    shown = command.commands[LIST] if isinstance(command, ListingGroup) else command
    options = [p for p in shown.get_params(context) if isinstance(p, click.Option)]
    records = [found for option in options if (found := option.get_help_record(context))]
    lines = [".SH OPTIONS"] if records else []
    for names, text in records:
        lines += [".TP", f"\\fB{escaped(names)}\\fR", escaped(" ".join(text.split())) or "\\&"]
    if not isinstance(command, click.Group):
        return lines
    lines.append(".SH COMMANDS")
    for child in _below(context):
        summary = child.command.get_short_help_str(200)
        lines += [".TP", f"\\fB{escaped(child.info_name or '')}\\fR", escaped(summary) or "\\&"]
    return lines


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield ".PP"
        if not paragraph.startswith(_KEPT):
            yield escaped(" ".join(paragraph.split()))
            continue
        yield ".nf"
        yield from (escaped(line) for line in paragraph.removeprefix(_KEPT).strip("\n").split("\n"))
        yield ".fi"


def escaped(text: str) -> str:
    """Return text that roff prints as it is: no line of it is a request, and no character has a meaning."""
    known = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    safe = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in known)
    return f"\\&{safe}" if safe.startswith((".", "'")) else safe
