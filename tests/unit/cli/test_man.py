"""Manual pages: one for every command, plain roff, and those in the repository are what a package brings."""

from __future__ import annotations

import tomllib
from datetime import date
from pathlib import Path

import click

from remuda.cli.main import COMMANDS
from remuda.cli.man import Edition, pages

ROOT = Path(__file__).resolve().parents[3]
MANUAL = ROOT / "man/man1"


@click.command(epilog="Exit codes: 0 ok, 1 failed.")
@click.option("--much", default=3, show_default=True, help=".how -much")
def little(much: int) -> None:
    """
    Do a little.

    'Tis not much - really.
    """
    del much


def test_a_page_has_its_sections_and_no_text_is_a_request() -> None:
    ((name, page),) = pages(little, Edition("1.2", date(2026, 1, 2)))
    assert name == "remuda"
    lines = page.splitlines()
    assert lines[0] == '.TH "REMUDA" "1" "2026-01-02" "remuda 1.2" "Remuda"'
    sections = [line for line in lines if line.startswith(".SH")]
    assert sections == [
        ".SH NAME",
        ".SH SYNOPSIS",
        ".SH DESCRIPTION",
        ".SH OPTIONS",
        ".SH EXIT STATUS",
    ]
    assert "0 ok, 1 failed." in lines
    assert "\\&'Tis not much \\- really." in lines
    assert "\\&.how \\-much [default: 3]" in lines


def test_every_command_has_a_page_in_the_repository_and_a_package_brings_them() -> None:
    there = {page.stem for page in MANUAL.glob("*.1")}
    assert {f"remuda-{name}" for name in COMMANDS} <= there
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shared = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert shared == {"man/man1": "share/man/man1"}
