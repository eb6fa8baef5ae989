from __future__ import annotations

import json

import pytest

from remuda.adapters.tart import texts
from remuda.ports.vms import (
    HostUnfit,
    NoSlot,
    NoSpace,
    NotThere,
    Refused,
    StillRunning,
    VmsError,
)


@pytest.mark.parametrize(
    ("code", "said", "kind"),
    [
        (2, 'the specified VM "a" does not exist', NotThere),
        (1, 'Error: the specified VM "a" does not exist', NotThere),
        (1, 'VM "a" is running', StillRunning),
        (2, 'VM "a" is already running!', StillRunning),
        (1, "The number of VMs exceeds the system limit (other running VMs: a, b)", NoSlot),
        (1, "Error: The operation couldn't be completed. No space left on device", NoSpace),
        (1, "Error: You can\u2019t save the file because there isn\u2019t enough space.", NoSpace),
        (1, "Error: You can't save the file because there isn't enough space.", NoSpace),
        (1, "Error: the volume \u201cData\u201d is out of space.", NoSpace),
        (1, 'UnexpectedHTTPStatusCode(when: "pulling manifest", code: 404, details: "")', Refused),
        (1, 'UnexpectedHTTPStatusCode(when: "pulling manifest", code: 500, details: "")', VmsError),
        (1, "VM should have 4 CPU cores at minimum (requested 1)", Refused),
        (64, "Error: Unknown option '--x'", Refused),
        (1, "Error Domain=VZErrorDomain Code=-9 HostKey", HostUnfit),
        (1, "the file does not exist", VmsError),
        (1, "", VmsError),
        (-9, "", VmsError),
    ],
)
def test_an_error_says_what_must_be_done(code: int, said: str, kind: type[VmsError]) -> None:
    error = texts.error_of("It failed", code, said.encode())
    assert type(error) is kind
    assert error.why


@pytest.mark.parametrize(
    "said",
    [
        "401 for https://builder:hunter2@registry.example/v2/",
        "sent Authorization: Bearer hunter2.hunter2",
        "sent header Basic hunter2hunter2=",
        'details: "token=hunter2&scope=x"',
        'password: "hunter2"',
        "VNC server is running at vnc://:hunter2@127.0.0.1:5900",
    ],
)
def test_no_error_repeats_a_credential(said: str) -> None:
    assert "hunter2" not in str(texts.error_of("It failed", 1, said.encode()))
    assert "hunter2" not in texts.last_of(said.encode())
    line = f"guest has stopped the virtual machine due to error: {said}\n"
    assert "hunter2" not in str(texts.crash(line.encode()))


def test_what_a_person_needs_of_an_error_is_left() -> None:
    error = texts.error_of("It failed", 1, b"could not reach https://registry.example/v2/x:1\n")
    assert "https://registry.example/v2/x:1" in str(error)


def test_an_endless_error_is_cut() -> None:
    assert len(str(texts.error_of("It failed", 1, b"x" * 1_000_000))) < 1000


@pytest.mark.parametrize("name", ["a", "remuda-0d3c", "remuda-golden-abc", "A.b_c-9", "x" * 200])
def test_names_that_are_names(name: str) -> None:
    assert texts.checked_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "-a", "--help", ".", "..", "a/b", "a b", "a\n", "a..b", "\N{EURO SIGN}", "x" * 201]
)
def test_names_that_could_be_taken_for_something_else(name: str) -> None:
    with pytest.raises(Refused):
        texts.checked_name(name)


def test_a_list_is_read_whichever_version_wrote_it() -> None:
    now = [
        {"Source": "local", "Name": "a", "Disk": 50, "Size": 12, "Running": True, "State": "x"},
        {"Source": "OCI", "Name": "r.example/x:1", "Size": "1.5", "New": {"deep": []}},
        {"Name": "b", "State": "running"},
        {"name": "c", "state": "suspended", "source": "local", "size": None},
        {"Name": "r.example/x@sha256:0", "Size": "n/a"},
    ]
    read = texts.read_list(json.dumps(now).encode())
    assert [(row.name, row.is_local, row.running) for row in read] == [
        ("a", True, True),
        ("r.example/x:1", False, False),
        ("b", True, True),
        ("c", True, False),
        ("r.example/x@sha256:0", False, False),
    ]
    assert [row.size_bytes for row in read] == [12 * 10**9, 15 * 10**8, 0, 0, 0]
    assert texts.read_list(json.dumps({"vms": now}).encode()) == read
    assert texts.read_list(b"[]\n") == ()


@pytest.mark.parametrize(
    "raw", [b"", b"null", b"{}", b"nonsense", b"[{}]", b"[1]", b'[{"Name": 1}]', b"[" * 100_000]
)
def test_a_list_that_cannot_be_read_whole_is_an_error(raw: bytes) -> None:
    with pytest.raises(VmsError, match="cannot be read"):
        texts.read_list(raw)


def test_whether_a_vm_runs_is_read_or_unknown() -> None:
    assert texts.read_running(b'{"Running": true, "Size": "1.234"}')
    assert texts.read_running(b'{"State": "Running"}')
    assert not texts.read_running(b'{"Running": false, "State": "suspended"}')
    for raw in (b"{}", b"[]", b"x"):
        with pytest.raises(VmsError):
            texts.read_running(raw)


def test_how_far_a_pull_is() -> None:
    lines = [b"0%", b" 42 %", b"pulling disk (3 of 9)... 17.3%", b"100%", b"999%"]
    assert [texts.percent(line) for line in lines] == [0, 42, 17, 100, 100]
    for line in (b"waiting for lock...", b"pulling registry.example/x:1", b"", b"\xff"):
        assert texts.percent(line) is None


def test_a_full_disk_is_read_by_blocks() -> None:
    mac = (
        "Filesystem     1024-blocks      Used Available Capacity iused     ifree %iused  Mounted on\n"
        "/dev/disk3s1s1   100000000  10000000  20000000    34%  404167 200000000    0%   /\n"
    )
    assert texts.used_share(mac) == pytest.approx(0.8), "what other volumes take is taken as well"
    linux = "Filesystem 1K-blocks Used Available Use% Mounted on\n/dev/vda1 1000 950 0 100% /\n"
    assert texts.used_share(linux) == 1.0
    for odd in ("", "df: /: No such file", "x 0 0 0 0% /"):
        assert texts.used_share(odd) is None


def test_a_crash_is_told_by_its_line() -> None:
    line = b"guest has stopped the virtual machine due to error: Internal Virtualization error."
    assert texts.crash(b"before\n" + line + b"\nafter\n") == "Internal Virtualization error."
    assert texts.crash(b"the guest has stopped\n") is None
    assert texts.crash(b"") is None
