from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from remuda.adapters.kube_client.connection import Credential
from remuda.adapters.kube_client.credentials import FromPlugin, Plugin
from remuda.ports.kube import Refused

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
V1 = "client.authentication.k8s.io/v1"
FIRST, SECOND, NUMBERED = "token-1", "token-2", "token-$n"


class StoppedClock:
    """A clock that shows what the test sets it to."""

    def __init__(self) -> None:
        self.time = NOON

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


def a_plugin(
    folder: Path, script: str, *, deadline_s: float = 10.0, install_hint: str = ""
) -> tuple[FromPlugin, StoppedClock]:
    file = folder / "plugin"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    clock = StoppedClock()
    plugin = Plugin(
        command=str(file),
        args=("--for", "me"),
        env={"EXTRA": "1"},
        deadline_s=deadline_s,
        install_hint=install_hint,
        cluster={"server": "https://h:1"},
    )
    return FromPlugin(plugin, clock, {"PATH": "/usr/bin:/bin", "FOLDER": str(folder)}), clock


def answer(**status: str) -> str:
    body = {"apiVersion": V1, "kind": "ExecCredential", "status": status}
    return msgspec.json.encode(body).decode()


def counting(**status: str) -> str:
    """Return a script that gives another token each time it is asked."""
    body = answer(token=NUMBERED, **status)
    return f"""echo x >>"$FOLDER/count"; n=$(wc -l <"$FOLDER/count" | tr -d ' ')
cat <<END
{body}
END"""


async def test_a_plugin_is_told_who_asks_and_its_token_is_kept(tmp_path: Path) -> None:
    script = 'printf "%s|%s|%s" "$*" "$EXTRA" "$KUBERNETES_EXEC_INFO" >"$FOLDER/told"\n'
    plugin, clock = a_plugin(tmp_path, script + counting())

    assert await plugin.current() == Credential(token=FIRST)
    clock.time += timedelta(days=365)
    assert await plugin.current() == Credential(token=FIRST)
    args, extra, told = (tmp_path / "told").read_text().split("|")
    assert (args, extra) == ("--for me", "1")
    assert msgspec.json.decode(told) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": "https://h:1"}},
    }


async def test_a_token_is_asked_for_anew_shortly_before_it_expires(tmp_path: Path) -> None:
    plugin, clock = a_plugin(tmp_path, counting(expirationTimestamp="2026-11-15T12:10:00Z"))

    assert (await plugin.current()).token == FIRST
    clock.time = NOON + timedelta(minutes=9, seconds=45)
    assert (await plugin.current()).token == FIRST
    clock.time = NOON + timedelta(minutes=9, seconds=50)
    assert (await plugin.current()).token == SECOND


async def test_many_refused_at_once_ask_once(tmp_path: Path) -> None:
    plugin, _ = a_plugin(tmp_path, counting())
    old = await plugin.current()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(plugin.renew(old), name=str(n)) for n in range(5)]
    assert {task.result().token for task in tasks} == {SECOND}


async def test_a_plugin_may_give_a_client_certificate(tmp_path: Path) -> None:
    body = answer(clientCertificateData="CERT", clientKeyData="KEY")
    plugin, _ = a_plugin(tmp_path, f"echo '{body}'")

    assert await plugin.current() == Credential(certificate_pem=b"CERT", key_pem=b"KEY")


LONG = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        pytest.param(
            "echo not logged in >&2; exit 3", "it ended with 3: not logged in", id="fails"
        ),
        pytest.param(f"echo '{LONG} is bad' >&2; exit 1", "ended with 1: … is bad", id="leaks"),
        pytest.param(f"echo 'token: {LONG}'", "not an ExecCredential", id="prints something else"),
        pytest.param(f"echo '{answer()}'", "neither a token nor", id="gives nothing"),
        pytest.param(f"echo '{answer(clientKeyData='K')}'", "without its key", id="gives a half"),
        pytest.param(
            f"echo '{answer(token=FIRST, expirationTimestamp='2030-01-01T00:00:00')}'",
            "not an ExecCredential",
            id="a time without a zone",
        ),
        pytest.param(
            f"echo '{answer(token=FIRST).replace(V1, 'example/v1')}'",
            "example/v1",
            id="other version",
        ),
    ],
)
async def test_a_plugin_that_gives_nothing_says_why_and_nothing_secret(
    tmp_path: Path, script: str, says: str
) -> None:
    plugin, _ = a_plugin(tmp_path, script)

    with pytest.raises(Refused, match=says) as caught:
        await plugin.current()
    assert LONG not in str(caught.value)


async def test_a_plugin_that_is_not_installed_gives_its_hint(tmp_path: Path) -> None:
    plugin, _ = a_plugin(tmp_path, "", install_hint="Install it with brew.\n")
    (tmp_path / "plugin").unlink()

    with pytest.raises(Refused, match=r"No such file.*\. Install it with brew\.$"):
        await plugin.current()


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize(
    "script",
    [
        pytest.param('sleep 60 & echo $! >"$FOLDER/child"; wait', id="it waits for its child"),
        pytest.param('sleep 60 & echo $! >"$FOLDER/child"', id="it leaves its child behind"),
    ],
)
async def test_a_plugin_that_hangs_is_ended_with_all_it_started(
    tmp_path: Path, script: str, *, cancelled: bool
) -> None:
    plugin, _ = a_plugin(tmp_path, script, deadline_s=30 if cancelled else 0.5)

    with pytest.raises(TimeoutError if cancelled else Refused):
        async with asyncio.timeout(0.5 if cancelled else 30):
            await plugin.current()
    for _ in range(100):
        if not runs(tmp_path / "child"):
            return
        await asyncio.sleep(0.05)
    pytest.fail("the plugin's child is still running")


def runs(pid_file: Path) -> bool:
    """Whether the process is there and not merely unburied."""
    stat = Path("/proc", pid_file.read_text().strip(), "stat")
    return stat.exists() and stat.read_text().split()[2] != "Z"
