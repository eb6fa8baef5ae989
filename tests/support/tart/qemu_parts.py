"""The kernel and the initrd of QEMU guests, made once per checkout from Debian's packages."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.debian import PLACE, NotFetched, unpacked_or_skip
from tests.support.tart.qemu_guest import VIRTIOFSD, parts_in

INSTALL_S = 600.0
_MODULES = (
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci",
    "drivers/block/virtio_blk",
    "fs/fuse/fuse",
    "fs/fuse/virtiofs",
)
"""In the order in which they need each other."""
_INIT = """\
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root GUEST_SHARES=/shares GUEST_DISK=/dev/vda
for module in @MODULES@; do insmod "/modules/$module.ko" || echo "no $module"; done
for word in $(cat /proc/cmdline); do
  case "$word" in
    guest.program=*) length="${word#*=}" ;;
    guest.shares=*) shares="${word#*=}" ;;
  esac
done
number=0
IFS=,
for share in $shares; do
  mkdir -p "/shares/${share%:*}"
  mount -t virtiofs -o "${share##*:}" "share$number" "/shares/${share%:*}"
  number=$((number + 1))
done
unset IFS
cd /root
head -c "$length" /dev/vda > /root/boot
chmod 700 /root/boot
/root/boot
code=$?
sync
[ "$code" = 0 ] && poweroff -f
echo "the program ended with $code" > /dev/ttyS0
echo c > /proc/sysrq-trigger
"""


def qemu_parts_or_skip(into: Path) -> None:
    """Put the kernel and the initrd where a stand-in looks for them; what it takes is installed if we may."""
    PLACE.mkdir(parents=True, exist_ok=True)
    _qemu_or_skip()
    kernel_package = cloud_kernel_or_skip()
    kernel = unpacked_or_skip(kernel_package)
    busybox = unpacked_or_skip("busybox-static")
    kernel_file, initrd = parts_in(into)
    shutil.copyfile(next(kernel.glob("boot/vmlinuz-*")), kernel_file)
    initrd.write_bytes(_initrd(kernel, busybox / "bin/busybox"))


def _initrd(kernel: Path, busybox: Path) -> bytes:
    modules = next(kernel.glob("lib/modules/*")) / "kernel"
    names = [Path(module).name for module in _MODULES]
    init = _INIT.replace("@MODULES@", " ".join(names)).encode()
    files = [("bin/busybox", busybox.read_bytes()), ("init", init)]
    files += [
        (f"modules/{name}.ko", (modules / f"{module}.ko").read_bytes())
        for name, module in zip(names, _MODULES, strict=True)
    ]
    folders = ["bin", "dev", "modules", "proc", "root", "shares"]
    entries = [_entry(name, 0o040755, b"", number) for number, name in enumerate(folders, 1)]
    entries += [_entry(name, 0o100755, raw, n) for n, (name, raw) in enumerate(files, 100)]
    return b"".join([*entries, _entry("TRAILER!!!", 0, b"", 0)])


def _entry(name: str, mode: int, content: bytes, inode: int) -> bytes:
    """Write one entry of a cpio archive, as the kernel reads them."""
    raw_name = name.encode() + b"\0"
    numbers = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(raw_name), 0)
    header = b"070701" + b"".join(b"%08x" % number for number in numbers)
    return _padded(header + raw_name) + _padded(content)


def _padded(raw: bytes) -> bytes:
    return raw + bytes(-len(raw) % 4)


def cloud_kernel_or_skip() -> str:
    known = sorted(PLACE.glob("linux-image-*-cloud-amd64"))
    if known:
        return known[-1].name
    unpacked_or_skip("linux-image-cloud-amd64")  # an empty package: it names the newest kernel
    asked = subprocess.run(
        ["apt-cache", "depends", "linux-image-cloud-amd64"],  # noqa: S607 - from PATH
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"Depends: (linux-image-\S+-cloud-amd64)", asked.stdout)
    return found[1] if found else _give_up("Debian's cloud kernel is not known here")


def _qemu_or_skip() -> None:
    if os.geteuid() != 0:
        _give_up("virtiofsd, which shares folders with them, wants root")
    if _has_qemu():
        return
    if not shutil.which("apt-get"):
        _give_up("QEMU is not installed, and there is no apt-get")
    with (PLACE / ".qemu.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs may want it at once
        for words in (["update"], ["install", "-y", "--no-install-recommends", "qemu-system-x86"]):
            subprocess.run(  # noqa: S603 - fixed words
                ["apt-get", "-qq", *words],  # noqa: S607 - from PATH
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                capture_output=True,
                timeout=INSTALL_S,
                check=False,
            )
    if not _has_qemu():
        _give_up("QEMU could not be installed")


def _has_qemu() -> bool:
    return shutil.which("qemu-system-x86_64") is not None and Path(VIRTIOFSD).exists()


def _give_up(why: str) -> str:
    if os.environ.get("CI") == "true":
        raise NotFetched(why)
    pytest.skip(f"needs QEMU guests: {why}")
