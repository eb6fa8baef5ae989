"""
Images of QEMU guests: folders on this host with a kernel, an initrd, a disk, and a file that names them by digest.

An image is found by its reference without the digest; a digest in it is that of ``image.json``, which in turn has the
digests of the other files. All are checked while they are copied. A disk that refers to another file is refused: that
file would be one of the host's, and its guest would read it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import struct
from typing import TYPE_CHECKING, Final

import msgspec

from remuda.ports.vms import NoSpace, NotThere, Refused, TimedOut, VmsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MANIFEST: Final = "image.json"
KERNEL, INITRD, DISK = "kernel", "initrd", "disk.qcow2"
_FILES: Final = frozenset({KERNEL, INITRD, DISK})
_MANIFEST_MAX_BYTES: Final = 64 * 1024
_PART: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(:[A-Za-z0-9_][A-Za-z0-9._-]*)?")
_APPEND: Final = re.compile(r"[ -~]{0,1024}")
_PIECE_BYTES: Final = 1024 * 1024
_MAGIC: Final = b"QFI\xfb"
_QCOW_V3: Final = 3
_CORRUPT, _OUTSIDE_DATA = 1 << 1, 1 << 2
_KNOWN_FEATURES: Final = 0b11111


class FileOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of an image."""

    sha256: str
    size: int


class Image(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What ``image.json`` says."""

    version: int
    files: dict[str, FileOf]
    append: str = ""
    """More words for the kernel's command line."""
    cpus: int = 1
    memory_mib: int = 512
    """What its VMs have unless they are told otherwise."""
    snapshot: bool = False
    """Whether VMs start from a snapshot. The guest must not write to its disk before it knows who it is."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files.values())


def folder_of(images: Path, ref: str) -> Path:
    """Return where an image is looked for. Raises Refused for what is no reference."""
    name, _, digest = ref.partition("@")
    parts = name.split("/")
    if not all(_PART.fullmatch(part) for part in parts) or not re.fullmatch(
        r"(sha256:[0-9a-f]{64})?", digest
    ):
        raise Refused(
            "The image was not looked for",
            why=f"{ref[:200]!r} is not the name of an image",
            fix="Use names such as runners/linux:1, and sha256:… as a digest",
        )
    return images.joinpath(*parts)


def read_image(images: Path, ref: str) -> Image | None:
    """Return what an image consists of; None: there is none. Raises Refused where it cannot be used."""
    folder = folder_of(images, ref)
    try:
        with (folder / MANIFEST).open("rb") as file:
            raw = file.read(_MANIFEST_MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _cannot_be_read(ref, error) from None
    wanted = ref.partition("@sha256:")[2]
    if wanted and hashlib.sha256(raw).hexdigest() != wanted:
        raise _unusable(ref, f"the digest of its {MANIFEST} is another")
    return _decoded(ref, raw)


def _decoded(ref: str, raw: bytes) -> Image:
    try:
        image = msgspec.json.decode(raw[:_MANIFEST_MAX_BYTES], type=Image)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise _unusable(ref, f"its {MANIFEST} cannot be read ({error})") from None
    if image.version != 1 or frozenset(image.files) != _FILES:
        raise _unusable(ref, f"its {MANIFEST} is not of version 1 with {', '.join(sorted(_FILES))}")
    if not _APPEND.fullmatch(image.append) or image.cpus < 1 or image.memory_mib < 1:
        raise _unusable(ref, f"its {MANIFEST} holds a value that no machine can have")
    return image


def copy_image(images: Path, ref: str, target: Path, *, go_on: Callable[[], bool]) -> Image:
    """Copy an image's files, checked, for nobody to change. Raises TimedOut when it may not go on. Blocks."""
    image = read_image(images, ref)
    if image is None:
        raise NotThere(
            f"The image {ref} was not used",
            why=f"there is no {MANIFEST} of it on this host",
            fix="Put the image's folder among the images of this host",
        )
    source = folder_of(images, ref)
    try:
        check_disk(source / DISK, ref)
        for name, file in sorted(image.files.items()):
            _copy(source / name, target / name, file, ref, go_on)
        check_disk(target / DISK, ref)  # what was copied, not what stood there a moment before
    except OSError as error:
        raise _cannot_be_read(ref, error) from None
    (target / MANIFEST).write_bytes(msgspec.json.encode(image))
    return image


def _copy(source: Path, target: Path, file: FileOf, ref: str, go_on: Callable[[], bool]) -> None:
    digest, left = hashlib.sha256(), file.size
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(source, flags), "rb") as old, target.open("xb") as new:  # noqa: PTH123 - a descriptor
        while piece := old.read(_PIECE_BYTES):
            if not go_on():
                raise TimedOut(
                    f"The image {ref} was not copied in time",
                    why="the disk is too slow, or the call was given up",
                    fix="Look at the disk's load; it is tried again",
                    op="golden",
                )
            digest.update(piece)
            left -= len(piece)
            if left < 0:
                break
            new.write(piece)
        os.fchmod(new.fileno(), 0o400)
        new.flush()
        os.fsync(new.fileno())
    if left or digest.hexdigest() != file.sha256:
        raise _unusable(ref, f"its {source.name} is not what its {MANIFEST} says")


def check_disk(path: Path, ref: str) -> None:
    """Refuse a disk that is not a qcow2 image of its own: one that refers to another file, or is broken."""
    with path.open("rb") as file:
        header = file.read(104)
    wrong = wrong_with_disk(header)
    if wrong:
        raise _unusable(ref, f"its {path.name} {wrong}")


def wrong_with_disk(header: bytes) -> str:
    """Say what is wrong with a disk that begins like this; empty: nothing. Pure."""
    if len(header) < 104 or header[:4] != _MAGIC:  # noqa: PLR2004 - the size of a header
        return "is not a qcow2 image"
    version, backing = struct.unpack_from(">IQ", header, 4)
    crypt = struct.unpack_from(">I", header, 32)[0]
    features = struct.unpack_from(">Q", header, 72)[0]
    if version != _QCOW_V3:
        return "is a qcow2 image of another version than 3"
    if backing:
        return "has a backing file"
    if features & _OUTSIDE_DATA:
        return "has its data in another file"
    if features & _CORRUPT or features & ~_KNOWN_FEATURES:
        return "is marked as corrupt or has features that are not known"
    return "is encrypted" if crypt else ""


def no_space_or(error: OSError, what: str) -> VmsError:
    """Turn an error of the disk into what the agent must do about it."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return (NoSpace if full else VmsError)(
        what,
        why=error.strerror or type(error).__name__,
        fix="Make room on the disk" if full else "See that the folder belongs to the agent's user",
    )


def _cannot_be_read(ref: str, error: OSError) -> VmsError:
    return no_space_or(error, f"The image {ref} cannot be used")


def _unusable(ref: str, why: str) -> Refused:
    return Refused(
        f"The image {ref} cannot be used", why=why, fix="Build it again, and give its new digest"
    )
