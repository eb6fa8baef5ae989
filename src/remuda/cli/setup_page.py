"""
The loopback page of ``remuda setup github``: takes a person to GitHub with a manifest, and takes the App over after.

Only this machine can reach it, and only who knows its address, which nobody can guess: what comes back decides whose
jobs run here. A code is taken once, and only with the state that was sent along.
"""

from __future__ import annotations

import asyncio
import hmac
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aiohttp import web

from remuda.adapters.github.conversion import read_pasted
from remuda.adapters.status_server import CannotListen
from remuda.cli import setup_html
from remuda.model.errors import BadInput, RemudaError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from remuda.adapters.github.manifest import AppWish, Site
    from remuda.cli.setup_html import Page

HOST: Final = "127.0.0.1"
_SHUTDOWN_S: Final = 1.0
_REQUEST_MAX: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What the pages are about. ``token`` and ``state`` are random and used once."""

    site: Site
    wish: AppWish
    token: str
    state: str
    take_over: Callable[[str], Awaitable[Taken]]
    """Exchanges the code and keeps the App. Raises RemudaError."""
    say: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Taken:
    """An App that is ours."""

    name: str
    account: str
    install_url: str


def _future() -> asyncio.Future[Taken]:
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True)
class SetupPages:
    """How far it is, and the pages that say so."""

    flow: Flow
    address: str = ""
    outcome: asyncio.Future[Taken] = field(default_factory=_future)
    done: Page | None = None
    """Set once the App is installed."""
    seen: asyncio.Event = field(default_factory=asyncio.Event)
    """The page that says so was shown."""
    _taking: bool = False

    @property
    def start_url(self) -> str:
        return f"{self.address}/{self.flow.token}/"

    @property
    def redirect_url(self) -> str:
        return f"{self.address}/{self.flow.token}/created"

    def finish(self, page: Page) -> None:
        self.done = page

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=_REQUEST_MAX)
        app.router.add_get(f"/{self.flow.token}/", self._start)
        app.router.add_get(f"/{self.flow.token}/created", self._created)
        return app

    @web.middleware
    async def _guard(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Answer nobody who came by another name: a stranger's page could have made the browser come."""
        if f"http://{request.host}" != self.address:
            return self._shown(setup_html.error_page(_ELSEWHERE), 421)
        try:
            answer = await handler(request)
        except web.HTTPNotFound:
            answer = self._shown(setup_html.error_page(_NOWHERE), 404)
        except web.HTTPMethodNotAllowed:
            answer = self._shown(setup_html.error_page(_NOWHERE), 405)
        answer.headers.update(setup_html.headers(self.flow.site))
        return answer

    async def _start(self, request: web.Request) -> web.Response:
        del request
        flow = self.flow
        if self.done is not None:
            self.seen.set()
            return self._shown(self.done)
        if self.outcome.done() and self.outcome.exception() is None:
            taken = self.outcome.result()
            page = setup_html.install_page(taken.name, taken.install_url, taken.account)
            return self._shown(page)
        manifest = flow.wish.manifest(flow.site, self.redirect_url)
        form_url = flow.site.form_url(flow.wish.org, flow.state)
        return self._shown(setup_html.form_page(form_url, manifest, flow.wish, flow.site))

    async def _created(self, request: web.Request) -> web.Response:
        """Take what GitHub sent the browser back with. A second time nothing is taken."""
        if not hmac.compare_digest(
            request.query.get("state", "").encode(), self.flow.state.encode()
        ):
            self.flow.say(f"{_STRANGER.what}: {_STRANGER.why}. Nothing was changed; still waiting.")
            return self._shown(setup_html.error_page(_STRANGER, self.start_url), 403)
        try:
            code = read_pasted(request.query.get("code", "")).code
        except BadInput:
            return self._shown(setup_html.error_page(_NO_CODE, self.start_url), 400)
        error = await self._take_over(code)
        if error is not None:
            return self._shown(setup_html.error_page(error), 502)
        # The code leaves the address, and the page can be loaded again.
        return web.Response(status=303, headers={"Location": self.start_url})

    async def _take_over(self, code: str) -> RemudaError | None:
        """Take the App over, once however often the page is loaded; return what went wrong."""
        if self._taking:
            await asyncio.wait([self.outcome])
        else:
            self._taking = True
            try:
                self.outcome.set_result(await self.flow.take_over(code))
            except RemudaError as error:
                self.outcome.set_exception(error)
        failed = self.outcome.exception()
        return failed if isinstance(failed, RemudaError) else None

    def _shown(self, page: Page, status: int = 200) -> web.Response:
        return web.Response(
            status=status,
            text=page.html(),
            content_type="text/html",
            headers=setup_html.headers(self.flow.site),
        )


@asynccontextmanager
async def serving_pages(flow: Flow, port: int) -> AsyncIterator[SetupPages]:
    """Serve for as long as the block lasts. Raises CannotListen before anything else begins."""
    pages = SetupPages(flow)
    runner = web.AppRunner(
        pages.application(),
        access_log=None,
        shutdown_timeout=_SHUTDOWN_S,
        handler_cancellation=False,  # a page that is closed must not stop an App from being kept
    )
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, HOST, port).start()
        except OSError as error:
            raise CannotListen(
                f"The page cannot be served on {HOST}:{port}",
                why=error.strerror or type(error).__name__,
                fix="Choose another port with --port; 0 takes any that is free",
            ) from None
        pages.address = f"http://{HOST}:{runner.addresses[0][1]}"
        yield pages
    finally:
        await runner.cleanup()


_STRANGER: Final = BadInput(
    "What came back is not the answer to what was sent",
    why="its state is another one: an old page, or somebody else's",
    fix="Begin again from the address that the terminal shows",
)
_NO_CODE: Final = BadInput(
    "GitHub sent no code along",
    why="the App was not made, or the address was cut",
    fix="Begin again from the address that the terminal shows",
)
_ELSEWHERE: Final = BadInput(
    "This page is not here",
    why="it was asked for under another name than its own",
    fix="Open the address that the terminal shows",
)
_NOWHERE: Final = BadInput(
    "There is no such page",
    why="the address is not the one that the terminal shows",
    fix="Open that one, with all that stands behind the port",
)
