#!/usr/bin/env python3
"""
Build a small Linux runner image for the QEMU driver: Debian's cloud kernel, busybox, and the guest runner.

    python3 images/qemu/build.py --into /var/lib/remuda/images/runners/linux:1

It needs qemu-img and mkfs.ext4, and apt-get to fetch the two packages unless they are given unpacked. It prints the
digest to put behind the image's name. Jobs that need more than a shell need an image of their own: see
docs/howto/qemu-images.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
META_PACKAGE = "linux-image-cloud-amd64"
MODULES = (
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci",
    "drivers/block/virtio_blk",
    "drivers/char/virtio_console",
    "drivers/char/hw_random/virtio-rng",
    "net/core/failover",
    "drivers/net/net_failover",
    "drivers/net/virtio_net",
)
"""In the order in which they need each other."""
FOLDERS = ("bin", "dev", "disk", "etc", "modules", "proc", "root", "run", "sys", "tmp")
FETCH_S = 600.0


def main() -> None:
    """Build it where the command line says."""
    told = _arguments()
    with tempfile.TemporaryDirectory() as scratch:
        kernel = told.kernel or _fetched(_newest_kernel(), Path(scratch))
        busybox = told.busybox or _fetched("busybox-static", Path(scratch))
        digest = build(told, kernel, busybox)
    print(f"sha256:{digest}")  # noqa: T201 - what the caller asks for


def _arguments() -> argparse.Namespace:
    about = argparse.ArgumentParser(description=(__doc__ or "").strip().partition("\n")[0])
    about.add_argument("--into", type=Path, required=True, help="the image's folder; made anew")
    about.add_argument("--kernel", type=Path, help="Debian's cloud kernel package, unpacked")
    about.add_argument("--busybox", type=Path, help="Debian's package busybox-static, unpacked")
    about.add_argument("--disk-mib", type=int, default=4096, help="the size of a guest's disk")
    about.add_argument("--memory-mib", type=int, default=512, help="unless a Pod says otherwise")
    about.add_argument("--cpus", type=int, default=1, help="likewise")
    about.add_argument(
        "--snapshot", action="store_true", help="start guests from a snapshot: a tenth of the time"
    )
    return about.parse_args()


def build(told: argparse.Namespace, kernel: Path, busybox: Path) -> str:
    """Make the image's folder, whole or not at all, and return its digest."""
    into: Path = told.into
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into.parent, prefix=".building-") as scratch:
        made = Path(scratch) / "image"
        made.mkdir(mode=0o755)
        shutil.copyfile(next(kernel.glob("boot/vmlinuz-*")), made / "kernel")
        (made / "initrd").write_bytes(initrd(kernel, busybox))
        _disk(Path(scratch) / "disk", made / "disk.qcow2", told.disk_mib)
        files = {
            file.name: {"sha256": _digest(file), "size": file.stat().st_size}
            for file in sorted(made.iterdir())
        }
        about = {"version": 1, "files": files, "snapshot": told.snapshot}
        about |= {"cpus": told.cpus, "memory_mib": told.memory_mib}
        (made / "image.json").write_text(json.dumps(about, indent=2) + "\n")
        if into.exists():
            into.rename(Path(scratch) / "before")
        made.rename(into)
    return _digest(into / "image.json")


def initrd(kernel: Path, busybox: Path) -> bytes:
    """Return all that the guest has in memory. Not compressed: to unpack it takes longer than to read it."""
    modules = next(kernel.glob("lib/modules/*")) / "kernel"
    names = [Path(module).name for module in MODULES]
    files = {
        "init": (HERE / "init").read_bytes(),
        "bin/busybox": (busybox / "bin/busybox").read_bytes(),
        "bin/remuda-guest": (HERE.parent / "guest/remuda-guest").read_bytes(),
        "bin/remuda-channel": (HERE.parent / "guest/remuda-channel").read_bytes(),
        "bin/remuda-reseed": reseed_program(),
        "modules/order": "".join(f"{name}\n" for name in names).encode(),
        "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n",
        "etc/group": b"root:x:0:\n",
    }
    for name, module in zip(names, MODULES, strict=True):
        files[f"modules/{name}.ko"] = (modules / f"{module}.ko").read_bytes()
    entries = [_entry(name, 0o040755, b"", number) for number, name in enumerate(FOLDERS, 1)]
    entries += [
        _entry(name, 0o100755, content, number)
        for number, (name, content) in enumerate(files.items(), 100)
    ]
    return b"".join([*entries, _entry("TRAILER!!!", 0, b"", 0)])


def _entry(name: str, mode: int, content: bytes, inode: int) -> bytes:
    """Write one entry of a cpio archive, as the kernel reads them."""
    raw_name = name.encode() + b"\0"
    numbers = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(raw_name), 0)
    header = b"070701" + b"".join(b"%08x" % number for number in numbers)
    return _padded(header + raw_name) + _padded(content)


def _padded(raw: bytes) -> bytes:
    return raw + bytes(-len(raw) % 4)


def _disk(raw: Path, made: Path, size_mib: int) -> None:
    with raw.open("wb") as file:
        file.truncate(size_mib * 1024**2)
    _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1", str(raw))
    _run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(made))


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


# --- randomness ------------------------------------------------------------------------------------------------------

RESEED_LOAD = 0x400000
RESEED_HEADERS = 64 + 56
RESEED_CODE = (
    "b802000000",  # mov eax, 2: open
    "488d3d@path",  # lea rdi, [path]
    "be02000000",  # mov esi, 2: to read and write
    "31d2",  # xor edx, edx
    "0f05",  # syscall
    "4989c4",  # mov r12, rax
    "4881ec00010000",  # sub rsp, 256: room for the entropy count, the size, and the seed
    "31c0",  # xor eax, eax: read
    "31ff",  # xor edi, edi: standard input
    "488d742408",  # lea rsi, [rsp + 8]
    "ba40000000",  # mov edx, 64
    "0f05",  # syscall
    "83f820",  # cmp eax, 32
    "0f8c@fail",  # jl fail: that is no seed
    "89442404",  # mov [rsp + 4], eax: its size in bytes
    "c1e003",  # shl eax, 3
    "890424",  # mov [rsp], eax: and in bits
    "b810000000",  # mov eax, 16: ioctl
    "4c89e7",  # mov rdi, r12
    "be03520840",  # mov esi, RNDADDENTROPY
    "4889e2",  # mov rdx, rsp
    "0f05",  # syscall
    "85c0",  # test eax, eax
    "0f85@fail",  # jnz fail
    "b810000000",  # mov eax, 16: ioctl
    "4c89e7",  # mov rdi, r12
    "be07520000",  # mov esi, RNDRESEEDCRNG
    "31d2",  # xor edx, edx
    "0f05",  # syscall
    "85c0",  # test eax, eax
    "0f85@fail",  # jnz fail
    "31ff",  # xor edi, edi
    "b83c000000",  # mov eax, 60: exit
    "0f05",  # syscall
    "@fail:",
    "bf01000000",  # mov edi, 1
    "b83c000000",  # mov eax, 60: exit
    "0f05",  # syscall
    "@path:",
)


def reseed_program() -> bytes:
    """
    Return ``remuda-reseed`` as an executable file: it makes a guest's random numbers new.

    A guest that goes on from a snapshot has its siblings' random numbers until its kernel is told otherwise. A shell
    cannot do that: it takes two ioctls on /dev/urandom, RNDADDENTROPY with the seed and RNDRESEEDCRNG so that it counts
    at once. Neither busybox nor Debian's cloud kernel brings it, so here it is, one instruction per line.
    """
    code = _assembled() + b"/dev/urandom\0"
    size = RESEED_HEADERS + len(code)
    start = RESEED_LOAD + RESEED_HEADERS
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, start, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, RESEED_LOAD, RESEED_LOAD, size, size, 0x1000)
    return header + segment + code


def _assembled() -> bytes:
    """Put the distances in: a reference takes four bytes, and counts from its own end."""
    places: dict[str, int] = {}
    at = 0
    for line in RESEED_CODE:
        raw, _, label = line.partition("@")
        at += len(raw) // 2
        if label.endswith(":"):
            places[label[:-1]] = at
        elif label:
            at += 4
    code = b""
    for line in RESEED_CODE:
        raw, _, label = line.partition("@")
        code += bytes.fromhex(raw)
        if label and not label.endswith(":"):
            code += struct.pack("<i", places[label] - len(code) - 4)
    return code


# --- Debian -----------------------------------------------------------------------------------------------------------


def _newest_kernel() -> str:
    said = _run("apt-cache", "depends", META_PACKAGE)
    found = re.search(r"Depends: (linux-image-\S+-cloud-amd64)", said)
    return found[1] if found else sys.exit(f"apt-cache does not know what {META_PACKAGE} needs.")


def _fetched(package: str, scratch: Path) -> Path:
    folder = scratch / package
    folder.mkdir()
    _run("apt-get", "download", package, cwd=folder)
    _run("dpkg-deb", "--extract", str(next(folder.glob("*.deb"))), str(folder / "unpacked"))
    return folder / "unpacked"


def _run(program: str, *words: str, cwd: Path | None = None) -> str:
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    if path is None:
        sys.exit(f"{program} is not on this machine, and the image cannot be built without it.")
    done = subprocess.run(  # noqa: S603 - a list of words, no shell
        [path, *words], cwd=cwd, capture_output=True, text=True, timeout=FETCH_S, check=False
    )
    if done.returncode:
        sys.exit(f"{program} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


if __name__ == "__main__":
    main()
