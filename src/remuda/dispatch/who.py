"""Who asks. Each kind of caller has its own credential, and none of them passes for another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.ports.api_tokens import Role


@dataclass(frozen=True, slots=True)
class RunnerIdentity:
    """A runner's Pod, as its token says: bound to this Pod and no other of the same name."""

    pod: str
    pod_uid: str


@dataclass(frozen=True, slots=True)
class ServiceIdentity:
    """A ServiceAccount of the cluster that is no runner's."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class PersonIdentity:
    """A person or a tool, by its API token."""

    name: str
    role: Role

    @property
    def in_audit(self) -> str:
        return in_audit(self.name)


def in_audit(person: str) -> str:
    """Return the audit's word for a person: no name of a token passes for a part of dispatch."""
    return f"api:{person}"


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody we know, and why: 401 if nobody could tell who it is, 403 if it is the wrong one."""

    status: int
    why: str
    fix: str
