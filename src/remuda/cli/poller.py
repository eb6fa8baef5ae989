"""``remuda poller``: the init container of runner Pods on ordinary kubelets."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click
import structlog

from remuda.adapters.mailbox_folder import MailboxFolder
from remuda.adapters.poll_client import PollClient, PollSettings
from remuda.adapters.poller import Poller
from remuda.adapters.system import SystemClock, SystemIds
from remuda.cli.helps import PLAIN_EXITS
from remuda.cli.logs import set_up_logs
from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from remuda.adapters.poller import Outcome
    from remuda.cli.logs import LogFormat

log = structlog.get_logger(__name__)


@click.command(epilog=PLAIN_EXITS)
@click.option(
    "--dispatch-url",
    envvar="REMUDA_DISPATCH_URL",
    required=True,
    show_envvar=True,
    help="Where dispatch is, such as http://remuda-server.remuda.",
)
@click.option(
    "--token-file",
    envvar="REMUDA_TOKEN_FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    show_envvar=True,
    help="The Pod's own token; read for every poll.",
)
@click.option(
    "--mailbox",
    envvar="REMUDA_MAILBOX",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    show_envvar=True,
    help="The folder that the runner reads its job from.",
)
@click.option(
    "--pod", envvar="REMUDA_POD_NAME", required=True, show_envvar=True, help="The Pod's name."
)
@click.option("--pool", envvar="REMUDA_POOL", default="", show_envvar=True, help="For the log.")
@click.option(
    "--wait",
    type=click.FloatRange(1, 30),
    default=25.0,
    show_default=True,
    help="How long dispatch may hold a poll open, in seconds.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    envvar="REMUDA_LOG_FORMAT",
    show_envvar=True,
    help="How to log, to standard error. Default: text on a terminal, else JSON.",
)
def poller(  # noqa: PLR0913 - one parameter for each option
    *,
    dispatch_url: str,
    token_file: Path,
    mailbox: Path,
    pod: str,
    pool: str,
    wait: float,
    log_format: LogFormat | None,
) -> None:
    """
    Wait for a runner's one job and put it into the mailbox.

    It is the init container of runner Pods on ordinary kubelets: the runner begins when it has ended. Exit code 0 means
    that the mailbox holds a job, or a stop because there will be none; with any other the runner must not begin.

    \b
    Examples:
      remuda poller                 in a Pod that the operator made: everything comes from its environment
      remuda poller --dispatch-url http://127.0.0.1:8080 --token-file ./token --mailbox ./mailbox --pod linux-x4k2p
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    set_up_logs(log_format)
    try:
        settings = PollSettings(base_url=dispatch_url, token_file=token_file, wait_s=wait)
    except BadInput as error:
        raise click.UsageError(f"{error.what}\n  why: {error.why}\n  fix: {error.fix}") from None
    log.info("waiting for a job", pod=pod, pool=pool, dispatch=dispatch_url)
    outcome = asyncio.run(_run(settings, MailboxFolder(mailbox), pod))
    log.info("done", outcome=outcome.value)


async def _run(settings: PollSettings, mailbox: MailboxFolder, pod: str) -> Outcome:
    task = asyncio.current_task()
    assert task is not None, "this runs in a task"
    loop = asyncio.get_running_loop()
    for told in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(told, task.cancel)
    client = PollClient(settings)
    clock, ids = SystemClock(), SystemIds()
    asks = Poller(client=client, mailbox=mailbox, pod=pod, clock=clock, ids=ids)
    try:
        return await asks.run()
    except asyncio.CancelledError:
        task.uncancel()  # the Pod is being deleted: its runner has nothing to wait for
        return asks.give_up()
    finally:
        await client.close()
