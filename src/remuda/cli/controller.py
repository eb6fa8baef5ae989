"""``remuda controller``: run the RunnerPool operator until told to stop."""

from __future__ import annotations

import asyncio
import math
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import structlog
from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics

from remuda.adapters.dispatch_client import DispatchClientSettings, dispatch_client
from remuda.adapters.kube_client import HttpWire, KubeClient, kubeconfig
from remuda.adapters.status_server import Listen, Ready, Status, serving_status
from remuda.adapters.system import SystemClock, SystemIds
from remuda.cli.logs import set_up_logs
from remuda.cli.stopping import until_told_to_stop
from remuda.control.health import Health
from remuda.control.preflight import Preflight
from remuda.kube.runner_pod import PodSettings
from remuda.model.errors import BadInput
from remuda.pools.metrics import PoolMetrics
from remuda.pools.operator import PoolOperator
from remuda.pools.permissions import rights
from remuda.pools.settings import PoolSettings

if TYPE_CHECKING:
    from remuda.adapters.dispatch_client import DispatchClient
    from remuda.adapters.kube_client import Connection
    from remuda.cli.logs import LogFormat

log = structlog.get_logger(__name__)

_FILE = click.Path(path_type=Path, dir_okay=False)
_SECONDS_MAX = 86_400.0


class _Seconds(click.FloatRange):
    """A number of seconds. A range alone would let ``nan`` through: it is below nothing."""

    def __init__(self, min: float = 0.0) -> None:  # noqa: A002 - click's own word
        super().__init__(min=min, max=_SECONDS_MAX)

    def convert(
        self, value: float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value} is not a number of seconds.", param, ctx)
        return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """Everything the command was told, read and checked."""

    connection: Connection
    pools: PoolSettings
    listen: Listen
    dispatch: DispatchClientSettings | None


@click.command(
    "controller",
    epilog="Exit codes: 0 told to stop, 1 failed, 2 a setting cannot be used.",
)
@click.option(
    "--namespace",
    envvar="REMUDA_NAMESPACE",
    show_envvar=True,
    help="The namespace whose RunnerPools are served. Default: the kubeconfig's, or the Pod's own.",
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
    "--dispatch-url",
    envvar="REMUDA_DISPATCH_URL",
    show_envvar=True,
    default="",
    help="Where dispatch is. Runners poll it, the autoscaler asks it, ends of runners are reported to it.",
)
@click.option(
    "--dispatch-token-file",
    type=_FILE,
    envvar="REMUDA_DISPATCH_TOKEN_FILE",
    show_envvar=True,
    help="File with the token shown to dispatch. Read for every call, so it may be replaced at any time.",
)
@click.option(
    "--listen",
    envvar="REMUDA_LISTEN",
    show_envvar=True,
    default="127.0.0.1:9464",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to serve /metrics, /healthz and /readyz. :9464 serves on every address, port 0 on any free port.",
)
@click.option(
    "--identity",
    envvar="REMUDA_IDENTITY",
    show_envvar=True,
    help="Who this replica is in the election. Never use one twice. Default: the host's name and something random.",
)
@click.option(
    "--poller-image",
    envvar="REMUDA_POLLER_IMAGE",
    show_envvar=True,
    default="",
    help="Image of the init container that waits for a job, in runners that are ordinary Pods.",
)
@click.option(
    "--vm-runtime-class",
    "vm_runtime_classes",
    multiple=True,
    envvar="REMUDA_VM_RUNTIME_CLASS",
    show_envvar=True,
    default=("kata*",),
    show_default=True,
    metavar="PATTERN",
    help="RuntimeClasses that put a VM around the Pod; only those may run Docker. May be repeated; in the variable,"
    " separated by blanks.",
)
@click.option(
    "--lease-duration",
    type=click.IntRange(min=2),
    envvar="REMUDA_LEASE_DURATION",
    show_envvar=True,
    default=15,
    show_default=True,
    metavar="SECONDS",
    help="How long a standby waits without seeing a renewal before it takes over.",
)
@click.option(
    "--renew-deadline",
    type=float,
    envvar="REMUDA_RENEW_DEADLINE",
    show_envvar=True,
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long after its last renewal a leader stops acting. At least 1 s below --lease-duration.",
)
@click.option(
    "--lease-retry",
    type=float,
    envvar="REMUDA_LEASE_RETRY",
    show_envvar=True,
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often the leader renews, and a standby looks.",
)
@click.option(
    "--sweep-interval",
    type=_Seconds(min=1.0),
    envvar="REMUDA_SWEEP_INTERVAL",
    show_envvar=True,
    default=45.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look for ServiceAccounts without a Pod and runners without a pool.",
)
@click.option(
    "--orphan-grace",
    type=_Seconds(min=5.0),
    envvar="REMUDA_ORPHAN_GRACE",
    show_envvar=True,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long such an orphan is left alone before it is removed.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    envvar="REMUDA_LOG_FORMAT",
    show_envvar=True,
    help="How to log, to standard error. Default: text on a terminal, else JSON.",
)
def controller(  # noqa: PLR0913 - one parameter per option is how click works
    *,
    namespace: str | None,
    kubeconfig_file: Path | None,
    dispatch_url: str,
    dispatch_token_file: Path | None,
    listen: str,
    identity: str | None,
    poller_image: str,
    vm_runtime_classes: tuple[str, ...],
    lease_duration: int,
    renew_deadline: float,
    lease_retry: float,
    sweep_interval: float,
    orphan_grace: float,
    log_format: LogFormat | None,
) -> None:
    """
    Run the RunnerPool operator: replicas, autoscaling, image rolls, drains and reaping.

    It runs until SIGTERM or SIGINT. Start two or more: one leads, the others take over when it is gone.

    \b
    Examples:
      remuda controller --namespace ci
      remuda controller --kubeconfig ./data/kubeconfig --namespace default --listen 127.0.0.1:0
      remuda controller --namespace ci --dispatch-url http://remuda-server.remuda \\
          --dispatch-token-file /var/run/secrets/remuda/token --listen :9464
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    set_up_logs(log_format)
    disable_created_metrics()  # type: ignore[no-untyped-call] # a second series per counter that nobody reads
    try:
        connection = kubeconfig.discover(kubeconfig_file)
        pools = PoolSettings(
            namespace=namespace or connection.namespace,
            identity=identity or f"{socket.gethostname()}_{SystemIds().suffix(8)}",
            pod=PodSettings(
                dispatch_url=dispatch_url,
                poller_image=poller_image,
                vm_runtime_classes=vm_runtime_classes,
            ),
            lease_duration_s=lease_duration,
            renew_deadline_s=renew_deadline,
            election_retry_s=lease_retry,
            sweep_s=sweep_interval,
            orphan_grace_s=orphan_grace,
        )
        pools.election()  # refuses times that would let two lead at once
        settings = _Settings(
            connection=connection,
            pools=pools,
            listen=Listen.parse(listen),
            dispatch=_dispatch(dispatch_url, dispatch_token_file),
        )
    except BadInput as error:
        raise click.UsageError(f"{error.what}\n  why: {error.why}\n  fix: {error.fix}") from None
    if asyncio.run(until_told_to_stop(_run(settings))):
        log.info("stopped")


def _dispatch(url: str, token_file: Path | None) -> DispatchClientSettings | None:
    if url:
        return DispatchClientSettings(base_url=url, token_file=token_file)
    if token_file is None:
        return None
    raise BadInput(
        "The token file for dispatch cannot be used",
        why="it is not said where dispatch is",
        fix="Give --dispatch-url too",
    )


async def _run(settings: _Settings) -> None:
    clock, ids = SystemClock(), SystemIds()
    metrics = PoolMetrics(CollectorRegistry())
    ProcessCollector(registry=metrics.registry)
    health = Health(clock)
    async with AsyncExitStack() as stack:
        # The election has connections of its own: a burst of work must not starve a renewal.
        kube, election_kube = (_kube(settings.connection, stack) for _ in range(2))
        dispatch: DispatchClient | None = None
        if settings.dispatch is not None:
            dispatch = await stack.enter_async_context(dispatch_client(settings.dispatch))
        preflight = Preflight(kube, rights(settings.pools), ids=ids, health=health)
        operator = PoolOperator(
            kube,
            election_kube,
            dispatch,
            settings.pools,
            clock=clock,
            ids=ids,
            metrics=metrics,
            health=health,
        )
        status = Status(
            metrics.registry,
            lambda: health.problems(clock.monotonic()),
            lambda: _ready(preflight, operator),
        )
        address = await stack.enter_async_context(serving_status(settings.listen, status))
        log.info(
            "started",
            namespace=settings.pools.namespace,
            identity=settings.pools.identity,
            server=settings.connection.server,
            dispatch=settings.pools.pod.dispatch_url or "none: the autoscaler holds",
            status=address,
        )
        await preflight.run()
        await operator.run()


def _kube(connection: Connection, stack: AsyncExitStack) -> KubeClient:
    wire = HttpWire(connection)
    stack.push_async_callback(wire.close)
    return KubeClient(wire)


def _ready(preflight: Preflight, operator: PoolOperator) -> Ready:
    if not preflight.done:
        return Ready(ok=False, says=str(preflight.obstacle or "starting"))
    return Ready(*operator.ready())
