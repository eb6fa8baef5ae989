"""``remuda host`` as a person runs it, against a Mac behind a real sshd."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from remuda.hosts.decide import kcpassword
from remuda.model.secret import Secret
from tests.support.scripted_mac import snapshots, states
from tests.support.scripted_mac.bootstrapping import GOOD_AGENT, KUBECONFIG, TART, tart_archive
from tests.support.scripted_mac.mac import Mac, prepared_by_another

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.scripted_mac.place import Place
    from tests.support.scripted_mac.snapshots import Snapshot

LONG_S = 300.0


@dataclass
class Terminal:
    """Where the command is typed."""

    place: Place
    folder: Path
    fresh: Snapshot

    def type(
        self, *words: str, password: str | None = None, pinned: bool = True
    ) -> tuple[int, str]:
        """Run it, and return its code and all that it said."""
        command = ["host", words[0], "m1@127.0.0.1", *words[1:]]
        command += ["--port", str(self.place.port), "--password-stdin"]
        command += ["--fingerprint", self.place.fingerprint] if pinned else []
        done = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-c", "from remuda.cli.main import main; main()", *command],
            input=(self.place.password if password is None else password).encode() + b"\n",
            capture_output=True,
            timeout=LONG_S,
            check=False,
            cwd=self.folder,
        )
        return done.returncode, (done.stdout + done.stderr).decode()


@pytest.fixture
def terminal(mac: Mac, tmp_path: Path) -> Terminal:
    (tmp_path / "key").write_bytes(mac.place.key.export_private_key())
    (tmp_path / "agent").write_bytes(GOOD_AGENT)
    (tmp_path / "kubeconfig").write_bytes(KUBECONFIG)
    (tmp_path / "tart.tar.gz").write_bytes(tart_archive())
    return Terminal(mac.place, tmp_path, mac.fresh)


def test_a_mac_is_prepared_by_its_password_once(terminal: Terminal) -> None:
    snapshots.put_back(terminal.place, terminal.fresh)
    code, said = terminal.type("prepare", pinned=False)
    assert (code, "is not known" in said) == (1, True)
    code, said = terminal.type("prepare", "--dry-run")
    assert (code, "+ /etc/sudoers.d/m1-nopasswd" in said) == (0, True)
    assert snapshots.changed(terminal.fresh, snapshots.taken(terminal.place)) == []

    code, first = terminal.type("prepare")
    assert (code, "127.0.0.1 is prepared" in first) == (0, True), first
    after = snapshots.taken(terminal.place)
    code, second = terminal.type("prepare", "--key", "key")
    assert (code, "nothing was changed" in second) == (0, True), second
    assert snapshots.changed(after, snapshots.taken(terminal.place)) == []
    assert terminal.place.password not in first + second
    assert terminal.place.password.encode() not in terminal.place.seen()


def test_a_wrong_password_says_what_to_do_and_is_tried_once(terminal: Terminal) -> None:
    snapshots.put_back(terminal.place, terminal.fresh)
    wrong = "canary-of-a-wrong-one"
    code, said = terminal.type("prepare", "--key", "key", password=wrong)
    assert code == 1
    assert "password is wrong" in said
    assert "set a new one in System Settings" in said
    assert wrong not in said
    assert states.read(terminal.place)["wrong_passwords"] == 1
    code, said = terminal.type("prepare", password=wrong)
    assert (code, "authorized_keys" in said) == (1, True), (
        "it says how to get in without the password"
    )


def test_a_sealed_password_is_found_and_mended_by_the_right_one(terminal: Terminal) -> None:
    snapshots.put_back(terminal.place, terminal.fresh)
    sealed = kcpassword.encode(Secret(b"<sealed>")).reveal()
    terminal.place.path("/private/etc/kcpassword").write_bytes(sealed)
    code, said = terminal.type("prepare")
    assert (code, "has sealed /etc/kcpassword" in said) == (0, True), said
    assert states.read(terminal.place)["aqua"]


def test_a_password_of_yesterday_is_found_sealed_although_every_command_took_it(
    mac: Mac, terminal: Terminal
) -> None:
    prepared_by_another(mac)
    wrong = "canary-of-yesterdays-password"
    code, said = terminal.type("prepare", "--key", "key", password=wrong)
    assert code == 1
    assert "macOS has sealed /etc/kcpassword: the password is wrong" in said
    assert "Find the right password" in said
    assert wrong not in said
    code, said = terminal.type("prepare", "--key", "key")
    assert (code, states.read(terminal.place)["aqua"]) == (0, True), said


def test_nobodys_session_is_ended_while_vms_run(mac: Mac, terminal: Terminal) -> None:
    prepared_by_another(mac)
    tart = terminal.place.path("/usr/local/bin/tart")
    tart.parent.mkdir(exist_ok=True)
    running = json.dumps(
        [{"Name": "vm-of-a-job", "Running": True}, {"Name": "image", "Running": False}]
    )
    tart.write_text(f"#!/bin/sh\necho '{running}'\n")
    tart.chmod(0o755)
    code, said = terminal.type("prepare")
    assert code == 4
    assert "these run: the VM vm-of-a-job\n" in said
    assert not terminal.place.path("/private/etc/kcpassword").exists()


def test_a_bootstrap_shows_what_it_would_do_refuses_what_cannot_be_and_does_the_rest_once(
    terminal: Terminal,
) -> None:
    snapshots.put_back(terminal.place, terminal.fresh)
    words = ["--node", "mini-1", "--fleet", "minis", "--agent", "agent", "--tart", "tart.tar.gz"]
    words += [
        "--tart-version",
        TART,
        "--dispatch-url",
        "https://dispatch.example.com",
        "--key",
        "key",
    ]
    code, said = terminal.type("bootstrap", *words, "--dry-run")
    assert (code, "+ /etc/sudoers.d/m1-nopasswd" in said) == (0, True), said
    code, said = terminal.type("bootstrap", *words, "--guests-may-reach", "10.0.0.1/8,tcp,443")
    assert (code, "has host bits set" in said) == (2, True), said
    assert snapshots.changed(terminal.fresh, snapshots.taken(terminal.place)) == []

    words += ["--ask-password", "--kubeconfig", "kubeconfig"]
    code, first = terminal.type("bootstrap", *words)
    assert (code, "mini-1 is as it should be: changed: sudo, auto-login" in first) == (0, True), (
        first
    )
    after = snapshots.taken(terminal.place)
    code, second = terminal.type("bootstrap", *words)
    assert (code, "mini-1 is as it should be: nothing was to do" in second) == (0, True), second
    assert snapshots.changed(after, snapshots.taken(terminal.place)) == []
    for secret in (terminal.place.password, "canary-of-the-kubeconfig"):
        assert secret not in first + second
        assert secret.encode() not in terminal.place.seen()
