"""The cache of images: a folder per digest, links for tags, and the rule of what may go."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from remuda.adapters.registry.names import ImageName, is_digest
from tests.support.tart.home import remove
from tests.support.tart.vms import Vm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEPT = ".explicitly-pulled"


@dataclass(frozen=True, slots=True)
class Cache:
    """``<host>/<repository>/<tag link | digest folder>``."""

    folder: Path

    def path(self, image: ImageName) -> Path:
        host = quote(image.host, safe="")
        return self.folder / host / image.repository / image.reference

    def vm(self, image: ImageName) -> Vm:
        return Vm(str(image), self.path(image))

    def entries(self) -> list[Vm]:
        """Return what is listed: tags and digests, by name. An image with a tag is there twice."""
        found = [Vm(self._name(path), path) for path in self._paths()]
        return sorted((vm for vm in found if vm.initialized), key=lambda vm: vm.name)

    def digests(self) -> list[Vm]:
        return [vm for vm in self.entries() if not vm.folder.is_symlink()]

    def link(self, image: ImageName, digest: str) -> None:
        """Have a tag point to a digest; what nothing points to any more goes."""
        path = self.path(image)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        path.symlink_to(digest)
        self.collect()

    def delete(self, image: ImageName) -> None:
        remove(self.path(image))
        self.collect()

    def collect(self) -> None:
        """Delete links to nothing, and digests that no link names unless they were asked for by digest."""
        paths = list(self._paths())
        links = [path for path in paths if path.is_symlink()]
        for link in links:
            if not link.exists():
                link.unlink()
        named = {link.resolve() for link in links if link.exists()}
        for path in paths:
            if path.is_symlink() or not path.exists():
                continue
            if path.resolve() not in named and not (path / KEPT).exists():
                remove(path)

    def _paths(self) -> Iterator[Path]:
        for manifest in sorted(self.folder.rglob("*")):
            if manifest.is_symlink() or (manifest.is_dir() and is_digest(manifest.name)):
                yield manifest

    def _name(self, path: Path) -> str:
        host, *repository = path.parent.relative_to(self.folder).parts
        return str(ImageName(unquote(host), "/".join(repository), path.name))
