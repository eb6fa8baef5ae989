"""VMs by Tart, on macOS: a driver that knows the program only by its command line."""

from remuda.adapters.tart.driver import TartVms
from remuda.adapters.tart.settings import TartSettings

__all__ = ["TartSettings", "TartVms"]
