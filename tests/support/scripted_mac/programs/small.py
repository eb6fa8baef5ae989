"""The small programs of a Mac: preferences, power, names, and the tools whose options differ from everybody else's."""

from __future__ import annotations

import grp
import json
import plistlib
import pwd
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.scripted_mac.programs import launchd, packet_filter
from tests.support.scripted_mac.programs.model import (
    CALLER,
    STAFF,
    UID,
    USER,
    changed,
    fail,
    is_root,
    read,
    say,
)

if TYPE_CHECKING:
    import os

NO_DEFAULT = "The domain/default pair of ({0}, {1}) does not exist"


def defaults(words: list[str]) -> int:
    """Read, write and delete preferences, in the files where a Mac has them."""
    host = "-currentHost" in words
    words = [word for word in words if word != "-currentHost"]
    verb, domain, key, rest = words[0], words[1], (words[2:3] or [""])[0], words[3:]
    path = _preferences(domain, host=host)
    held: dict[str, Any] = plistlib.loads(path.read_bytes()) if path.exists() else {}
    if verb == "read":
        if key not in held:
            fail(1, NO_DEFAULT.format(domain, key))
        say(_shown(held[key]))
        return 0
    if verb == "delete":
        if key not in held:
            fail(1, NO_DEFAULT.format(domain, key))
        del held[key]
    elif verb == "write" and rest[0] == "-dict-add":
        held[key] = {**held.get(key, {}), rest[1]: _value(rest[2:])}
    elif verb == "write":
        held[key] = _value(rest)
    else:
        fail(255, f"defaults {verb} is not known here")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(plistlib.dumps(held))
    path.chmod(0o644)
    if not is_root():
        shutil.chown(path, UID, STAFF)
    return 0


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "\n".join(
            ("{", *(f"    {key} = {_shown(each)};" for key, each in value.items()), "}")
        )
    return str(int(value)) if isinstance(value, bool) else str(value)


def _preferences(domain: str, *, host: bool) -> Path:
    if domain.startswith("/"):
        return Path(domain if domain.endswith(".plist") else domain + ".plist")
    home = Path(pwd.getpwnam(CALLER[0]).pw_dir) / "Library/Preferences"
    return home / "ByHost" / f"{domain}.0000.plist" if host else home / f"{domain}.plist"


def _value(words: list[str]) -> object:
    if len(words) == 1:
        return words[0]
    kind, value = words[0], words[1]
    if kind in ("-bool", "-boolean"):
        return value.lower() in ("true", "yes", "1")
    if kind in ("-int", "-integer"):
        return int(value)
    return words[1:] if kind == "-array" else value


def pmset(words: list[str]) -> int:
    """Set and show how the Mac saves power."""
    if words[0] == "-g":
        say("AC Power:")
        for name, value in sorted(read()["pmset"].items()):
            say(f" {name:<20} {value}")
        return 0
    if not is_root():
        fail(1, "pmset must be run as root")
    with changed() as state:
        pairs = words[1:]
        for name, value in zip(pairs[::2], pairs[1::2], strict=True):
            state["pmset"][name] = value
    return 0


def scutil(words: list[str]) -> int:
    """Set and show the Mac's names."""
    verb, name = words[0], words[1]
    if verb == "--get":
        value = read()["names"].get(name)
        if value is None:
            fail(1, f"{name}: not set")
        say(value)
        return 0
    if not is_root():
        fail(1, "Permission denied")
    with changed() as state:
        state["names"][name] = words[2]
    return 0


def dscl(words: list[str]) -> int:
    """Show an account's number or shell."""
    path, key = words[2], words[3]
    about = pwd.getpwnam(path.rsplit("/", 1)[1])
    known = {
        "UniqueID": about.pw_uid,
        "UserShell": about.pw_shell,
        "NFSHomeDirectory": about.pw_dir,
    }
    if key not in known:
        fail(181, f"No such key: {key}")
    say(f"{key}: {known[key]}")
    return 0


def stat(words: list[str]) -> int:
    """Show what a format of BSD asks for."""
    follow = not any(word == "-f" or word.endswith("f") for word in words[:1]) or "-L" in words
    rest = [word for word in words if word not in ("-L", "-n")]
    if rest[0] not in ("-f", "-Lf"):
        fail(1, "stat: illegal option")
    shape, paths = rest[1], rest[2:]
    for path in paths:
        if path == "/dev/console":
            say(shape.replace("%Su", USER if read()["aqua"] else "root").replace("%u", str(UID)))
            continue
        try:
            about = Path(path).stat() if follow else Path(path).lstat()
        except OSError:
            fail(1, f"stat: {path}: stat: No such file or directory")
        say(_shaped(shape, about))
    return 0


def _shaped(shape: str, about: os.stat_result) -> str:
    mode = about.st_mode & 0o7777
    for mark, value in (
        ("%OLp", f"{mode:o}"), ("%Lp", f"{mode & 0o777:o}"), ("%Mp%Lp", f"{mode:o}"), ("%p", f"{about.st_mode:o}"),
        ("%Su", _name(about.st_uid)), ("%Sg", _group(about.st_gid)), ("%u", str(about.st_uid)),
        ("%g", str(about.st_gid)), ("%z", str(about.st_size)), ("%m", str(int(about.st_mtime))),
        ("%i", str(about.st_ino)), ("%l", str(about.st_nlink)), ("%b", str(about.st_blocks)),
    ):  # fmt: skip
        shape = shape.replace(mark, value)
    return shape


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def plutil(words: list[str]) -> int:
    """Check a plist."""
    if words[0] != "-lint":
        fail(1, "plutil: only -lint is known here")
    try:
        plistlib.loads(Path(words[-1]).read_bytes())
    except (plistlib.InvalidFileException, ValueError, OSError):
        fail(1, f"{words[-1]}: not a plist")
    say(f"{words[-1]}: OK")
    return 0


def sw_vers(words: list[str]) -> int:
    """Show the version of macOS."""
    told = {"-productVersion": "15.5", "-buildVersion": "24F74", "-productName": "macOS"}
    say(
        told[words[0].replace("--", "-")] if words else "ProductName:\tmacOS\nProductVersion:\t15.5"
    )
    return 0


def sysctl(words: list[str]) -> int:
    """Show numbers of the machine."""
    told = {"hw.memsize": "17179869184", "hw.ncpu": "8", "kern.boottime": "{ sec = 1, usec = 0 }"}
    say(told.get(words[-1], "0"))
    return 0


def fdesetup(words: list[str]) -> int:
    """Say whether the disk is locked at a start."""
    del words
    say("FileVault is On." if read()["filevault"] else "FileVault is Off.")
    return 0


def reboot(words: list[str]) -> int:
    """Start the Mac again: the filter loads its file anew, launchd its jobs, and loginwindow logs in."""
    del words
    with changed() as state:
        packet_filter.boot(state["pf"])
        state["services"] = {}
        for path in sorted(Path("/Library/LaunchDaemons").glob("*.plist")):
            launchd.load(state, "system", path)
        launchd.login(state)
    return 0


def xcode_select(words: list[str]) -> int:
    """Show or choose the developer tools."""
    if words[0] == "-p":
        chosen = read()["xcode"]
        if not chosen:
            fail(2, "xcode-select: error: unable to get active developer directory")
        say(chosen)
        return 0
    with changed() as state:
        state["xcode"] = words[1]
    return 0


def xcodebuild(words: list[str]) -> int:
    """Accept the licence and make the tools ready."""
    if words[0] == "-runFirstLaunch":
        with changed() as state:
            state["xcode_ready"] = True
    elif words[0] == "-checkFirstLaunchStatus" and not read()["xcode_ready"]:
        fail(69, "not ready")
    return 0


def tart_list(words: list[str]) -> int:
    """Show the VMs as Tart lists them: those of the state run, and an image does not."""
    del words
    vms = [{"Name": name, "Running": True} for name in read()["vms"]]
    say(json.dumps([*vms, {"Name": "image", "Running": False}]))
    return 0


def nothing(words: list[str]) -> int:
    """Do nothing, and say that it went well."""
    del words
    return 0


PROGRAMS = {
    "defaults": defaults,
    "pmset": pmset,
    "scutil": scutil,
    "dscl": dscl,
    "stat": stat,
    "plutil": plutil,
    "sw_vers": sw_vers,
    "sysctl": sysctl,
    "fdesetup": fdesetup,
    "reboot": reboot,
    "xcode-select": xcode_select,
    "xcodebuild": xcodebuild,
    "tart-list": tart_list,
    **dict.fromkeys(("codesign", "xattr", "dscacheutil", "chflags"), nothing),
}
