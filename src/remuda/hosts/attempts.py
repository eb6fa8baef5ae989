"""
One attempt to make a host as it should be: with what one logs in, who its agent is, what it should be, and the deed.

What came of it is written down before anything else is begun: the host key as soon as it was shown, the configuration
only after it was found in place.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog
from msgspec.structs import replace

from remuda.hosts.adopter import NotOurs
from remuda.hosts.converging import Mode, Result
from remuda.hosts.credentials import target_of
from remuda.hosts.decide.agent_job import LABEL
from remuda.hosts.decide.facts import FactUnreadable
from remuda.hosts.decide.lifecycle import AT_ONCE, Phase
from remuda.hosts.decide.wanted import BuilderConfig, OwnConfig
from remuda.hosts.in_use import HostInUse
from remuda.hosts.status import (
    BOOTSTRAPPED,
    CONVERGED,
    KEY_TRUSTED,
    READY,
    condition,
    with_condition,
)
from remuda.kube.host import HOST, Role
from remuda.kube.quantity import parse_quantity
from remuda.kube.times import whole_seconds
from remuda.model.errors import RemudaError, Retry
from remuda.ports.host_shell import (
    CommandTimedOut,
    HostKeyChanged,
    Unreachable,
    UploadUnreadable,
)
from remuda.ports.kube import KubeError
from remuda.ports.machines import MachineGone, MachinesError

if TYPE_CHECKING:
    from remuda.hosts.converging import Emptied, Outcome, Pin
    from remuda.hosts.identity import Identity
    from remuda.hosts.registration import Registrations
    from remuda.hosts.reins import Reins
    from remuda.kube.host import Host, HostStatus
    from remuda.model.secret import Secret
    from remuda.ports.host_shell import Target
    from remuda.ports.machines import Machine

log = structlog.get_logger(__name__)

_RETIRE_S: Final = 180.0
_ASK_S: Final = 120.0


class NotTried(RemudaError):
    """What could do harm was left undone."""


class TookTooLong(RemudaError):
    """An attempt was given up. What it did stays done, and the next one goes on from there."""


def _refuse_barred(host: Host, what: str) -> None:
    """Raise if nobody may try to log in: a key that is not the host's, or one more wrong password, does harm."""
    trusted = condition(host.status, KEY_TRUSTED)
    if (trusted and trusted.status == "False") or (host.status.attempts or 0) >= AT_ONCE:
        raise NotTried(
            what,
            why="its host key or its login was refused before",
            fix="Look at the host; nothing logs in to it by itself any more",
        )


def _said(error: Exception) -> str:
    return str(error) or "It did not answer in time."


@dataclass(frozen=True, slots=True)
class _Prepared:
    target: Target
    own: OwnConfig
    identity: Identity


@dataclass(frozen=True, slots=True)
class _Noted:
    """What is written down of a host that is as it should be."""

    config_hash: str
    identity: Identity
    generation: int | None
    """Of the spec, if all of the host was looked at."""


class _Minting:
    """The registration token of one attempt. That GitHub gives none is not the host's fault."""

    def __init__(self, registrations: Registrations | None, host: Host) -> None:
        self._registrations, self._host = registrations, host
        self.failed: RemudaError | None = None

    async def token(self) -> Secret:
        assert self._registrations is not None, "nobody asks where nobody mints"
        try:
            return await self._registrations.token(self._host)
        except RemudaError as error:
            self.failed = error
            raise


class Attempts:
    """Makes attempts and writes down what came of them."""

    def __init__(self, reins: Reins) -> None:
        self._reins = reins
        self._silent: dict[str, float] = {}
        """Hosts whose Mac goes back and does not say what runs on it, and since when."""

    async def make(self, host: Host, mode: Mode, *, emptied: Emptied) -> Result | None:
        """Try once. None if it failed; why is in the Host's status then."""
        reins, wanted = self._reins, self._reins.converger.config_hash
        prepared, minting = await self._prepared(host), _Minting(reins.registrations, host)
        observed = host.metadata.generation if mode is Mode.FIRST else None
        try:
            async with asyncio.timeout(reins.settings.bootstrap_timeout_s):
                outcome = await reins.converger.converge(
                    prepared.target,
                    prepared.own,
                    mode,
                    emptied=emptied,
                    pin=self._pin(host, wanted),
                    mint=minting.token if reins.registrations is not None else None,
                )
        except TimeoutError:
            hours = reins.settings.bootstrap_timeout_s / 3600
            error: RemudaError = TookTooLong(
                f"Host {host.name} was not as it should be in time",
                why=f"the attempt took more than {hours:g} h",
                fix="Look at what the host does; it is tried again",
            )
            await self.failed(host, wanted, error)
        except RemudaError as error:
            if error is minting.failed or isinstance(error, HostInUse | UploadUnreadable):
                await self.not_the_hosts_fault(host, error)
                raise
            await self.failed(host, wanted, error)
        else:
            noted = _Noted(wanted, prepared.identity, observed)
            return await self._note(host, outcome, noted)
        return None

    async def reboot(self, host: Host) -> bool:
        """
        Have a host start again; say whether it was told to. Whether that worked shows in the next attempt.

        One that cannot be told, or asked, is one more failed attempt on it: it is a login like any other.
        """
        wanted = self._reins.converger.config_hash
        try:
            if host.spec.provider.scaleway:
                await self._reboot_rented(host)
            else:
                target = await self._target(host, None)
                await self._reins.converger.reboot(target, self._pin(host))
        except (MachinesError, KubeError):
            raise  # no fault of the host
        except HostInUse as error:
            await self.not_the_hosts_fault(host, error)
            raise
        except RemudaError as error:
            await self.failed(host, wanted, error)
            return False
        return True

    async def _reboot_rented(self, host: Host) -> None:
        """Have its provider start a Mac again. One that worked and cannot be asked may have a job: it is left alone."""
        try:
            await self._ask(host, f"The Mac of Host {host.name} was not told to start again")
        except (HostInUse, MachinesError, KubeError):
            raise  # it answered, or was not asked at all
        except RemudaError as error:
            if host.status.config_hash:
                raise
            log.info("Mac rebooted unasked", host=host.name, why=str(error))
        assert self._reins.adopter is not None, "a rented Mac was adopted by somebody"
        await self._reins.adopter.reboot(host)

    async def ask_before_wiping(self, host: Host) -> None:
        """
        Ask a rented Mac that goes back what runs on it. Raises ``HostInUse``, which is said, and then it is kept.

        One that worked, answers and cannot tell is kept, and that is said too: a Tart that hangs is no proof that
        nothing runs. One that does not answer is asked again for a while; then it goes back: it never worked, or a
        person deleted its Host.
        """
        try:
            await self._ask(host, f"The Mac of Host {host.name} was not returned")
        except HostInUse as error:
            await self._keep(host, error)
            raise
        except (NotOurs, MachineGone):
            return  # on its way already, or somebody else's: its release sees to that
        except (MachinesError, KubeError):
            raise  # it was not asked at all
        except RemudaError as error:
            if isinstance(error, FactUnreadable | CommandTimedOut) and host.status.config_hash:
                await self._keep(host, error)
                raise
            if isinstance(error, Unreachable | TookTooLong) and self._is_young_silence(host):
                await self.not_the_hosts_fault(host, error)
                raise
            text = (
                f"Its Mac goes back and is wiped, and could not be asked what runs there: {error}"
            )
            log.warning("Mac wiped unasked", host=host.name, error=str(error))
            self._reins.events.record(HOST, host, "WipedUnasked", text, warning=True)
        self._silent.pop(host.uid, None)

    async def _keep(self, host: Host, error: RemudaError) -> None:
        """Say why a Mac that answered does not go back. If it falls silent later, that is a new silence."""
        self._silent.pop(host.uid, None)
        await self.not_the_hosts_fault(host, error)

    def _is_young_silence(self, host: Host) -> bool:
        """Say whether a Mac that does not answer may still do so: it may be starting, or its network be away."""
        now = self._reins.clock.monotonic()
        return now - self._silent.setdefault(host.uid, now) < self._reins.settings.silence_s

    async def _ask(self, host: Host, what: str) -> None:
        """Raise ``HostInUse`` if anything runs on a rented Mac, and whatever keeps it from being asked."""
        assert self._reins.adopter is not None, "a rented Mac was adopted by somebody"
        machine = await self._reins.adopter.mine(host)
        _refuse_barred(host, what)
        target = await self._target(host, machine)
        try:
            async with asyncio.timeout(_ASK_S):
                await self._reins.converger.refuse_in_use(target, self._pin(host), what)
        except TimeoutError:
            raise TookTooLong(
                what,
                why=f"it did not say within {_ASK_S:g} s what runs on it",
                fix="Look at what the host does; it is asked again",
            ) from None

    async def retire(self, host: Host) -> None:
        """Take the agent off a host that leaves, as well as that goes. What stays there is said."""
        reins, status = self._reins, host.status
        if not (status.config_hash or status.reached_config_hash):
            return  # nobody brought it one
        try:
            _refuse_barred(host, f"The agent of Host {host.name} was not removed")
            machine = (
                await reins.adopter.mine(host) if reins.adopter and status.machine_id else None
            )
            target = await self._target(host, machine)
            async with asyncio.timeout(_RETIRE_S):
                await reins.converger.retire(target, host.spec.role)
        except HostInUse as error:
            await self.not_the_hosts_fault(host, error)
            raise
        except (RemudaError, TimeoutError) as error:
            days = reins.settings.credential_life.days
            text = (
                f"Its agent may still run and make its Node again: {_said(error)} Remove it there: sudo launchctl"
                f" bootout system/{LABEL}. Its credential is good to its end, at most {days} days after it was made; if"
                " the Mac is lost, apply docs/howto/lost-host.yaml."
            )
            log.warning("agent left on its host", host=host.name, error=str(error))
            now = reins.clock.now()
            await reins.status.change(
                host, lambda s: with_condition(s, READY, "False", "AgentLeft", text, now)
            )
            reins.events.record(HOST, host, "AgentLeft", text, warning=True)

    async def failed(self, host: Host, wanted: str, error: RemudaError) -> None:
        """Write down a failure. Of one that trying again makes worse there is no second attempt in a row."""
        reins, limits = self._reins, self._reins.settings.limits
        now = whole_seconds(reins.clock.now())
        key = isinstance(error, HostKeyChanged)
        most = max(limits.bootstraps_max, limits.updates_max)

        def change(status: HostStatus) -> HostStatus:
            before = (status.attempts or 0) if status.failed_config_hash == wanted else 0
            never = error.retry is Retry.NEVER
            status = replace(
                status,
                failed_config_hash=wanted,
                failed_at=now,
                attempts=AT_ONCE if never else min(most, before + 1),
            )
            if key:
                status = with_condition(
                    status, KEY_TRUSTED, "False", type(error).__name__, str(error), now
                )
            return with_condition(status, CONVERGED, "False", type(error).__name__, str(error), now)

        host = await reins.status.change(host, change)
        reins.metrics.attempted(host.spec.fleet, "failed")
        log.warning(
            "attempt failed", host=host.name, attempts=host.status.attempts, error=str(error)
        )
        reins.events.record(HOST, host, type(error).__name__, str(error), warning=True)

    async def _prepared(self, host: Host) -> _Prepared:
        """
        Gather what an attempt needs. What fails here is not the host's fault and counts as no attempt on it.

        It is said in the Host's status and raised: the queue tries again.
        """
        try:
            return await self._gathered(host)
        except (NotOurs, MachineGone):
            raise  # there is no host to say it of any more
        except RemudaError as error:
            await self.not_the_hosts_fault(host, error)
            raise

    async def not_the_hosts_fault(self, host: Host, error: RemudaError) -> None:
        """Say what went wrong without counting it as a failure of the host."""
        now, text = self._reins.clock.now(), str(error)
        reason = type(error).__name__
        await self._reins.status.change(
            host, lambda s: with_condition(s, CONVERGED, "False", reason, text, now)
        )
        self._reins.events.record(HOST, host, reason, text, warning=True)

    async def _gathered(self, host: Host) -> _Prepared:
        reins = self._reins
        machine: Machine | None = None
        if host.spec.provider.scaleway:
            assert reins.adopter is not None, "a rented Mac was adopted by somebody"
            machine = await reins.adopter.mine(host)
        target = await self._target(host, machine)
        await reins.status.change(host, lambda s: replace(s, address=target.address))
        identity = await reins.identities.ensure(host)
        return _Prepared(target, self._own(host, target, identity), identity)

    async def _target(self, host: Host, machine: Machine | None) -> Target:
        return await target_of(
            self._reins.kube, host, machine, trust_first=self._reins.settings.trust_first
        )

    def _own(self, host: Host, target: Target, identity: Identity) -> OwnConfig:
        capacity = host.spec.capacity
        rented = host.spec.provider.scaleway
        cpus = parse_quantity(capacity.cpu).ceil() if capacity.cpu else None
        return OwnConfig(
            node=host.name,
            user=host.spec.ssh.user,
            fleet=host.spec.fleet,
            role=host.spec.role,
            password=target.password,
            kubeconfig=identity.kubeconfig,
            provider_id=f"scaleway://{rented.zone}/{host.status.machine_id}" if rented else "",
            cpus=cpus,
            memory=capacity.memory or "",
            vms=capacity.vms,
            builder=self._builder(host),
        )

    def _builder(self, host: Host) -> BuilderConfig | None:
        """Say how a builder is registered. Its token is minted only if the host turns out to need one."""
        spec = host.spec.builder
        if host.spec.role is not Role.BUILDER or not spec:
            return None
        return BuilderConfig(
            github_url=f"{self._reins.settings.github_url}/{spec.github_org}",
            runner_name=host.name,
            labels=tuple(spec.labels),
            runner_version=spec.runner_version,
        )

    def _pin(self, host: Host, bringing: str = "") -> Pin:
        """Return what writes down a host key, and what is brought to its host. It is kept whatever comes after it."""

        async def pin(fingerprint: str) -> None:
            now = self._reins.clock.now()

            def change(status: HostStatus) -> HostStatus:
                status = replace(status, reached_config_hash=bringing or status.reached_config_hash)
                if status.host_key_fingerprint:
                    return status
                status = replace(status, host_key_fingerprint=fingerprint)
                said = f"{fingerprint} was shown first and is pinned."
                return with_condition(status, KEY_TRUSTED, "True", "Pinned", said, now)

            await self._reins.status.change(host, change)

        return pin

    async def _note(self, host: Host, outcome: Outcome, noted: _Noted) -> Result:
        reins = self._reins
        now = whole_seconds(reins.clock.now())
        reins.metrics.attempted(host.spec.fleet, outcome.result.value.replace("-", "_"))
        if outcome.result is Result.NEEDS_DRAIN:
            await reins.status.change(host, lambda s: replace(s, phase=Phase.DRAINING.value))
            left = ", ".join(outcome.left)
            said = f"VMs would not survive what is left to do ({left}): the host is drained first."
            reins.events.record(HOST, host, "DrainNeeded", said)
            return outcome.result

        def change(status: HostStatus) -> HostStatus:
            status = replace(
                status,
                config_hash=noted.config_hash,
                observed_generation=status.observed_generation
                if noted.generation is None
                else noted.generation,
                converged_at=now,
                identity_renew_at=whole_seconds(noted.identity.renew_at),
            )
            said = "Everything was looked at and found in place."
            status = with_condition(status, BOOTSTRAPPED, "True", "Bootstrapped", said, now)
            return with_condition(status, CONVERGED, "True", "Converged", said, now)

        changed = ", ".join(outcome.changed) or "nothing was to do"
        await reins.status.change(host, change)
        log.info("host converged", host=host.name, config=noted.config_hash[:12], changed=changed)
        reins.events.record(HOST, host, "Converged", f"It is as it should be now: {changed}.")
        return outcome.result
