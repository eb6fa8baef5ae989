"""Who is asking. There is no authorization here: whoever is authenticated may do everything."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated (or anonymous) client."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = field(default_factory=dict, hash=False)

    @property
    def is_anonymous(self) -> bool:
        return self.name == ANONYMOUS.name


ANONYMOUS = User("system:anonymous", groups=("system:unauthenticated",))
ADMIN = User("kubernetes-admin", groups=("system:masters", "system:authenticated"))
