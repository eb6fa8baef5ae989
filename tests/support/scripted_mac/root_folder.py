"""Lays out the scripted Mac's root folder: its programs, its accounts, and what a new Mac has on its disk."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.debian import unpacked_or_skip


def words(text: str) -> list[str]:
    """Return what stands between blanks: shorter to read than a list of quoted names."""
    return text.split()


PROGRAMS = Path(__file__).parent / "programs"
MAIN = "/usr/libexec/mac/tests/support/scripted_mac/programs/main.py"
UID, STAFF, USER, PASSWORD_WORKS = 501, 20, "m1", "swordfish ' \" $HOME `id` \\ é"
APPLETS = (
    *words(
        "awk base64 basename cat chgrp chmod chown cmp cp cut date dd diff dirname du env expr false find fold"
    ),
    *words(
        "grep gunzip gzip head hostname id install kill ln ls md5sum mkdir mktemp mv nc nohup od paste ps pwd"
    ),
    *words("readlink realpath rm rmdir sed seq sort sync tail tar tee test touch tr true uname"),
    *words("uniq wc which whoami xargs xxd yes unzip logger printenv"),
)
"""What of busybox a Mac has as well."""
OF_MAC = (
    *words(
        "/usr/bin/sudo /usr/sbin/visudo /bin/launchctl /usr/bin/defaults /usr/bin/pmset /usr/sbin/scutil"
    ),
    *words(
        "/sbin/pfctl /usr/bin/dscl /usr/bin/codesign /usr/bin/sw_vers /usr/bin/stat /usr/bin/shasum"
    ),
    *words("/usr/bin/plutil /usr/bin/killall /usr/bin/pgrep /usr/sbin/sysctl /usr/bin/xattr"),
    *words("/usr/bin/xcode-select /usr/bin/xcodebuild /sbin/reboot /usr/bin/dscacheutil"),
    *words("/usr/bin/fdesetup"),
    *words("/usr/bin/curl /usr/bin/chflags /usr/libexec/mac/tart-list"),
)
_LOG = 'printf "%s\\0" "$0" "$@" >>/.seen/argv; printf "\\n" >>/.seen/argv\n'
_ASK = """\
LC_ALL=C
ask() {
  . /.mac/port
  exec 3<>"/dev/tcp/127.0.0.1/$port"
  printf '%s\\0' "$#" "$@" >&3
  IFS= read -r -d '' answer <&3
  exec 3>&-
}
"""
_SLEEP = """\
case "$(tr '\\0' ' ' </proc/$PPID/cmdline)" in
*remuda-kill*) exec /bin/busybox sleep 0.1 ;;
*ssh-guard*|*-contract*) exec /bin/busybox sleep "$1" ;;
esac
exec /bin/busybox sleep "$(awk "BEGIN { print $1 / 100 }")"
"""
"""Time passes a hundred times as fast, but where something is undone after a time unless it was confirmed."""
_PS = """\
[ "$1 $2 $4 $5" = "-ww -p -o command=" ] || exit 1
{ tr '\\0' ' ' </proc/"$3"/cmdline; } 2>/dev/null
"""
PF_CONF = """\
#
# Default PF configuration file.
#
scrub-anchor "com.apple/*"
nat-anchor "com.apple/*"
rdr-anchor "com.apple/*"
dummynet-anchor "com.apple/*"
anchor "com.apple/*"
load anchor "com.apple" from "/etc/pf.anchors/com.apple"
"""


def lay_out(root: Path, *, key: str, password: str) -> None:
    """Make the folder what a Mac's disk is on its first day."""
    _folders(root)
    _accounts(root, key, password)
    _shells(root)
    _programs(root)
    _sshd(root)
    (root / "private/etc/pf.conf").write_text(PF_CONF)
    (root / "private/etc/pf.anchors/com.apple").write_text('anchor "200.AirDrop/*"\n')
    (root / "private/etc/sudoers").write_text("root ALL = (ALL) ALL\n%admin ALL = (ALL) ALL\n")
    (root / "private/etc/sudoers").chmod(0o440)


def _folders(root: Path) -> None:
    for name in (
        *words(
            "bin sbin usr/bin usr/sbin usr/lib usr/lib64 usr/libexec/mac usr/local Library/LaunchDaemons"
        ),
        *words(
            "Library/Preferences Users/m1/.ssh private/etc/pf.anchors private/etc/sudoers.d private/etc/ssh"
        ),
        *words(
            "private/var/log private/var/run/sshd private/var/root private/var/db dev proc opt/homebrew/bin"
        ),
        *words("System/Library/LaunchDaemons Applications Volumes run/sshd"),
    ):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name, mode in (("private/tmp", 0o1777), (".seen", 0o777), (".mac", 0o755)):
        (root / name).mkdir(exist_ok=True)
        (root / name).chmod(mode)
    for name, to in (
        ("etc", "private/etc"),
        ("var", "private/var"),
        ("tmp", "private/tmp"),
        ("lib", "usr/lib"),
        ("lib64", "usr/lib64"),
    ):
        (root / name).symlink_to(to)
    (root / ".seen/argv").touch()
    (root / ".seen/argv").chmod(0o666)


def _accounts(root: Path, key: str, password: str) -> None:
    etc = root / "private/etc"
    (etc / "passwd").write_text(
        "root::0:0:System Administrator:/var/root:/usr/libexec/bash\n"
        "sshd:*:74:74:sshd:/var/empty:/usr/bin/false\n"
        f"{USER}:x:{UID}:{STAFF}:{USER}:/Users/{USER}:/bin/zsh\n"
    )
    (etc / "group").write_text(
        f"wheel:*:0:root\nstaff:*:20:root\nadmin:*:80:root,{USER}\nsshd:*:74:\n"
    )
    hashed = subprocess.run(  # noqa: S603 - fixed words
        [str(busybox()), "mkpasswd", "-m", "sha512", "-P", "0"],
        input=password.encode(), capture_output=True, check=True,
    ).stdout.decode()  # fmt: skip
    (etc / "shadow").write_text(
        f"root::19000:0:99999:7:::\n{USER}:{hashed.strip()}:19000:0:99999:7:::\n"
    )
    (etc / "shadow").chmod(0o600)
    (etc / "shells").write_text("/usr/libexec/bash\n/bin/sh\n/bin/zsh\n")
    home = root / "Users" / USER
    (home / ".ssh/authorized_keys").write_text(key + "\n")
    for path in (home, home / ".ssh", home / ".ssh/authorized_keys"):
        shutil.chown(path, UID, STAFF)
    home.chmod(0o755)
    for name in (
        "Library",
        "Library/Preferences",
        "Library/Preferences/ByHost",
        "Library/LaunchAgents",
    ):
        (home / name).mkdir()
        shutil.chown(home / name, UID, STAFF)


def _shells(root: Path) -> None:
    """Bash reads scripts as a Mac's sh does; zsh, if there is one here, is the account's."""
    real = root / "usr/libexec"
    shutil.copy2(busybox(), root / "bin/busybox")
    shutil.copy2(shutil.which("bash") or "/bin/bash", real / "bash")
    zsh = shutil.which("zsh")
    if zsh:
        shutil.copy2(Path(zsh).resolve(), real / "zsh")
    _logged(root / "bin/sh", 'exec /usr/libexec/bash --posix "$@"')
    _logged(root / "bin/bash", 'exec /usr/libexec/bash "$@"')
    _logged(root / "bin/zsh", f'exec /usr/libexec/{"zsh" if zsh else "bash"} "$@"')


def _programs(root: Path) -> None:
    libexec = root / "usr/libexec/mac"
    for applet in APPLETS:
        _logged(root / "usr/bin" / applet, f'exec /bin/busybox {applet} "$@"')
    for name in words(
        "cat chmod cp date dd expr kill ln ls mkdir mv ps pwd rm rmdir sleep sync test"
    ):
        (root / "bin" / name).symlink_to(f"/usr/bin/{name}")
    (root / "usr/sbin/chown").symlink_to("/usr/bin/chown")
    _logged(root / "usr/bin/sleep", _SLEEP)
    _logged(root / "usr/bin/ps", _PS)
    inside = libexec / "tests/support/scripted_mac/programs"
    shutil.copytree(PROGRAMS, inside, ignore=shutil.ignore_patterns("__pycache__"))
    for path in OF_MAC:
        program = root / path[1:]
        program.unlink(missing_ok=True)
        _asks(program, f'ask "$USER" "$PWD" {program.name} "$@"; eval "$answer"')
    xcode = root / "Applications/Xcode.app/Contents/Developer/usr/bin"
    xcode.mkdir(parents=True)
    (xcode / "xcodebuild").symlink_to("/usr/bin/xcodebuild")
    _logged(root / "usr/bin/shasum", 'shift 2; exec /bin/busybox sha256sum "$@"')
    # Only a binary can become root: a busybox that may, as its su, run the shell that asks whether it is allowed.
    shutil.copy2(busybox(), libexec / "su")
    (libexec / "su").chmod(0o4755)
    (libexec / "judge").write_text(f'{_ASK}ask root / sudo-judge "$@"\neval "$answer"\n')
    judge = ". /usr/libexec/mac/judge"
    _asks(
        root / "usr/bin/sudo", f'exec /usr/libexec/mac/su -- root -c \'{judge}\' sudo "$UID" "$@"'
    )
    (root / "usr/libexec/mac-python").symlink_to(python())


def _sshd(root: Path) -> None:
    sshd = unpacked_or_skip("openssh-server") / "usr/sbin/sshd"
    shutil.copy2(sshd, root / "usr/sbin/sshd")
    found = (unpacked_or_skip("libwrap0") / "usr/lib").glob("*/libwrap.so.0*")
    (root / "usr/libexec/lib").mkdir()
    for library in found:
        shutil.copy2(library, root / "usr/libexec/lib" / library.name)


def _asks(path: Path, then: str) -> None:
    """Make a program that asks the server of programs, without another process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/libexec/bash\n{_LOG}{_ASK}{then}\n")
    path.chmod(0o755)


def _logged(path: Path, then: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/busybox sh\n{_LOG}{then}\n")
    path.chmod(0o755)


def busybox() -> Path:
    return unpacked_or_skip("busybox-static") / "bin" / "busybox"


def python() -> Path:
    """Return the interpreter behind any virtual environment. It is seen inside under the same path."""
    return Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
