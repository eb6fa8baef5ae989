"""``remuda setup``: connects a fleet with what is outside of it."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remuda.adapters.github.manifest import DOTCOM, AppWish, Site
from remuda.adapters.github.settings import read_repositories
from remuda.adapters.system import SystemIds
from remuda.cli.setup_files import GithubFiles
from remuda.cli.setup_flow import Setup, by_code, by_page, check, print_form
from remuda.cli.tree.folder import data_folder
from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from remuda.ports.ids import Ids


@click.group()
def setup() -> None:
    """Connect this fleet with what is outside of it."""


@setup.command(
    epilog="Exit codes: 0 connected, 1 failed or not installed yet, 2 usage, 4 an App is there already."
)
@click.option("--org", default="", metavar="ORG", help="Make the App for this organisation.")
@click.option("--user", is_flag=True, help="Make the App for your own account.")
@click.option(
    "--name",
    default="",
    help="What the App is called; no other at that GitHub may be called so. Default: remuda-OWNER-SUFFIX.",
)
@click.option(
    "--github-url",
    default=DOTCOM,
    show_default=True,
    envvar="REMUDA_GITHUB_URL",
    show_envvar=True,
    metavar="URL",
    help="The start page of an Enterprise Server, or of a GitHub with data residency.",
)
@click.option(
    "--webhook-url",
    default="",
    metavar="URL",
    help="Where GitHub can reach the server, ending in /webhooks/github. Default: nowhere; GitHub is asked for jobs"
    " every few seconds.",
)
@click.option(
    "--repos",
    default="",
    metavar="OWNER/NAME,…",
    help="Serve only these repositories. Default: all that the App is installed for.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port of the page on this machine. Default: any that is free.",
)
@click.option(
    "--no-browser", is_flag=True, help="Open no browser; the address of the page is shown."
)
@click.option(
    "--print",
    "headless",
    is_flag=True,
    help="For a machine without a browser: write the form to a file, and say what to do with it.",
)
@click.option(
    "--code",
    default="",
    metavar="CODE|ADDRESS",
    help="After --print: the code that GitHub sent back, or the whole address that it stands in.",
)
@click.option(
    "--check", "only_check", is_flag=True, help="Change nothing; say whether the App works."
)
@click.option("--replace", is_flag=True, help="Put the new App in the place of one that is there.")
@click.option(
    "--wait",
    "wait_s",
    type=click.IntRange(0, 3600),
    default=900,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for you at GitHub. 0 with --code: do not wait for the installation.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="The data folder of the remuda up that is meant. Variable: REMUDA_DATA.",
)
def github(  # noqa: PLR0913 - one parameter per option is how click works
    *,
    org: str,
    user: bool,
    name: str,
    github_url: str,
    webhook_url: str,
    repos: str,
    port: int,
    no_browser: bool,
    headless: bool,
    code: str,
    only_check: bool,
    replace: bool,
    wait_s: int,
    data: Path | None,
) -> None:
    """
    Make a GitHub App for this fleet, and connect it.

    A page on this machine takes you to GitHub with everything filled in: which permissions (runners: write, actions and
    metadata: read) and nothing else. You confirm, GitHub sends the App's key back to this machine, you install the App
    for the repositories that you want. The key is kept in the data folder, readable for you alone, and never shown.

    No address of this machine needs to be public: jobs are asked for. remuda up reads what is kept; a server of a
    cluster is told with remuda server --github FILE.

    \b
    Examples:
      remuda setup github --org acme
      remuda setup github --user --repos alice/widgets
      remuda setup github --org acme --github-url https://ghes.example
      remuda setup github --org acme --print
      remuda setup github --code 'http://127.0.0.1:65535/created?code=…&state=…'
      remuda setup github --check
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    if headless + bool(code) + only_check > 1:
        raise click.UsageError("--print, --code and --check are three steps: use one of them.")
    folder = data_folder(data)
    files = GithubFiles(folder)
    if only_check:
        asyncio.run(check(files, option_of(folder.root, data)))
        return
    ids = SystemIds()
    try:
        wish = None if code else _wish(org, name, webhook_url, ids, user=user)
        site = Site.at(github_url)
        repositories = read_repositories(repos, "--repos")
    except BadInput as error:
        raise click.UsageError(f"{error.what}\n  why: {error.why}\n  fix: {error.fix}") from None
    told = Setup(
        files=files,
        site=site,
        wish=wish,
        repositories=repositories,
        port=port,
        wait_s=float(wait_s),
        opens_browser=not no_browser and _has_browser(),
        option=option_of(folder.root, data),
        ids=ids,
    )
    files.make(may_replace=replace)
    if headless:
        print_form(told)
    elif code:
        asyncio.run(by_code(told, code))
    else:
        asyncio.run(by_page(told))


def option_of(root: Path, data: Path | None) -> str:
    """Return how the same folder is named in the next command."""
    return "" if data is None else f" --data {shlex.quote(str(root))}"


def _wish(org: str, name: str, webhook_url: str, ids: Ids, *, user: bool) -> AppWish:
    if bool(org) == user:
        why = "both an organisation and yourself are named" if org else "nobody is named"
        raise BadInput(
            "It is not known whose App it shall be",
            why=why,
            fix="Say --org ORG, or --user for your own account",
        )
    default = f"remuda-{org[:20] or 'user'}-{ids.suffix(5)}".replace("--", "-")
    return AppWish(org=org, name=name.strip() or default, webhook_url=webhook_url)


def _has_browser() -> bool:
    """Say whether a browser would open where a person sees it; else one for terminals might."""
    shown = sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    return shown and sys.stderr.isatty()
