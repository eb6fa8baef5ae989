"""
Launchd, and the loginwindow that it starts: services, sessions, and a wrong password that is sealed.

A program that is run by a service is looked at, not started: one whose text holds ``remuda-mac: crashes`` ends at once,
again and again; any other stays up.
"""

from __future__ import annotations

import plistlib
from pathlib import Path
from typing import Any

from tests.support.scripted_mac.programs.model import UID, USER, changed, fail, read, say

LOGINWINDOW = "com.apple.loginwindow"
KEY = bytes.fromhex("7d895223d2bcddeaa3b91f")
SEALED = b"<sealed>"
NO_SERVICE, NO_DOMAIN, IO_ERROR, NO_PROCESS = 113, 125, 5, 3
CRASHES = b"remuda-mac: crashes"


def launchctl(words: list[str]) -> int:
    """Answer as launchctl does, by its codes and its main lines."""
    verb, rest = words[0], words[1:]
    known = {
        "print": _print,
        "list": _list,
        "bootstrap": _bootstrap,
        "bootout": _bootout,
        "kickstart": _kickstart,
        "enable": _enable,
        "disable": _disable,
        "print-disabled": _print_disabled,
        "kill": _kill,
    }
    if verb not in known:
        fail(64, f"Unrecognized subcommand: {verb}")
    return known[verb](rest)


def _place(target: str) -> tuple[str, str]:
    """Return the domain and the label of a target such as ``system/dev.remuda.agent`` or ``gui/501``."""
    parts = target.split("/")
    if parts[0] == "system":
        return "system", parts[1] if len(parts) > 1 else ""
    return "/".join(parts[:2]), parts[2] if len(parts) > 2 else ""


def _domain(state: dict[str, Any], domain: str) -> None:
    if domain in ("system", f"user/{UID}"):
        return
    if domain != f"gui/{UID}" or not state["aqua"]:
        fail(NO_DOMAIN, f"Could not find domain for {domain}")


def _service(state: dict[str, Any], domain: str, label: str) -> dict[str, Any]:
    _domain(state, domain)
    found: dict[str, Any] | None = state["services"].get(f"{domain}/{label}")
    if found is None:
        fail(NO_SERVICE, f'Could not find service "{label}" in domain for {domain}')
    return found


def _print(words: list[str]) -> int:
    domain, label = _place(words[0])
    if domain == f"gui/{UID}":
        _come_up()
    with changed() as state:
        if not label:
            _domain(state, domain)
            for line in _domain_lines(state, domain):
                say(line)
            return 0
        if (domain, label) == ("system", LOGINWINDOW):
            up = [f"\tpid = {state['loginwindow']}"] if state["loginwindow"] else []
            for line in (f"{domain}/{label} = {{", *up, "}"):
                say(line)
            return 0
        service = _service(state, domain, label)
        _turn(state, service)
        for line in _described(domain, label, service):
            say(line)
    return 0


def _come_up() -> None:
    """Let a session that begins take a moment: until somebody has asked for it twice."""
    with changed() as state:
        if state["aqua_after"]:
            state["aqua_after"] -= 1
            state["aqua"] = state["aqua_after"] == 0


def _domain_lines(state: dict[str, Any], domain: str) -> list[str]:
    if domain == "system":
        return ["system = {", "\ttype = system", "}"]
    return [
        f"{domain} = {{",
        "\ttype = login",
        f"\tcreator = loginwindow[{state['loginwindow']}]",
        "\tsession = Aqua",
        "}",
    ]


def _described(domain: str, label: str, service: dict[str, Any]) -> list[str]:
    up = service["pid"] is not None
    return [
        f"{domain}/{label} = {{",
        f"\tactive count = {int(up)}",
        f"\tpath = {service['path']}",
        "\ttype = LaunchDaemon",
        f"\tstate = {'running' if up else 'spawn scheduled' if service['crashes'] else 'not running'}",
        "",
        f"\tprogram = {service['program']}",
        f"\truns = {service['runs']}",
        *([f"\tpid = {service['pid']}"] if up else []),
        f"\tlast exit code = {'1' if service['crashes'] else '(never exited)'}",
        "}",
    ]


def _list(words: list[str]) -> int:
    state = read()
    if words:
        service = _service(state, "system", words[0])
        if service["pid"] is not None:
            say(f'{{\n\t"Label" = "{words[0]}";\n\t"PID" = {service["pid"]};\n}};')
        return 0
    for name, service in sorted(state["services"].items()):
        say(f"{service['pid'] or '-'}\t0\t{name.rsplit('/', 1)[1]}")
    return 0


def _turn(state: dict[str, Any], service: dict[str, Any]) -> None:
    """Let a crash-looping service end and begin again each time somebody looks."""
    if service["crashes"]:
        service["runs"] += 1
        service["pid"] = None if service["runs"] % 2 else _next_pid(state)


def _next_pid(state: dict[str, Any]) -> int:
    state["last_pid"] += 1
    return int(state["last_pid"])


def start(state: dict[str, Any], service: dict[str, Any]) -> None:
    """Start the service's program anew."""
    program = Path(service["program"])
    service["runs"] += 1
    there = program.is_file()
    service["crashes"] = service["keep_alive"] and (not there or CRASHES in program.read_bytes())
    stays = there and service["keep_alive"]
    service["pid"] = _next_pid(state) if stays and not service["crashes"] else None


def load(state: dict[str, Any], domain: str, path: Path) -> str:
    """Take a plist into a domain, and return its label."""
    about = path.stat()
    if domain == "system" and (about.st_uid != 0 or about.st_mode & 0o022):
        fail(IO_ERROR, "Bootstrap failed: 5: Input/output error (wrong owner or mode)")
    try:
        told = plistlib.loads(path.read_bytes())
    except (plistlib.InvalidFileException, ValueError):
        fail(IO_ERROR, "Bootstrap failed: 5: Input/output error (no plist)")
    name = f"{domain}/{told['Label']}"
    if name in state["services"]:
        fail(IO_ERROR, "Bootstrap failed: 5: Input/output error")
    service: dict[str, Any] = {
        "path": str(path),
        "program": told.get("Program") or told["ProgramArguments"][0],
        "arguments": list(told.get("ProgramArguments", [])),
        "keep_alive": bool(told.get("KeepAlive")),
        "runs": 0,
        "pid": None,
        "crashes": False,
    }
    state["services"][name] = service
    if told.get("RunAtLoad") or told.get("KeepAlive"):
        start(state, service)
    return str(told["Label"])


def _bootstrap(words: list[str]) -> int:
    domain, path = words[0], Path(words[1])
    if not path.is_file():
        fail(NO_SERVICE, f"Bootstrap failed: 2: No such file or directory: {path}")
    with changed() as state:
        _domain(state, domain)
        load(state, domain, path)
    return 0


def _bootout(words: list[str]) -> int:
    domain, label = _place(words[0])
    if len(words) > 1:
        label = str(plistlib.loads(Path(words[1]).read_bytes())["Label"])
    with changed() as state:
        if f"{domain}/{label}" not in state["services"]:
            fail(NO_PROCESS, "Boot-out failed: 3: No such process")
        del state["services"][f"{domain}/{label}"]
    return 0


def _kickstart(words: list[str]) -> int:
    domain, label = _place(words[-1])
    with changed() as state:
        if (domain, label) == ("system", LOGINWINDOW):
            if "-k" in words or not state["loginwindow"]:
                login(state)
            return 0
        service = _service(state, domain, label)
        if "-k" in words or service["pid"] is None:
            start(state, service)
    return 0


def _enable(words: list[str]) -> int:
    with changed() as state:
        state["disabled"] = [name for name in state["disabled"] if name != words[0]]
    return 0


def _disable(words: list[str]) -> int:
    with changed() as state:
        state["disabled"] = sorted({*state["disabled"], words[0]})
    return 0


def _print_disabled(words: list[str]) -> int:
    del words
    for name in read()["disabled"]:
        say(f'"{name}" => disabled')
    return 0


def _kill(words: list[str]) -> int:
    return _kickstart(["-k", words[-1]])


def decoded(held: bytes) -> bytes:
    plain = bytes(byte ^ KEY[n % len(KEY)] for n, byte in enumerate(held))
    return plain.split(b"\0", 1)[0]


def login(state: dict[str, Any]) -> None:
    """Begin as loginwindow does: log in whom it is told to, or seal a password that is wrong."""
    state.update(loginwindow=_next_pid(state), aqua=False, aqua_after=0, vms=[])
    preferences, kept = (
        Path("/Library/Preferences/com.apple.loginwindow.plist"),
        Path("/etc/kcpassword"),
    )
    user = (
        plistlib.loads(preferences.read_bytes()).get("autoLoginUser")
        if preferences.exists()
        else None
    )
    if user != USER or not kept.exists():
        return
    if decoded(kept.read_bytes()) == state["password"].encode("latin-1"):
        state["aqua_after"] = 2
        return
    padded = SEALED + b"\0" * (len(KEY) - len(SEALED) % len(KEY))
    kept.write_bytes(bytes(byte ^ KEY[n % len(KEY)] for n, byte in enumerate(padded)))


def killall(words: list[str]) -> int:
    """Signal by name. Only what runs can be signalled."""
    name = words[-1]
    if name == "loginwindow":
        with changed() as state:
            if not state["loginwindow"]:
                fail(1, "No matching processes belonging to you were found")
            login(state)
        return 0
    if name not in read()["processes"]:
        fail(1, "No matching processes belonging to you were found")
    return 0


def pgrep(words: list[str]) -> int:
    """Say whether something runs: loginwindow and the Dock of a session are known, and VMs."""
    state, name = read(), words[-1]
    running = {"loginwindow": state["loginwindow"], "Dock": state["aqua"], "Finder": state["aqua"]}
    if running.get(name) or (name.startswith("tart") and state["vms"]):
        say("321")
        return 0
    return 1
