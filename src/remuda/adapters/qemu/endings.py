"""How a run of QEMU ended, from what QEMU said and how its process ended. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.adapters.qemu.plan import End
from remuda.ports.vms import Ending

if TYPE_CHECKING:
    from remuda.adapters.qemu.qmp import Qmp

WHY_MAX_CHARS: Final = 400
_STOPPED: Final = ("host-signal", "host-qmp-quit", "host-qmp-system-reset", "host-ui")


def ending(heard: Qmp, code: int, *, stopped: bool, said: bytes) -> End:
    """``code`` is of QEMU's process, ``stopped`` whether the driver wanted an end, ``said`` the end of all output."""
    words = last_words(said)
    if stopped or heard.shutdown in _STOPPED:
        return End(how=Ending.STOPPED.value)
    if heard.shutdown == "guest-shutdown":
        return End(how=Ending.HALTED.value)
    if not heard.running:
        return End(how=Ending.NEVER_BOOTED.value, why=words or f"QEMU ended with {code}")
    if heard.shutdown:
        return End(how=Ending.CRASHED.value, why=f"the guest panicked or restarted itself: {words}")
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return End(how=Ending.CRASHED.value, why=f"QEMU ended with {how}: {words}")


def last_words(said: bytes) -> str:
    """Return the end of an output on one line, fit to be shown."""
    text = " ".join(said.decode(errors="replace").split())
    return "".join(char if char.isprintable() else "?" for char in text)[-WHY_MAX_CHARS:]
