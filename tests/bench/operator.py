"""
The operator on the real API server: filling a pool, writes per runner's life, and writes when nothing happens.

``python -m tests.bench.operator`` starts a control plane of its own. What a pass costs is in ``tests.bench.passes``.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import aiohttp
import msgspec
import structlog

from remuda.adapters.kube_client.kubeconfig import load
from remuda.kube.core import POD, SERVICE_ACCOUNT
from remuda.kube.runner_pod import runner_template, service_account
from tests.bench import passes
from tests.support.control_plane import RealControlPlane
from tests.support.eventually import eventually
from tests.support.fleet import a_fleet
from tests.support.in_process import POD_SETTINGS, an_operator

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.kube.runner_pool import RunnerPool
    from tests.support.counting import CountingWire
    from tests.support.fleet import Fleet

RUNNERS = 1000
ROUNDS = 3
AT_ONCE = 32
"""Requests in flight: what the operator allows itself for one pool."""
FILL_TARGET = 1.3
LIVES = 60
LIFE_TARGET = 4.0
QUIET_S = 60.0
UNTOUCHED = {"spec": {"schedulerName": "nobody"}}
"""Pods that nothing else touches: only what creates them is measured."""
OF_RUNNERS = {
    "POST serviceaccounts",
    "POST pods",
    "DELETE pods",
    "DELETE serviceaccounts",
    "PATCH pods",
}


# --- 0 to 1,000 -------------------------------------------------------------------------------------------------------


async def fill(kubeconfig: Path) -> bool:
    """Fill a pool and, in turns, create the same objects with a bare loop."""
    ratios: list[float] = []
    async with (
        a_fleet(kubeconfig, "fill") as fleet,
        an_operator(kubeconfig, "fill") as wire,
    ):
        pool = await fleet.create_pool(
            "mac",
            0,
            provisioning={"maxConcurrent": RUNNERS, "startTimeoutSeconds": 0},
            template=UNTOUCHED,
        )
        await fleet.until(lambda: fleet.now.pools["mac"].status.template_hash != "")
        for number in range(ROUNDS + 1):
            if number % 2:
                ours_s = await by_operator(fleet, wire)
                bare_s = await by_bare_loop(kubeconfig, pool, number)
            else:
                bare_s = await by_bare_loop(kubeconfig, pool, number)
                ours_s = await by_operator(fleet, wire)
            if number:  # the first round warms the server up
                ratios.append(ours_s / bare_s)
                print(f"  round {number}: operator {ours_s:.2f} s, bare loop {bare_s:.2f} s")
    print(
        f"fill: 0 to {RUNNERS} runners in {median(ratios):.2f} x the time of a bare loop that creates the same"
        f" (target {FILL_TARGET})"
    )
    return median(ratios) <= FILL_TARGET


async def by_operator(fleet: Fleet, wire: CountingWire) -> float:
    """Scale from nothing and wait for the last answer; then scale back."""
    wanted = wire.writes["POST pods"] + RUNNERS
    began = perf_counter()
    await fleet.change_pool("mac", replicas=RUNNERS)
    await wire.reached("POST pods", wanted)
    took_s = perf_counter() - began
    await fleet.until(lambda: len(fleet.runners("mac")) == RUNNERS)
    await fleet.change_pool("mac", replicas=0)
    await fleet.until(lambda: not fleet.now.pods and not fleet.now.accounts)
    return took_s


async def by_bare_loop(kubeconfig: Path, pool: RunnerPool, number: int) -> float:
    """Post the same bodies, made beforehand, to a namespace that no operator looks at."""
    names = [f"bare-{number}-{n}" for n in range(RUNNERS)]
    template = runner_template(pool, POD_SETTINGS)
    elsewhere = msgspec.structs.replace(
        pool, metadata=msgspec.structs.replace(pool.metadata, namespace="default")
    )
    bodies = iter(
        [
            (
                msgspec.json.encode(service_account(elsewhere, name)),
                template.pod(name).replace(b'"namespace":"fill"', b'"namespace":"default"'),
            )
            for name in names
        ]
    )
    connection = load(kubeconfig)
    credential = await connection.credentials.current()
    tls = connection.tls(credential)
    assert tls is not None
    headers = {
        "Authorization": f"Bearer {credential.token}",
        "Content-Type": "application/json",
        "Accept": "application/json",
    }
    accounts = f"{connection.server}{SERVICE_ACCOUNT.path('default')}"
    pods = f"{connection.server}{POD.path('default')}"

    async def worker(session: aiohttp.ClientSession) -> None:
        for account, pod in bodies:
            for url, body in ((accounts, account), (pods, pod)):
                async with session.post(url, data=body, ssl=tls) as answer:
                    assert answer.status == 201, await answer.text()
                    await answer.read()

    connector = aiohttp.TCPConnector(limit=AT_ONCE)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
        began = perf_counter()
        async with asyncio.TaskGroup() as group:
            for worker_number in range(AT_ONCE):
                group.create_task(worker(session), name=f"creator {worker_number}")
        took_s = perf_counter() - began
        selector = {"labelSelector": "remuda.dev/runner=true", "gracePeriodSeconds": "0"}
        for url in (pods, accounts):
            async with session.delete(url, params=selector, ssl=tls) as answer:
                assert answer.status == 200, await answer.text()
    return took_s


# --- writes -----------------------------------------------------------------------------------------------------------


async def writes(kubeconfig: Path) -> bool:
    """Count the operator's writes over the lives of runners that each run a job, and then over a quiet minute."""
    async with (
        a_fleet(kubeconfig, "lives") as fleet,
        an_operator(kubeconfig, "lives") as wire,
    ):
        scaling = {"enabled": True, "minWarm": 20, "maxReplicas": 40}
        await fleet.create_pool("mac", 20, autoscaling=scaling)
        await fleet.until(lambda: fleet.is_rolled("mac"))
        before = Counter(wire.writes)
        for _ in range(LIVES // 10):
            await fleet.busy("mac", 10, lasts_s=0.2)
        await fleet.until(lambda: fleet.is_rolled("mac") and len(fleet.now.accounts) == 20)
        per_life = {k: n / LIVES for k, n in (wire.writes - before).items()}
        quiet = await quiet_minute(fleet, wire)
    on_runners = sum(n for kind, n in per_life.items() if kind in OF_RUNNERS)
    others = {kind: n for kind, n in per_life.items() if kind not in OF_RUNNERS}
    print(f"writes per runner's life: {on_runners:.2f} on runners (target {LIFE_TARGET:g});")
    print(
        "  beside them: " + (", ".join(f"{n:.2f} {k}" for k, n in sorted(others.items())) or "none")
    )
    print(
        f"steady state: {sum(quiet.values())} writes in {QUIET_S:g} s beyond leases (target 0) {dict(quiet) or ''}"
    )
    return on_runners <= LIFE_TARGET and not quiet


async def quiet_minute(fleet: Fleet, wire: CountingWire) -> Counter[str]:
    """Wait until the last writes of what happened are done, and count those of the minute after."""

    async def is_calm() -> bool:
        so_far = sum(wire.writes.values())
        await fleet.clock.sleep(5.0)
        return sum(wire.writes.values()) == so_far

    await eventually(is_calm, within_s=60.0)
    before = Counter(wire.writes)
    await fleet.clock.sleep(QUIET_S)
    return wire.writes - before


def compare(kubeconfig: Path) -> bool:
    # Each runner that is reaped says so: as much text as the measurement needs time.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    met = [asyncio.run(fill(kubeconfig)), asyncio.run(writes(kubeconfig))]
    return all(met)


def main() -> int:
    met = [passes.compare()]
    with RealControlPlane() as plane:
        met.append(compare(plane.access.kubeconfig))
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
