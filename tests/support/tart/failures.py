"""What ``tart`` says when it fails: the message alone on stderr, and an exit code."""

from __future__ import annotations


class TartError(Exception):
    """Ends the program with this text and this code."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.text, self.code = text, code


def does_not_exist(name: str) -> TartError:
    return TartError(f'the specified VM "{name}" does not exist', 2)


def missing_files() -> TartError:
    return TartError("VM is missing some of its files (config.json, disk.img or nvram.bin)")


def is_running(name: str) -> TartError:
    return TartError(f'VM "{name}" is running')


def not_running(name: str) -> TartError:
    return TartError(f'VM "{name}" is not running', 2)


def already_running(name: str) -> TartError:
    return TartError(f'VM "{name}" is already running!', 2)


def too_many(others: list[str]) -> TartError:
    listed = ", ".join(others)
    return TartError(f"The number of VMs exceeds the system limit (other running VMs: {listed})", 1)
