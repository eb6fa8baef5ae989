"""Puts together what is read for the checks. The one place that knows all sources; decides nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.cli.doctor.asking import readable
from remuda.cli.doctor.decide.facts import Facts
from remuda.cli.doctor.gather_api import api_facts, github_facts
from remuda.cli.doctor.gather_kube import kube_facts
from remuda.cli.doctor.gather_machine import machine_facts
from remuda.cli.tree.folder import data_folder

if TYPE_CHECKING:
    from remuda.cli.doctor.decide.facts import ApiFacts, GithubFacts, KubeFacts, Unread
    from remuda.cli.finding import Where
    from remuda.ports.clock import Clock


async def gather(where: Where, clock: Clock, *, stuck_after_s: float) -> Facts:
    """Read everything, each source for itself: one that hangs costs its deadline, and no more."""
    machine, github, (kube, api) = await asyncio.gather(
        machine_facts(where), readable(_github(where, clock)), _fleet(where, clock)
    )
    return Facts(
        now=clock.now(),
        machine=machine,
        kube=kube,
        api=api,
        github=github,
        stuck_after_s=stuck_after_s,
    )


async def _github(where: Where, clock: Clock) -> GithubFacts | Unread:
    """Look at what ``remuda setup github`` left for the ``remuda up`` that is meant, and at this environment."""
    file = data_folder(where.data).github_settings
    return await github_facts(clock, file if not where.is_named and file.is_file() else None)


async def _fleet(where: Where, clock: Clock) -> tuple[KubeFacts | Unread, ApiFacts | Unread]:
    """Read Pods before claims: what is stamped then was claimed before."""
    kube = await readable(kube_facts(where, clock))
    return kube, await readable(api_facts(where, clock))
