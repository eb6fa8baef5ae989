"""Carries out what was decided for a Host. Every deed may be repeated: after a crash the next pass begins anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import structlog
from msgspec.structs import replace

from remuda.hosts.adopter import NotOurs
from remuda.hosts.attempts import Attempts
from remuda.hosts.converging import Mode
from remuda.hosts.credentials import forget_password
from remuda.hosts.decide.adoption import NoneFree
from remuda.hosts.decide.lifecycle import HARMFUL, Do, Phase, is_empty
from remuda.hosts.registration import AppUnusable
from remuda.hosts.seeing import seen_of
from remuda.hosts.status import BOOTSTRAPPED, CONVERGED, KEY_TRUSTED, MACHINE, with_condition
from remuda.hosts.view import vm_pods_on
from remuda.kube.core import NODE
from remuda.kube.host import HOST, Role
from remuda.kube.names import HOST_DRAIN, HOST_RELEASE
from remuda.kube.patches import MergePatch
from remuda.kube.times import whole_seconds
from remuda.model.errors import RemudaError
from remuda.ports.kube import Conflict, NotFound, Seen
from remuda.ports.machines import MachineGone, MachinesError

if TYPE_CHECKING:
    from remuda.hosts.adopter import Adopter
    from remuda.hosts.decide.lifecycle import Decision
    from remuda.hosts.reins import Reins
    from remuda.kube.host import Host, HostStatus
    from remuda.ports.machines import Machine

log = structlog.get_logger(__name__)


class NoAccount(MachinesError):
    """A Host wants a rented Mac, and nobody gave us an account."""


class Carrier:
    """One deed per call. Errors of the world that belong into the status are written there."""

    def __init__(self, reins: Reins) -> None:
        self._reins = reins
        self._attempts = Attempts(reins)
        self._unregistering: dict[str, float] = {}
        """Hosts that wait for GitHub to forget their runner, and since when."""
        self._retired: set[str] = set()
        """Those among them whose agent was taken off, or could not be: that is not tried with every look."""

    async def carry_out(self, host: Host, decision: Decision) -> None:
        """Do what was decided. What ends VMs is not done if one has come since."""
        if decision.do in HARMFUL and not await self._emptied(host):
            log.info("host not empty any more", host=host.name, do=decision.do.value)
            return
        await self._do(host, decision)

    async def _do(self, host: Host, decision: Decision) -> None:
        match decision.do:
            case Do.REST:
                return
            case Do.BOOTSTRAP | Do.UPDATE:
                await self._attempt(host, decision.do)
            case Do.DRAIN:
                await self._cordon(host)
            case Do.UNDRAIN:
                await self._uncordon(host)
            case Do.GIVE_UP:
                await self._give_up(host, decision)
            case Do.ADOPT | Do.REBOOT | Do.RELEASE:
                await self._with_machine(host, decision.do)
            case Do.FORGET:
                await self._forget(host)
            case _:
                assert_never(decision.do)

    # --- What a person said ------------------------------------------------------------------------------------------

    async def trust(self, host: Host, fingerprint: str) -> None:
        """Pin the host key that a person found to be the right one."""
        now = self._reins.clock.now()

        def change(status: HostStatus) -> HostStatus:
            status = _without_failures(replace(status, host_key_fingerprint=fingerprint))
            said = f"A person said that {fingerprint} is this host's key."
            return with_condition(status, KEY_TRUSTED, "True", "Accepted", said, now)

        await self._reins.status.change(host, change)

    async def retry(self, host: Host) -> None:
        """Forget failures and look at all of the host again: a person has looked."""
        await self._reins.status.change(
            host, lambda s: replace(_without_failures(s), observed_generation=0)
        )
        self._reins.events.record(HOST, host, "RetryAsked", "A person asked for another try.")

    # --- Attempts ----------------------------------------------------------------------------------------------------

    async def _emptied(self, host: Host) -> bool:
        """Ask the server whether there is no VM and none can come. What we saw a moment ago may be over."""
        reins = self._reins
        if not reins.settings.guards.drain:
            return True
        try:
            # The Node first: once it takes no Pod, the list of Pods is complete.
            node = await reins.kube.get(NODE, host.name)
        except NotFound:
            node = None
        pods, now = await vm_pods_on(reins.kube, host.name), reins.clock.now()
        wanted = reins.converger.config_hash
        seen = seen_of(
            host, node, wanted_hash=wanted, missing_since=None, now=now, vm_pods=len(pods)
        )
        return is_empty(seen, reins.settings.limits, now)

    async def _attempt(self, host: Host, do: Do) -> None:
        mode = Mode.FIRST if do is Do.BOOTSTRAP else Mode.DRIFT
        try:
            await self._attempts.make(host, mode, emptied=lambda: self._emptied(host))
        except (NotOurs, MachineGone) as error:
            await self._lost(host, error)

    async def _give_up(self, host: Host, decision: Decision) -> None:
        limits = self._reins.settings.limits
        most, now = max(limits.bootstraps_max, limits.updates_max), self._reins.clock.now()
        wanted, text = self._reins.converger.config_hash, f"{decision.why}."

        def change(status: HostStatus) -> HostStatus:
            at = whole_seconds(now)
            status = replace(status, failed_config_hash=wanted, failed_at=at, attempts=most)
            said = f"{text[0].upper()}{text[1:]}"
            return with_condition(status, CONVERGED, "False", decision.reason, said, now)

        await self._reins.status.change(host, change)
        self._reins.metrics.attempted(host.spec.fleet, "failed")

    # --- Nodes -------------------------------------------------------------------------------------------------------

    async def _cordon(self, host: Host) -> None:
        """Keep a Node from taking Pods. One that a person closed is left as it is, so that it stays theirs."""
        node = self._reins.view.node(host.name)
        if node is None or node.spec.unschedulable:
            return
        at = whole_seconds(self._reins.clock.now()).strftime("%Y-%m-%dT%H:%M:%SZ")
        patch = MergePatch(
            {
                "metadata": {
                    "annotations": {HOST_DRAIN: at},
                    "resourceVersion": node.resource_version,
                },
                "spec": {"unschedulable": True},
            }
        )
        await self._reins.kube.patch(NODE, node.name, patch)

    async def _uncordon(self, host: Host) -> None:
        node = self._reins.view.node(host.name)
        if node is None or HOST_DRAIN not in node.metadata.annotations:
            return
        patch = MergePatch(
            {
                "metadata": {
                    "annotations": {HOST_DRAIN: None},
                    "resourceVersion": node.resource_version,
                },
                "spec": {"unschedulable": None},
            }
        )
        await self._reins.kube.patch(NODE, node.name, patch)

    # --- Machines ----------------------------------------------------------------------------------------------------

    async def _with_machine(self, host: Host, do: Do) -> None:
        try:
            if do is Do.ADOPT:
                await self._adopt(host)
            elif do is Do.REBOOT:
                await self._reboot(host)
            else:
                await self._release(host)
        except (NotOurs, MachineGone) as error:
            await self._lost(host, error)
        except MachinesError as error:
            await self._unwell(host, type(error).__name__, str(error))
            raise

    async def _adopt(self, host: Host) -> None:
        found = await self._adopter(host).adopt(host)
        if isinstance(found, NoneFree):
            text = f"{found.why[0].upper()}{found.why[1:]}. {found.fix}."
            await self._unwell(host, found.reason, text)
            return
        await self._hold(host, found)
        self._reins.events.record(HOST, host, "MacTaken", f"It has the Mac {found.id} now.")

    async def _hold(self, host: Host, machine: Machine) -> Host:
        now = self._reins.clock.now()

        def change(status: HostStatus) -> HostStatus:
            if status.machine_id == machine.id and status.address == machine.address:
                return status
            said = f"It has the Mac {machine.id}, which is called {machine.name}."
            status = with_condition(status, MACHINE, "True", "Taken", said, now)
            return replace(status, machine_id=machine.id, address=machine.address)

        return await self._reins.status.change(host, change)

    async def _reboot(self, host: Host) -> None:
        """Reboot once. A host that cannot be told to has had its turn; one that its provider is busy with has not."""
        told = await self._attempts.reboot(host)
        now = whole_seconds(self._reins.clock.now())
        await self._reins.status.change(host, lambda s: replace(s, rebooted=True, failed_at=now))
        if told:
            self._reins.events.record(HOST, host, "Rebooted", "It was told to start again.")

    async def _release(self, host: Host) -> None:
        await self._attempts.ask_before_wiping(host)
        if await self._adopter(host).release(host):
            await forget_password(self._reins.kube, host)
            await self._reins.status.change(host, _without_machine)
            self._reins.events.record(
                HOST, host, "MacReturned", "Its Mac is back in the pool, and is installed anew."
            )

    async def _lost(self, host: Host, error: MachinesError) -> None:
        """Let go of a Mac that is gone or somebody else's. It is not touched."""
        await forget_password(self._reins.kube, host)
        await self._reins.status.change(host, _without_machine)
        log.warning("Mac lost", host=host.name, error=str(error))
        self._reins.events.record(HOST, host, "MacLost", str(error), warning=True)

    async def _unwell(self, host: Host, reason: str, text: str) -> None:
        """Say why there is no Mac, or why nothing can be done to it. It is tried again."""
        now = self._reins.clock.now()

        def change(status: HostStatus) -> HostStatus:
            held = "True" if status.machine_id else "False"
            return with_condition(status, MACHINE, held, reason, text, now)

        await self._reins.status.change(host, change)
        self._reins.events.record(HOST, host, reason, text, warning=True)

    def _adopter(self, host: Host) -> Adopter:
        if self._reins.adopter is None:
            raise NoAccount(
                f"Host {host.name} gets no Mac",
                why="the host operator has no account with the provider",
                fix="Start it with --scaleway-token-file",
            )
        return self._reins.adopter

    # --- The end -----------------------------------------------------------------------------------------------------

    async def _forget(self, host: Host) -> None:
        """Remove what was made for a Host, in an order in which each part is still reachable by the next."""
        if host.spec.provider.scaleway and not host.status.machine_id:
            # The write of its id may have been lost: a Mac must not stay claimed by nobody.
            found = await self._adopter(host).find(host) if self._reins.adopter else None
            if found is not None:
                await self._hold(host, found)
                return
        reins = self._reins
        if host.uid not in self._retired:
            await self._attempts.retire(host)
            self._retired.add(host.uid)
        await self._unregister(host)
        await reins.identities.remove(host)
        await forget_password(reins.kube, host)
        if (node := reins.view.node(host.name)) is not None:
            try:
                await reins.kube.delete(NODE, node.name, seen=Seen(uid=node.uid))
            except (NotFound, Conflict):
                log.info("Node gone already", host=host.name)
        newest = reins.status.newest(host)
        left = [f for f in newest.metadata.finalizers if f != HOST_RELEASE]
        patch = MergePatch(
            {
                "metadata": {
                    "finalizers": [*left],
                    "resourceVersion": newest.resource_version,
                }
            }
        )
        try:
            await reins.kube.patch(HOST, host.name, patch, namespace=host.namespace)
        except NotFound:
            return
        self._retired.discard(host.uid)
        log.info("host let go", host=host.name)

    async def _unregister(self, host: Host) -> None:
        """
        Have GitHub forget a builder's runner. It is waited for, but not for ever: then that is said, and the Host goes.

        A Secret that is not there comes back for nobody: whoever deletes all at once is not made to wait for it.
        """
        reins = self._reins
        if host.spec.role is not Role.BUILDER or reins.registrations is None:
            return
        if not _was_reached(host.status):
            return  # a runner of its name is somebody else's
        since = self._unregistering.setdefault(host.uid, reins.clock.monotonic())
        try:
            await reins.registrations.forget(host)
        except RemudaError as error:
            waited_s = reins.clock.monotonic() - since
            if waited_s < reins.settings.unregister_s and not isinstance(error, AppUnusable):
                await self._attempts.not_the_hosts_fault(host, error)
                raise
            text = f"GitHub may still list its runner, and forgets it in two weeks: {error}"
            log.warning("runner left at GitHub", host=host.name, error=str(error))
            reins.events.record(HOST, host, "RunnerLeft", text, warning=True)
        self._unregistering.pop(host.uid, None)


def _was_reached(status: HostStatus) -> bool:
    """Say whether anything was ever brought to a Host's Mac: if not, what has its name there is not its own."""
    bootstrapped = any(c.type == BOOTSTRAPPED and c.status == "True" for c in status.conditions)
    return bool(bootstrapped or status.config_hash or status.reached_config_hash)


def _without_failures(status: HostStatus) -> HostStatus:
    return replace(status, failed_config_hash="", failed_at=None, attempts=0, rebooted=False)


def _without_machine(status: HostStatus) -> HostStatus:
    """Return the status of a Host that has no Mac (any more): nothing of the old one holds for the next."""
    kept = tuple(c for c in status.conditions if c.type not in (KEY_TRUSTED, MACHINE))
    return replace(
        _without_failures(status),
        phase=Phase.PENDING.value,
        machine_id="",
        address="",
        host_key_fingerprint="",
        config_hash="",
        reached_config_hash="",
        observed_generation=0,
        converged_at=None,
        identity_renew_at=None,
        conditions=kept,
    )
