"""The options of ``remuda agent``, and what they say, read and checked."""

from __future__ import annotations

import ipaddress
import math
import os
import re
import socket
import sys
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from remuda.agent.decide.capacity import HostOffer
from remuda.agent.decide.disk import DiskMarks
from remuda.agent.decide.garbage import GarbagePolicy
from remuda.agent.decide.node_shown import check_labels
from remuda.agent.facts import address_towards
from remuda.agent.settings import AgentSettings, Deadlines
from remuda.kube.quantity import parse_quantity
from remuda.kube.selectors import check_label_key, check_label_value
from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.cli.logs import LogFormat

_F = TypeVar("_F", bound="Callable[..., Any]")
_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)
_SECONDS_MAX = 86_400.0
_KEPT_MAX_S = 366 * 86_400.0
_MIB = 1024**2
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NODE_NAME_MAX = 253
DATA: Final = Path("data/agent")
DRIVERS: Final = ("auto", "tart", "qemu", "process")
MAC_VMS: Final = 2
"""As many macOS guests as macOS runs at once."""
_OURS: Final = "remuda.dev/"
_MORE_PODS: Final = 10
"""Beside those with VMs: Pods of others that are bound to every Node each take one."""


class Seconds(click.FloatRange):
    """A number of seconds. A range alone would let ``nan`` through: it is below nothing."""

    def __init__(self, least: float = 0.0, most: float = _SECONDS_MAX) -> None:
        super().__init__(min=least, max=most)

    def convert(
        self, value: float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value} is not a number of seconds.", param, ctx)
        return seconds


def _option(name: str, *, kind: Any = None, **more: Any) -> Callable[[_F], _F]:  # noqa: ANN401 - click's own
    """Make an option that can come from the environment too, as all of them do."""
    variable = "REMUDA_" + name.removeprefix("--").upper().replace("-", "_")
    return click.option(name, type=kind, envvar=variable, show_envvar=True, **more)


def _seconds(name: str, default: float, text: str, least: float = 0.1) -> Callable[[_F], _F]:
    kind = Seconds(least)
    return _option(
        name, kind=kind, default=default, show_default=True, metavar="SECONDS", help=text
    )


def _ratio(name: str, default: float, text: str) -> Callable[[_F], _F]:
    kind = click.FloatRange(min=0, max=1, min_open=True)
    return _option(name, kind=kind, default=default, show_default=True, metavar="RATIO", help=text)


_MARKS = DiskMarks()
_GARBAGE = GarbagePolicy()
_DEADLINES = {field.name: field.default for field in fields(Deadlines)}
_HOST = (
    _option("--node-name", help="The Node's name. Default: this host's name, in small letters."),
    _option(
        "--fleet", default="", help="The fleet that this host belongs to: pools name it. Needed."
    ),
    _option(
        "--kubeconfig",
        kind=_FILE,
        help="How to reach the API server, as system:node:NAME. Default: what kubectl would use.",
    ),
    _option(
        "--dispatch-url",
        default="",
        help="Where dispatch is, such as http://dispatch:8080. Needed.",
    ),
    _option(
        "--data",
        kind=_FOLDER,
        default=DATA,
        show_default=True,
        help="Directory of records, mailboxes, logs and certificates. One agent per directory.",
    ),
    _option(
        "--driver",
        kind=click.Choice(DRIVERS),
        default="auto",
        show_default=True,
        help="What runs the VMs. auto: tart on macOS, qemu on Linux. process is without isolation: for demonstrations.",
    ),
    _option(
        "--label",
        multiple=True,
        metavar="KEY=VALUE",
        help="One more label of the Node. May be repeated; in the variable, separated by blanks.",
    ),
    _option("--provider-id", default="", help="The Node's provider ID. It can never be changed."),
    _option(
        "--address",
        default="",
        help="This host's IP address as the API server reaches it. Default: the one that faces the API server.",
    ),
)
_OFFER = (
    _option(
        "--cpus",
        kind=click.IntRange(min=1),
        help="CPUs that VMs may take in all. Default: all of this host's.",
    ),
    _option(
        "--memory",
        metavar="QUANTITY",
        help="Memory that VMs may take in all, such as 14Gi. Default: this host's but for an eighth, at least 2 GiB.",
    ),
    _option(
        "--vms",
        kind=click.IntRange(min=0, max=1000),
        help="VMs at once. Default: 2 with tart, as macOS allows; else one per CPU.",
    ),
)
_SERVED = (
    _option(
        "--listen",
        default="127.0.0.1:9464",
        show_default=True,
        metavar="HOST:PORT",
        help="Where to serve /metrics, /healthz and /readyz. :9464 serves on every address, port 0 on any free port.",
    ),
    _option(
        "--kubelet-listen",
        default=":10250",
        show_default=True,
        metavar="HOST:PORT",
        help="Where the API server finds logs, for kubectl logs. Needs --kubelet-client-ca.",
    ),
    _option(
        "--kubelet-client-ca",
        kind=_FILE,
        help="Who signs the API server's certificate for kubelets. Without it no logs are served.",
    ),
)
_TIMES = (
    _option(
        "--deadline",
        multiple=True,
        metavar="CALL=SECONDS",
        help="How long a call of the driver may take before it is killed; pull_idle is time without progress."
        f" Defaults: {' '.join(f'{n}={v:g}' for n, v in _DEADLINES.items())}."
        " May be repeated; in the variable, separated by blanks.",
    ),
    _seconds("--ready-timeout", 600.0, "How long a guest may take from boot until it is ready."),
    _seconds("--stop-grace", 10.0, "How long a guest that is told to stop may take.", 0.0),
    _seconds("--look-interval", 5.0, "How often a running VM is looked at, beside its mailbox."),
    _seconds("--resync", 300.0, "How often every Pod is looked at although nothing was heard."),
    _seconds("--heartbeat", 10.0, "How often the Node's Lease is renewed."),
    _seconds("--status-interval", 30.0, "How often the Node's status is written unchanged."),
)
_ROOM = (
    _option(
        "--disable-vm-gc",
        is_flag=True,
        help="Collect no garbage at all, not even when the disk is full: for hosts on which people build images.",
    ),
    _seconds("--gc-interval", 300.0, "How often garbage is collected."),
    _option(
        "--keep-images",
        kind=Seconds(most=_KEPT_MAX_S),
        default=_GARBAGE.golden_kept.total_seconds(),
        show_default=True,
        metavar="SECONDS",
        help="How long an image that nobody wants stays.",
    ),
    _seconds(
        "--orphan-grace",
        _GARBAGE.running_grace.total_seconds(),
        "How long a running VM without a job stays when its Pod is gone.",
        0.0,
    ),
    _ratio("--disk-low", _MARKS.host_free_low, "Less of the disk free than this is DiskPressure."),
    _ratio("--disk-reclaim", _MARKS.reclaim_below, "Less than this, and unused images go."),
    _option(
        "--disk-reserve",
        default="10Gi",
        show_default=True,
        metavar="QUANTITY",
        help="What must stay free beside an image that is fetched.",
    ),
)
_DRIVER = (
    _option(
        "--tart-program",
        default="tart",
        show_default=True,
        help="Tart, by its path or by its name in PATH.",
    ),
    _option(
        "--tart-network",
        kind=click.Choice(["nat", "softnet"]),
        default="nat",
        show_default=True,
        help="How Tart's guests reach the network. softnet keeps them from one another and from the host.",
    ),
    _option(
        "--insecure-registry",
        is_flag=True,
        help="Have Tart fetch images over plain HTTP: for a registry on this host, or in a test.",
    ),
    _option(
        "--images",
        kind=_FOLDER,
        help="Directory of the images of qemu and process. Default: images in the data directory.",
    ),
    _option(
        "--qemu-accel",
        kind=click.Choice(["auto", "kvm", "tcg"]),
        default="auto",
        show_default=True,
        help="What runs QEMU's guests. auto: KVM where it truly works, else TCG.",
    ),
    _option(
        "--qemu-network",
        kind=click.Choice(["none", "restricted", "open"]),
        default="restricted",
        show_default=True,
        help="What QEMU's guests reach. restricted: nothing of this host and no sibling. open is without isolation.",
    ),
)
_LOG = (
    _option(
        "--log-format",
        kind=click.Choice(["text", "json"]),
        help="How to log, to standard error. Default: text on a terminal, else JSON.",
    ),
)


def agent_options(command: _F) -> _F:
    """Give a command all options of the agent, in the order of its help."""
    for option in reversed((*_HOST, *_OFFER, *_SERVED, *_TIMES, *_ROOM, *_DRIVER, *_LOG)):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the command was told, one field per option."""

    node_name: str | None
    fleet: str
    kubeconfig: Path | None
    dispatch_url: str
    data: Path
    driver: str
    label: tuple[str, ...]
    provider_id: str
    address: str
    cpus: int | None
    memory: str | None
    vms: int | None
    listen: str
    kubelet_listen: str
    kubelet_client_ca: Path | None
    deadline: tuple[str, ...]
    ready_timeout: float
    stop_grace: float
    look_interval: float
    resync: float
    heartbeat: float
    status_interval: float
    disable_vm_gc: bool
    gc_interval: float
    keep_images: float
    orphan_grace: float
    disk_low: float
    disk_reclaim: float
    disk_reserve: str
    tart_program: str
    tart_network: str
    insecure_registry: bool
    images: Path | None
    qemu_accel: str
    qemu_network: str
    log_format: LogFormat | None

    @property
    def runs(self) -> str:
        """Which driver, once ``auto`` is settled."""
        if self.driver != "auto":
            return self.driver
        return "tart" if sys.platform == "darwin" else "qemu"


def agent_settings(told: Told, server: str) -> AgentSettings:
    """Read and check what the agent's parts are told. ``server``: the API server's URL. Raises BadInput."""
    return AgentSettings(
        node=_node_name(told.node_name),
        data=told.data.absolute(),
        offer=_offer(told),
        fleet=_fleet(told.fleet),
        provider_id=told.provider_id,
        labels=_labels(told.label),
        address=_address(told.address, server),
        heartbeat_s=told.heartbeat,
        lease_duration_s=max(4, math.ceil(told.heartbeat * 4)),
        status_s=told.status_interval,
        look_s=told.look_interval,
        stop_grace_s=told.stop_grace,
        ready_timeout_s=told.ready_timeout,
        garbage_s=told.gc_interval,
        garbage=GarbagePolicy(
            enabled=not told.disable_vm_gc,
            golden_kept=timedelta(seconds=told.keep_images),
            running_grace=timedelta(seconds=told.orphan_grace),
            # What is stopped already needs no longer than what runs.
            stopped_grace=min(_GARBAGE.stopped_grace, timedelta(seconds=told.orphan_grace)),
        ),
        disk=_marks(told),
        resync=timedelta(seconds=told.resync),
    )


def deadlines(texts: tuple[str, ...]) -> Deadlines:
    """Read CALL=SECONDS, each over its default."""
    found: dict[str, float] = {}
    for text in texts:
        call, _, number = text.partition("=")
        try:
            seconds = float(number)
        except ValueError:
            seconds = math.nan
        if call not in _DEADLINES or not 0 < seconds <= _SECONDS_MAX:
            raise BadInput(
                f"The deadline {text!r} cannot be used",
                why=f"it is not CALL=SECONDS with a call of {', '.join(_DEADLINES)} and at most a day",
                fix="Write it like clone=300",
            )
        found[call] = seconds
    return Deadlines(**found)


def _node_name(told: str | None) -> str:
    name = told or socket.gethostname().lower()
    if len(name) > _NODE_NAME_MAX or not _NODE_NAME.fullmatch(name):
        raise BadInput(
            f"The Node cannot be called {name!r}",
            why="a name has small letters, digits, - and ., and begins and ends with a letter or digit",
            fix="Give another with --node-name; the kubeconfig's user is system:node: and that name",
        )
    return name


def _fleet(told: str) -> str:
    if not told:
        raise BadInput(
            "The fleet has no name", why="--fleet is not given", fix="Give the one that pools name"
        )
    return _label("fleet", told)


def _labels(texts: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or key.startswith(_OURS):
            why = f"labels below {_OURS} are the agent's own" if equals else "it is not KEY=VALUE"
            raise BadInput(
                f"The label {text!r} cannot be used", why=why, fix="Write it like rack=3"
            )
        found[key] = _label(key, value)
    check_labels(found)
    return found


def _label(key: str, value: str) -> str:
    try:
        check_label_key(key)
        check_label_value(key, value)
    except ValueError as error:
        why = str(error).rpartition('": ')[2]
        raise BadInput(
            f"The label {key}={value} cannot be used", why=why, fix="Write it like rack=3"
        ) from None
    return value


def _offer(told: Told) -> HostOffer:
    cpus = told.cpus or os.cpu_count() or 1
    whole_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MIB
    memory_mib = whole_mib - max(2048, whole_mib // 8)
    if told.memory is not None:
        memory_mib = _bytes("--memory", told.memory) // _MIB
    vms = told.vms if told.vms is not None else MAC_VMS if told.runs == "tart" else cpus
    if memory_mib < 1:
        raise BadInput(
            "This host has no memory for VMs",
            why="two GiB are kept for the host itself, or --memory is less than one MiB",
            fix="Say with --memory how much VMs may take",
        )
    return HostOffer(cpus=cpus, memory_mib=memory_mib, vms=vms, pods=vms + _MORE_PODS)


def _bytes(option: str, text: str) -> int:
    try:
        amount = parse_quantity(text)
    except BadInput as error:
        raise BadInput(f"{option} {text!r} cannot be used", why=error.why, fix=error.fix) from None
    if amount.amount < 0:
        raise BadInput(
            f"{option} {text!r} cannot be used", why="it is below nothing", fix="Write it like 14Gi"
        )
    return amount.ceil()


def _marks(told: Told) -> DiskMarks:
    low, reclaim = told.disk_low, told.disk_reclaim
    return DiskMarks(
        host_free_low=low,
        host_free_ok=min(1.0, low + _MARKS.host_free_ok - _MARKS.host_free_low),
        reclaim_below=reclaim,
        reclaim_until=min(1.0, reclaim + _MARKS.reclaim_until - _MARKS.reclaim_below),
        keep_free_bytes=_bytes("--disk-reserve", told.disk_reserve),
    )


def _address(told: str, server: str) -> str:
    if not told:
        return address_towards(server)
    try:
        return str(ipaddress.ip_address(told))
    except ValueError:
        raise BadInput(
            f"The address {told!r} cannot be used",
            why="it is no IP address",
            fix="Give the address at which the API server reaches this host, or leave --address out",
        ) from None
