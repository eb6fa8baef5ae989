"""How an App is made, taken over and seen to be installed: with a page on this machine, or by hand."""

from __future__ import annotations

import asyncio
import hmac
import json
import webbrowser
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from remuda.adapters.github.conversion import convert, installations_of, read_pasted
from remuda.adapters.github.manifest import DOTCOM, Site
from remuda.adapters.system import SystemClock
from remuda.cli import setup_html
from remuda.cli.setup_files import AppCard, Pending
from remuda.cli.setup_page import Flow, Taken, serving_pages
from remuda.cli.tree.folder import holder
from remuda.cli.tree.parts import SERVER
from remuda.cli.tree.runs import Run
from remuda.model.errors import BadInput, RemudaError
from remuda.ports.forge import ForgeRefused, ForgeUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.adapters.github.conversion import NewApp
    from remuda.adapters.github.installations import Installation
    from remuda.adapters.github.manifest import AppWish
    from remuda.cli.setup_files import GithubFiles
    from remuda.ports.ids import Ids

_BY_HAND: Final = "http://127.0.0.1:65535/created"
"""Where GitHub sends the browser of a person who copies the address. Nobody is there."""
_LOOK_S: Final = 3.0
_LAST_PAGE_S: Final = 8.0
_SERVER_S: Final = 60.0


class NotConnected(RemudaError):
    """It is not finished: a person has something left to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What the command was told."""

    files: GithubFiles
    site: Site
    wish: AppWish | None
    """None: the App was made before, and only its code is brought."""
    repositories: tuple[str, ...]
    port: int
    wait_s: float
    opens_browser: bool
    option: str
    """How the next command names the same folder."""
    ids: Ids

    @property
    def wished(self) -> AppWish:
        assert self.wish is not None, "it is read unless a code is brought"
        return self.wish

    def pending(self, state: str) -> Pending:
        return Pending(
            web_url=self.site.web_url,
            state=state,
            webhook_url=self.wished.webhook_url,
            repositories=self.repositories,
        )


def say(line: str = "") -> None:
    click.echo(line, err=True)


# --- With a page on this machine --------------------------------------------------------------------------------------


async def by_page(told: Setup) -> None:
    """Serve the page until the App is there and installed. Raises NotConnected if nobody comes in time."""
    pending = told.pending(told.ids.suffix(32))

    async def take_over(code: str) -> Taken:
        return await _take_over(told, pending, code)

    flow = Flow(
        site=told.site,
        wish=told.wished,
        token=told.ids.suffix(32),
        state=pending.state,
        take_over=take_over,
        say=say,
    )
    async with serving_pages(flow, told.port) as pages:
        told.files.keep_pending(pending)  # a code that could not be exchanged is good for an hour
        say("Open this page, which takes you to GitHub with everything filled in:")
        click.echo(f"  {pages.start_url}")
        say(
            "It is on this machine only. Without a browser here, use --print instead. Waiting … (Ctrl-C ends it)"
        )
        if told.opens_browser:
            await asyncio.to_thread(webbrowser.open, pages.start_url)
        try:
            async with asyncio.timeout(told.wait_s):
                taken = await asyncio.shield(pages.outcome)
        except TimeoutError:
            raise NotConnected(
                "No App was made",
                why=f"nobody came back from GitHub within {told.wait_s:.0f} s",
                fix="Run the command again, with a longer --wait if need be; nothing was changed",
            ) from None
        _tell_taken(told.files, taken)
        found = await _until_installed(told, taken.install_url)
        pages.finish(setup_html.done_page(taken.name, _logins(found), _next(told)))
        _tell_installed(found)
        await _serve_now(told)
        await _until_shown(pages.seen)
    _tell_next(told)


async def _until_shown(seen: asyncio.Event) -> None:
    """Let the browser load the last page, if one looks at it."""
    try:
        async with asyncio.timeout(_LAST_PAGE_S):
            await seen.wait()
    except TimeoutError:
        return


# --- By hand ----------------------------------------------------------------------------------------------------------


def print_form(told: Setup) -> None:
    """Write the form, and say what to do with it."""
    state = told.ids.suffix(32)
    manifest = told.wished.manifest(told.site, _BY_HAND)
    page = setup_html.form_page(
        told.site.form_url(told.wished.org, state), manifest, told.wished, told.site
    )
    told.files.keep_pending(told.pending(state), page.html())
    click.echo(json.dumps(manifest, indent=2))
    say()
    say("That is the App's manifest. To make the App with it:")
    say(f"  1. Copy {told.files.form_file}")
    say("     to a machine with a browser, open it there, press the button and confirm at GitHub.")
    say(
        "  2. GitHub then sends the browser to a page on 127.0.0.1 that is not there. Copy its whole address."
    )
    say("  3. Within the hour, here:")
    say(f"     remuda setup github{told.option} --code 'THE ADDRESS'")


async def by_code(told: Setup, text: str) -> None:
    """Take over an App that was made by hand, and see that it is installed."""
    pasted = read_pasted(text)
    pending = told.files.pending()
    elsewhere = told.site.web_url not in {DOTCOM, "" if pending is None else pending.web_url}
    if pending is None or elsewhere:
        pending = Pending(web_url=told.site.web_url, state="", repositories=told.repositories)
    if pasted.state and not hmac.compare_digest(pasted.state.encode(), pending.state.encode()):
        raise BadInput(
            "That is not the answer to what was sent",
            why="its state is not the one of the last remuda setup github --print",
            fix="Copy the address from the browser again, or begin anew with --print",
        )
    taken = await _take_over(told, pending, pasted.code)
    _tell_taken(told.files, taken)
    if told.wait_s:
        _tell_installed(await _until_installed(told, taken.install_url))
    else:
        say(f"Install it for the repositories that you want: {taken.install_url}")
    await _serve_now(told)
    _tell_next(told)


# --- Both -------------------------------------------------------------------------------------------------------------


async def _take_over(told: Setup, pending: Pending, code: str) -> Taken:
    """Exchange the code and keep the App. GitHub tells the key once, so there is room for it before it is asked."""
    site = Site.at(pending.web_url)
    again = f"Try again within the hour: remuda setup github{told.option} --code {code}"
    try:
        told.files.reserve()
    except BadInput as error:
        raise BadInput(error.what, why=error.why, fix=f"{error.fix}. {again}") from None
    try:
        return await _kept(told, pending, site, code)
    except ForgeUnavailable as error:
        raise ForgeUnavailable(error.what, why=error.why, fix=again) from None
    finally:
        told.files.release()  # unless it was used


async def _kept(told: Setup, pending: Pending, site: Site, code: str) -> Taken:
    app = await convert(site, code)
    install_url = site.install_url(app.html_url, app.slug)
    name = "".join(c for c in app.name or app.slug if c.isprintable())
    card = AppCard(
        id=app.id, name=name, account=app.account, page=app.html_url, install_url=install_url
    )
    try:
        told.files.keep(app, pending, card, site.api_url)
    except BadInput as error:
        raise _not_kept(told, app, card, site, error) from None
    return Taken(name, app.account, install_url)


def _not_kept(told: Setup, app: NewApp, card: AppCard, site: Site, error: BadInput) -> NotConnected:
    """Say how a person gets on with an App that is made and whose key is gone: GitHub does not tell it again."""
    place = site.settings_url("" if app.is_users else app.account, app.slug)
    return NotConnected(
        f"The App {card.name} is made at GitHub, but it could not be kept here",
        why=f"{error.what}: {error.why}",
        fix=f"{error.fix}. Then delete the App at {place}/advanced and run remuda setup github{told.option} again; or"
        f" keep it, generate a new private key at {place}, and give it to the server: REMUDA_GITHUB_APP_ID={app.id},"
        " REMUDA_GITHUB_PRIVATE_KEY_FILE=FILE",
    )


async def _until_installed(told: Setup, install_url: str) -> tuple[Installation, ...]:
    """Wait until the App is installed somewhere. The App is ours already, whatever comes of this."""
    settings, clock = told.files.settings(), SystemClock()
    say(f"Now install it for the repositories that you want: {install_url}")
    why = "GitHub lists no installation of it"
    ends = clock.monotonic() + told.wait_s
    while clock.monotonic() < ends:
        try:
            if found := await installations_of(settings, clock):
                return found
        except (ForgeUnavailable, ForgeRefused) as error:
            why = error.why  # a new App is not known everywhere at once
        await clock.sleep(_LOOK_S)
    raise NotConnected(
        "The App is made and kept, but not installed yet",
        why=f"{why}, after {told.wait_s:.0f} s",
        fix=f"Install it at {install_url}, then look with remuda setup github{told.option} --check",
    )


async def check(files: GithubFiles, option: str) -> None:
    """Say whether the App that is kept works. Raises what is wrong with it."""
    if not files.folder.github_settings.exists():
        raise NotConnected(
            "No GitHub App is set up here",
            why=f"there is no {files.folder.github_settings}",
            fix=f"Make one with remuda setup github{option} --org ORG (or --user)",
        )
    settings, card = files.settings(), files.card()
    found = await installations_of(settings, SystemClock())
    how = "it is asked for jobs" if settings.polls else "it sends messages"
    name = settings.app_id if card is None else f"{card.name} ({settings.app_id})"
    click.echo(f"GitHub: {settings.host}, App {name}; {how}.")
    if not found:
        where = "" if card is None else f" at {card.install_url}"
        raise NotConnected(
            "The App is not installed anywhere that is served",
            why="its key is right, and GitHub lists no installation",
            fix=f"Install it{where}",
        )
    _tell_installed(found)


async def _serve_now(told: Setup) -> None:
    """Let a fleet that runs take it up: its server is started again, which keeps what is under way."""
    folder = told.files.folder
    if holder(folder) is None:
        return
    say("The fleet runs: its server is started again, with GitHub.")
    await Run(folder, SERVER).stop(grace_s=_SERVER_S)


def _tell_taken(files: GithubFiles, taken: Taken) -> None:
    say(f"The App {taken.name} is made. Its key is in {files.root}, for you alone.")


def _tell_installed(found: Sequence[Installation]) -> None:
    say(f"It is installed for {', '.join(_logins(found))}.")


def _logins(found: Sequence[Installation]) -> list[str]:
    return [where.login for where in found]


def _next(told: Setup) -> tuple[str, ...]:
    if holder(told.files.folder) is not None:
        return (f"remuda status{told.option}",)
    return (f"remuda up{told.option}",)


def _tell_next(told: Setup) -> None:
    kept = told.files.folder.kept()
    pool = "default" if kept is None else kept.pool
    say(f"A workflow reaches the pool of remuda up with:  runs-on: [self-hosted, {pool}]")
    say("Its image must hold GitHub's runner; see the page about GitHub, docs/howto/github-app.md.")
    say(f"Next:  {_next(told)[0]}")
    say(
        f"       remuda server --github {told.files.folder.github_settings}   (a server of its own)"
    )
