"""``remuda server``: dispatch. Serves until told to stop; its commands look after its database and its tokens."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click
import structlog
import uvloop
from prometheus_client import disable_created_metrics

from remuda.adapters.github import GithubSettings
from remuda.adapters.github.app_key import AppKey
from remuda.adapters.github.settings_file import with_file
from remuda.adapters.kube_client import kubeconfig
from remuda.adapters.postgres.api_tokens import PostgresApiTokens
from remuda.adapters.postgres.migrate import migrate as run_migrations
from remuda.adapters.postgres.migrate import pending
from remuda.adapters.postgres.pool import URL_VARIABLE, DatabaseSettings, open_database
from remuda.adapters.postgres.source import join_source
from remuda.adapters.status_server import Listen
from remuda.adapters.system import SystemClock, SystemIds
from remuda.cli.helps import PLAIN_EXITS
from remuda.cli.listing import How, output_option, show_rows
from remuda.cli.logs import set_up_logs
from remuda.cli.progress import Screen, shown
from remuda.cli.serving import ServerSettings, serve
from remuda.cli.token_listing import TOKENS, row_of
from remuda.dispatch import tokens as token_work
from remuda.dispatch.settings import DispatchSettings, FileSettings
from remuda.kube.quantity import parse_quantity
from remuda.model.errors import BadInput
from remuda.model.job import Os, Size
from remuda.model.job_files import FILES_MAX_BYTES
from remuda.ports.api_tokens import Role

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.adapters.postgres.source import Source
    from remuda.cli.logs import LogFormat

log = structlog.get_logger(__name__)

_FILE = click.Path(path_type=Path, dir_okay=False)
_LIMIT = re.compile(r"(linux|darwin)=(\d{1,6}):(\S+)")
_MIB = 1024 * 1024
_MEMORY_MAX_MIB = 1_000_000_000
_FILES_TOTAL_MAX = 2**50
_DATA = Path("data/postgres")


def _named_before() -> Path:
    """Return the directory that was named before the command, so that it means the same in either place."""
    above = click.get_current_context().parent
    while above is not None and "data" not in above.params:
        above = above.parent
    named = None if above is None else above.params["data"]
    return named if isinstance(named, Path) else _DATA


_data = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=_named_before,
    show_default=str(_DATA),
    help=f"Directory of the embedded PostgreSQL. Not used when {URL_VARIABLE} names a server.",
)


@click.group(
    invoke_without_command=True,
    epilog="Exit codes: 0 told to stop, 1 failed, 2 a setting cannot be used.",
)
@click.option(
    "--namespace",
    envvar="REMUDA_NAMESPACE",
    show_envvar=True,
    help="The namespace whose runners are served. Default: the kubeconfig's, or the Pod's own.",
)
@click.option(
    "--kubeconfig",
    "kubeconfig_file",
    type=_FILE,
    envvar="REMUDA_KUBECONFIG",
    show_envvar=True,
    help="How to reach the API server. Default: what kubectl would use, else the Pod's own ServiceAccount.",
)
@click.option(
    "--listen",
    envvar="REMUDA_LISTEN",
    show_envvar=True,
    default="127.0.0.1:8080",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to serve. :8080 serves on every address, port 0 on any free port.",
)
@_data
@click.option(
    "--controller",
    "controller",
    envvar="REMUDA_CONTROLLER_ACCOUNT",
    show_envvar=True,
    default="remuda-controller",
    show_default=True,
    metavar="[NAMESPACE/]NAME",
    help="The operator's ServiceAccount: it alone may say that a runner stopped. Without a namespace: the runners'.",
)
@click.option(
    "--default-limit",
    "default_limits",
    multiple=True,
    envvar="REMUDA_DEFAULT_LIMIT",
    show_envvar=True,
    default=("linux=64:128Gi", "darwin=24:48Gi"),
    show_default=True,
    metavar="OS=VCPUS:MEMORY",
    help="What a tenant may use at once when it is first seen. May be repeated; in the variable, separated by blanks.",
)
@click.option(
    "--files-max",
    envvar="REMUDA_FILES_MAX",
    show_envvar=True,
    default="64Mi",
    show_default=True,
    metavar="SIZE",
    help="The largest upload of remuda run, packed. At most 64Mi; 0 takes none.",
)
@click.option(
    "--files-total",
    envvar="REMUDA_FILES_TOTAL",
    show_envvar=True,
    default="4Gi",
    show_default=True,
    metavar="SIZE",
    help="What all files that go with jobs and come back may have in the database together.",
)
@click.option(
    "--migrate/--no-migrate",
    "wants_migration",
    default=True,
    show_default=True,
    envvar="REMUDA_MIGRATE",
    show_envvar=True,
    help="Bring the database's schema up to date at the start, or refuse to start if it is behind.",
)
@click.option(
    "--github",
    "github_file",
    type=_FILE,
    envvar="REMUDA_GITHUB_FILE",
    show_envvar=True,
    help="Settings of GitHub as remuda setup github writes them. REMUDA_GITHUB_ variables go before what is in it.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    envvar="REMUDA_LOG_FORMAT",
    show_envvar=True,
    help="How to log, to standard error. Default: text on a terminal, else JSON.",
)
@click.pass_context
def server(  # noqa: PLR0913 - one parameter per option is how click works
    ctx: click.Context,
    *,
    namespace: str | None,
    kubeconfig_file: Path | None,
    listen: str,
    data: Path,
    controller: str,
    default_limits: tuple[str, ...],
    files_max: str,
    files_total: str,
    wants_migration: bool,
    github_file: Path | None,
    log_format: LogFormat | None,
) -> None:
    """
    Dispatch jobs to runners: webhooks, claims, job configs, recovery, the API.

    It runs until SIGTERM or SIGINT. Start as many as you like on one database: they share the work and keep nothing of
    their own. GitHub is configured by remuda setup github (--github) or by REMUDA_GITHUB_ variables; without either it
    serves local jobs alone.

    \b
    Examples:
      remuda server --kubeconfig ./data/kubeconfig --namespace default --data ./postgres
      REMUDA_DATABASE_URL=postgresql://remuda:…@db/remuda remuda server --namespace ci --listen :8080
      remuda server --github ./fleet/github/settings.env
      remuda server tokens create --role operate alice
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    if ctx.invoked_subcommand is not None:
        return
    set_up_logs(log_format)
    disable_created_metrics()  # type: ignore[no-untyped-call] # a second series per counter that nobody reads
    try:
        connection = kubeconfig.discover(kubeconfig_file)
        account_namespace, account = _account(controller)
        DatabaseSettings.from_env(os.environ)  # only to say now what cannot be used
        settings = ServerSettings(
            connection=connection,
            dispatch=DispatchSettings(
                namespace=namespace or connection.namespace,
                controller=account,
                controller_namespace=account_namespace,
                limits=_limits(default_limits),
                files=_files(files_max, files_total),
            ),
            listen=Listen.parse(listen),
            data=data.absolute(),
            env=os.environ,
            github=_github(github_file),
            migrate=wants_migration,
        )
    except BadInput as error:
        raise click.UsageError(f"{error.what}\n  why: {error.why}\n  fix: {error.fix}") from None
    # uvloop takes less of the CPU for each poll, but cannot start a process as another user, as the embedded
    # PostgreSQL is.
    run = uvloop.run if os.environ.get(URL_VARIABLE) else asyncio.run
    run(_until_told_to_stop(settings))


async def _until_told_to_stop(settings: ServerSettings) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, stop)
    log.info("stopped")


def _files(largest: str, total: str) -> FileSettings:
    sizes = []
    for name, text in (("files-max", largest), ("files-total", total)):
        size = parse_quantity(text).ceil()
        bound = FILES_MAX_BYTES if name == "files-max" else _FILES_TOTAL_MAX
        if not 0 <= size <= bound:
            raise BadInput(
                f"The size {text!r} of --{name} cannot be used",
                why="it is less than 0, or more than can be carried",
                fix="Write it like 64Mi, which is the most that an upload may have",
            )
        sizes.append(size)
    return FileSettings(bytes_max=sizes[0], total_max_bytes=sizes[1])


def _limits(texts: tuple[str, ...]) -> dict[Os, Size]:
    return {**DispatchSettings(namespace="").limits, **dict(map(_limit, texts))}


def _limit(text: str) -> tuple[Os, Size]:
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise BadInput(
            f"The default limit {text!r} cannot be used",
            why="it is not OS=VCPUS:MEMORY with linux or darwin",
            fix="Write it like linux=64:128Gi",
        )
    memory_mib = parse_quantity(match[3]).ceil() // _MIB
    if not 1 <= memory_mib <= _MEMORY_MAX_MIB:
        raise BadInput(
            f"The default limit {text!r} cannot be used",
            why="its memory is less than 1 MiB or more than any fleet has",
            fix="Write it like linux=64:128Gi",
        )
    return Os(match[1]), Size(int(match[2]), memory_mib)


def _account(text: str) -> tuple[str, str]:
    """Read the operator's account: its namespace, empty for the runners', and its name."""
    namespace, _, name = text.rpartition("/")
    if not name or "/" in namespace:
        raise BadInput(
            f"The operator's account {text!r} cannot be used",
            why="it is neither NAME nor NAMESPACE/NAME",
            fix="Write it like remuda/remuda-controller",
        )
    return namespace, name


def _github(file: Path | None) -> GithubSettings | None:
    """Return what is set about GitHub. Its key is read here once already: a wrong one is a setting, not a failure."""
    env = os.environ if file is None else with_file(os.environ, file)
    github = GithubSettings.from_env(env)
    if github is not None:
        AppKey(github.app_id, github.private_key, SystemClock())
    return github


@server.command(
    epilog="Exit codes: 0 up to date, 1 failed (with --check: a migration is pending), 2 usage."
)
@_data
@click.option("--check", is_flag=True, help="Change nothing; exit 1 if a migration is pending.")
def migrate(data: Path, *, check: bool) -> None:
    """
    Bring the database's schema up to date.

    It may be run by several at once: one does the work, the others find it done.

    \b
    Examples:
      remuda server migrate --data ./data/postgres
      REMUDA_DATABASE_URL=postgresql://remuda:…@db/remuda remuda server migrate --check
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    left = asyncio.run(_migrate(data.absolute(), check=check))
    if left:
        raise SystemExit(1)


async def _migrate(data: Path, *, check: bool) -> bool:
    """Migrate, or only look; return whether anything is still to be done."""
    words = "looking at the database" if check else "bringing the database up to date"
    async with (
        shown(Screen(sys.stderr), SystemClock(), lambda: (words, None)),
        join_source(os.environ, data) as source,
    ):
        if check:
            steps = await pending(source.settings)
            told = "is pending"
        else:
            steps = await run_migrations(source.settings)
            told = "was run"
    for step in steps:
        click.echo(f"{step} {told}")
    if not steps:
        click.echo("The database is up to date.")
    return check and bool(steps)


# --- Tokens -----------------------------------------------------------------------------------------------------------


@server.group(epilog=PLAIN_EXITS)
def tokens() -> None:
    """
    Make, list and revoke the tokens with which people and tools use the API.

    It asks the database, not a server: --data or REMUDA_DATABASE_URL says which.

    \b
    Examples:
      remuda server tokens create --role operate alice
      remuda server tokens list
      remuda server tokens revoke alice
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped


@tokens.command(epilog=PLAIN_EXITS)
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default=Role.READ.value,
    show_default=True,
    help="read sees everything; operate also posts and cancels jobs and sets limits.",
)
@click.option(
    "--days",
    type=click.IntRange(min=1, max=3650),
    help="How long it is good for. Default: for ever.",
)
@_data
def create(name: str, *, role: str, days: int | None, data: Path) -> None:
    """
    Make a token and print it. It is shown only now; what is kept is a hash.

    \b
    Examples:
      remuda server tokens create --role operate alice
      remuda server tokens create --days 30 dashboard > token
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    lifetime = None if days is None else timedelta(days=days)
    asyncio.run(_create(data.absolute(), name, Role(role), lifetime))


async def _create(data: Path, name: str, role: Role, lifetime: timedelta | None) -> None:
    async with _kept_tokens(data) as kept:
        made = await token_work.create(
            kept, name, role, ids=SystemIds(), clock=SystemClock(), lifetime=lifetime
        )
    click.echo(made.text)


@tokens.command("list", epilog=PLAIN_EXITS)
@_data
@output_option
def list_tokens(data: Path, *, output: str) -> None:
    """
    List the tokens by name, with what they may do. Their texts are kept nowhere.

    \b
    Examples:
      remuda server tokens list
      remuda server tokens list -o json
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    asyncio.run(_list(data.absolute(), output))


async def _list(data: Path, output: str) -> None:
    async with _kept_tokens(data) as kept:
        found = [row_of(token) for token in await kept.all()]
    show_rows(TOKENS, found, How(output=output), SystemClock())


@tokens.command(epilog=PLAIN_EXITS)
@click.argument("name")
@_data
def revoke(name: str, *, data: Path) -> None:
    """
    End a token. Replicas that have just seen it believe it for a minute at most.

    \b
    Example:
      remuda server tokens revoke alice
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    asyncio.run(_revoke(data.absolute(), name))


async def _revoke(data: Path, name: str) -> None:
    async with _kept_tokens(data) as kept:
        await token_work.revoke(kept, name)
    click.echo(f"The token {name} is revoked.")


@asynccontextmanager
async def _kept_tokens(data: Path) -> AsyncIterator[PostgresApiTokens]:
    async with join_source(os.environ, data) as source:
        await _current(source)
        async with open_database(source.settings) as database:
            yield PostgresApiTokens(database, SystemClock())


async def _current(source: Source) -> None:
    """Bring an embedded database up to date; leave one of others to ``remuda server migrate``."""
    if source.embedded is not None:
        await run_migrations(source.settings)
