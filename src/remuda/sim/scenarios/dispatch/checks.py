"""What must hold of jobs and runners at every instant. The names are those of INVARIANTS."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from remuda.kube.names import OWNER
from remuda.sim.fleet.statuses import TERMINAL
from remuda.sim.scenarios.pools.checks import label_of
from remuda.sim.scenarios.pools.seen import is_runner

if TYPE_CHECKING:
    from remuda.sim.checkers import Observed
    from remuda.sim.dispatch.guests import GuestRun
    from remuda.sim.forge.things import HubJob
    from remuda.sim.scenarios.dispatch.stage import DispatchStage
    from remuda.standalone.objects import Obj

SINGLE_USE = "S1 single use"
NO_KILL = "S2 no kill"
BUDGETS = "S3 budgets"
STAMPED = "S8 fencing"


class NoKill:
    """While a job config is in a VM and the forge may use it, nothing deletes its Pod."""

    invariant = NO_KILL

    def __init__(self, stage: DispatchStage) -> None:
        self._stage = stage

    def look(self, change: Observed) -> str | None:
        before = change.event.previous
        if change.plural != "pods" or before is None or not is_runner(before):
            return None
        if _phase(before) in TERMINAL or _is_deleting(before):
            return None
        goes = change.event.change == "DELETED" or _is_deleting(change.event.object)
        run = self._stage.guests.alive(before["metadata"]["uid"]) if goes else None
        if run is None:
            return None
        if run.is_working and run.hub_job is not None:
            return f"{change.event.key} was deleted while {run.hub_job.id} ran on it"
        if run.name in self._stage.forge.runners:
            return f"{change.event.key} was deleted while the forge could give {run.name} a job"
        return None


class Stamped:
    """A VM that holds a job config has a Pod with an owner: without it the operator takes it for idle."""

    invariant = STAMPED

    def __init__(self, stage: DispatchStage) -> None:
        self._stage = stage
        self.owners: dict[str, str] = {}
        """By the UID of the Pod."""

    def look(self, change: Observed) -> str | None:
        if change.plural != "pods" or not is_runner(change.event.object):
            return None
        uid = change.event.object["metadata"]["uid"]
        if change.event.change == "DELETED":
            self.owners.pop(uid, None)
            return None
        self.owners[uid] = label_of(change.event.object, OWNER)
        run = self._stage.guests.alive(uid)
        if run is None or self.owners[uid] == run.owner or not run.is_working:
            return None
        owner = self.owners[uid] or "nobody"
        return f"{change.event.key} became {owner}'s while {run.name} worked for {run.owner}"

    def begun(self, run: GuestRun) -> str | None:
        owner = self.owners.get(run.vm, "")
        if owner == run.owner:
            return None
        return f"{run.pod} got a job of {run.owner} while it was {owner or 'nobody'}'s"


class Handed:
    """
    What is checked when a job config reaches a VM, and when the forge gives a runner a job.

    No store tells of these, so it hooks itself to the world's truth instead of to changes.
    """

    def __init__(self, stage: DispatchStage, stamped: Stamped) -> None:
        self._stage, self._stamped = stage, stamped
        self._vm_of_config: dict[str, str] = {}
        stage.guests.on_begin = self.begun
        stage.forge.on_change = self.changed

    def begun(self, run: GuestRun) -> None:
        stage = self._stage
        stage.world.verdict.checks += 1
        if stage.world.trace.on:
            stage.world.trace.add(run.pod, "begin", run.name, "ok", run.job_id)
        if self._vm_of_config.setdefault(run.config, run.vm) != run.vm:
            self._violated(SINGLE_USE, f"the job config of {run.name} reached two VMs")
        if len(stage.guests.of_vm[run.vm]) > 1:
            self._violated(SINGLE_USE, f"{run.pod} got a second job config")
        if wrong := self._stamped.begun(run):
            self._violated(STAMPED, wrong)
        self._stage.handed_at.setdefault(run.job_id, stage.world.loop.time())

    def changed(self, what: str, job: HubJob) -> None:
        stage = self._stage
        stage.world.verdict.checks += 1
        if stage.world.trace.on:
            why = job.conclusion or f"{job.lasts_s:.0f} s of {job.repository}"
            stage.world.trace.add("forge", what, job.id, job.runner_name or "-", why)
        if what == "in_progress":
            self._count(job.organisation)

    def _count(self, tenant: str) -> None:
        """Count what a tenant's jobs really take, by the VMs that work for it."""
        stage = self._stage
        vcpus: Counter[str] = Counter()
        for run in stage.guests.working():
            vcpus[run.owner] += stage.vcpus
        if vcpus[tenant] > stage.limit:
            what = f"{tenant} uses {vcpus[tenant]} vCPUs and may use {stage.limit}"
            self._violated(BUDGETS, what)

    def _violated(self, invariant: str, what: str) -> None:
        world = self._stage.world
        world.verdict.violated(invariant, what, "-", world.loop.time())


def _phase(obj: Obj) -> str:
    return str((obj.get("status") or {}).get("phase"))


def _is_deleting(obj: Obj) -> bool:
    return "deletionTimestamp" in obj["metadata"]
