"""What holds for every test run: say what ran, and skip nothing under CI."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

# A busy machine is not a fault: no property fails for how long it takes, nor for how long its inputs take to draw.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

IN_CI = os.environ.get("CI") == "true"

# A shell starts what it runs in the background with Ctrl-C ignored, and every program below inherits that. Some tests
# press Ctrl-C: a handler of ours is what programs that we start do not inherit.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _suite(nodeid: str) -> str:
    """Name the suite of a test: its first folder, and for a contract the backend that it ran on."""
    folder = nodeid.split("/")[1] if nodeid.count("/") > 1 else "tests"
    backend = next((b for b in ("memory", "http", "real") if f"[{b}" in nodeid), "")
    return f"{folder} on {backend}" if folder == "contract" and backend else folder


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what was collected: it stays to the end, and thousands of tests are a lot."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    ran = Counter(_suite(report.nodeid) for report in terminalreporter.stats.get("passed", []))
    terminalreporter.write_line(
        "passed: " + ", ".join(f"{suite} {n}" for suite, n in sorted(ran.items()))
    )
    if IN_CI and terminalreporter.stats.get("skipped"):
        terminalreporter.write_line("CI=true: nothing may be skipped, so this run failed", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if IN_CI and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
