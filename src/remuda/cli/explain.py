"""``remuda explain``: why a job waits, or why a runner, a pool or a host does what it does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from msgspec.structs import replace

from remuda.cli.changing import kube_of
from remuda.cli.completion import host_names, job_names, names_of, pool_names, runner_names
from remuda.cli.explain_host import explain_host, told
from remuda.cli.finding import api_options, fleet_options
from remuda.cli.helps import EXITS
from remuda.cli.host_changes import read_host, runners_on
from remuda.cli.listing import as_commands, as_yaml
from remuda.cli.tables import plain
from remuda.kube.core import EVENT
from remuda.ports.api import ApiNotFound, Subject
from remuda.ports.kube import KubeError, Query

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from remuda.cli.finding import Where
    from remuda.kube.core import Event
    from remuda.ports.api import Explanation
    from remuda.ports.kube import Kube

_OUTPUT: Final = click.option(
    "-o",
    "--output",
    type=click.Choice(("text", "json", "yaml")),
    default="text",
    show_default=True,
    help="How to print.",
)


@click.group(epilog=EXITS)
def explain() -> None:
    """
    Say why something is as it is: a sentence, what it rests on, and what to do next.

    \b
    Examples:
      remuda explain job JOB              why does it wait?
      remuda explain runner mac-x7k2p     why does it take no job?
      remuda explain pool mac             could a job start there now?
      remuda explain host mini-1          why does nothing start there?
      remuda explain labels macos xcode   which pool would serve these?
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped


@explain.command(epilog=EXITS)
@click.argument("job", shell_complete=names_of(job_names))
@_OUTPUT
@api_options
def job(*, where: Where, job: str, output: str) -> None:
    """
    Say why a job waits, who has it, or how it ended.

    \b
    Example:
      remuda explain job github.com/4711
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    _print(explained(where, "job", job), output)


@explain.command(epilog=EXITS)
@click.argument("runner", shell_complete=names_of(runner_names))
@_OUTPUT
@fleet_options
def runner(*, where: Where, runner: str, output: str) -> None:
    """
    Say why a runner takes jobs or not.

    \b
    Example:
      remuda explain runner mac-x7k2p
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    _print(explained(where, "runner", runner), output)


@explain.command(epilog=EXITS)
@click.argument("pool", shell_complete=names_of(pool_names))
@_OUTPUT
@fleet_options
def pool(*, where: Where, pool: str, output: str) -> None:
    """
    Say what a pool can do for a job now.

    \b
    Example:
      remuda explain pool mac
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    _print(explained(where, "pool", pool), output)


@explain.command(epilog=EXITS)
@click.argument("host", shell_complete=names_of(host_names))
@_OUTPUT
@fleet_options
def host(*, where: Where, host: str, output: str) -> None:
    """
    Say why a host takes runners or not. Asks the Kubernetes API only.

    \b
    Example:
      remuda explain host mini-1
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    _print(explained(where, "host", host), output)


@explain.command(epilog=EXITS)
@click.argument("labels", nargs=-1, required=True, metavar="LABEL...")
@click.option("--fork", is_flag=True, help="As for a pull request from a fork.")
@_OUTPUT
@api_options
def labels(*, where: Where, labels: tuple[str, ...], fork: bool, output: str) -> None:
    """
    Say which pool serves a job's runs-on labels, or why none does.

    \b
    Example:
      remuda explain labels self-hosted macos --fork
    """  # noqa: D301 - click's own mark for text that must not be re-wrapped
    _print(_labels(where, labels, fork=fork), output)


# --- asking -----------------------------------------------------------------------------------------------------------


async def explained(where: Where, kind: str, name: str) -> Explanation:
    """Explain a job, a runner, a pool or a host, as the commands do."""
    match kind:
        case "job":
            found = await _asked(where, Subject.JOB, name)
        case "runner":
            found = await _asked(where, Subject.RUNNER, name, "Pod")
        case "pool":
            found = await _pool(where, name)
        case "host":
            found = await _host(where, name)
        case _:
            raise AssertionError(f"nobody explains a {kind}")
    return in_commands(found)


async def _asked(where: Where, subject: Subject, name: str, kind: str = "") -> Explanation:
    async with where.api() as api:
        try:
            found = await api.explain(subject, name)
        except ApiNotFound as error:
            raise ApiNotFound(error.what, why=error.why, fix=as_commands(error.fix)) from None
    events = await _events_of(where, kind, name) if kind else ()
    return replace(found, evidence=(*found.evidence, *told(events)))


async def _pool(where: Where, name: str) -> Explanation:
    found = await _asked(where, Subject.POOL, name, "RunnerPool")
    async with where.api() as api:
        conditions = (await api.pool(name)).pool.conditions
    said = tuple(
        f"{c.type} is {c.status}: {c.message.rstrip('. ')}" for c in conditions if c.message
    )
    return replace(found, evidence=(*found.evidence, *said))


async def _labels(where: Where, labels: tuple[str, ...], *, fork: bool) -> Explanation:
    async with where.api() as api:
        return await api.explain_labels(labels, fork=fork)


async def _host(where: Where, name: str) -> Explanation:
    namespace = where.namespace()
    async with kube_of(where) as kube:
        node = await read_host(kube, name)
        on_host = await runners_on(kube, name, namespace)
        return explain_host(node, on_host, await _events(kube, "", "Node", name))


async def _events_of(where: Where, kind: str, name: str) -> tuple[Event, ...]:
    """
    Return the Events about something, if it is known which cluster it is in.

    An explanation without them is one all the same. Of a server that was named alone it is not known where it runs:
    what kubectl would use may be another cluster.
    """
    if where.is_named and where.kubeconfig is None:
        return ()
    try:
        async with kube_of(where) as kube:
            return await _events(kube, where.namespace(), kind, name)
    except KubeError:
        return ()


async def _events(kube: Kube, namespace: str, kind: str, name: str) -> tuple[Event, ...]:
    about = f"involvedObject.name={name},involvedObject.kind={kind}"
    try:
        return (await kube.list(EVENT, Query(namespace=namespace, fields=about))).items
    except KubeError:
        return ()


# --- saying -----------------------------------------------------------------------------------------------------------


def _print(asked: Coroutine[Any, Any, Explanation], output: str) -> None:
    found = in_commands(asyncio.run(asked))
    match output:
        case "json":
            click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        case "yaml":
            click.echo(as_yaml(found))
        case _:
            click.echo("\n".join(text_of(found)))


def text_of(found: Explanation) -> list[str]:
    """Return an explanation as a person reads it."""
    evidence = [f"  - {plain(fact)}" for fact in found.evidence]
    return [
        plain(found.sentence),
        *(["", "Evidence:", *evidence] if evidence else []),
        *(["", f"Next: {plain(found.next_step)}"] if found.next_step else []),
    ]


def in_commands(found: Explanation) -> Explanation:
    return replace(found, next_step=as_commands(found.next_step))
