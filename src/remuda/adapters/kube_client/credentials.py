"""Credentials that change while the process runs: files that are rewritten, and plugins that are asked."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from remuda.adapters.kube_client.connection import Credential
from remuda.ports.kube import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from remuda.ports.clock import Clock

_EXPIRY_MARGIN = timedelta(seconds=10)
_STDERR_MAX_CHARS = 300
_LOOKS_SECRET = re.compile(r"[A-Za-z0-9+/=_.-]{40,}")


class FromFiles:
    """
    A token, or a certificate and its key, from files: read again when a file has changed, and after a 401.

    Kubernetes replaces the token of a running Pod by switching a symbolic link, which changes what ``stat`` says.
    """

    def __init__(
        self,
        *,
        token: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        fixed: Credential = Credential(),  # noqa: B008 - frozen
    ) -> None:
        self._token, self._certificate, self._key = token, certificate, key
        self._fixed = fixed
        self._read: tuple[object, Credential] | None = None

    async def current(self) -> Credential:
        files = (self._token, self._certificate, self._key)
        try:
            seen = [_fingerprint(file) for file in files if file is not None]
            if self._read is None or self._read[0] != seen:
                self._read = (seen, self._load())
        except (OSError, UnicodeDecodeError) as error:
            raise self._unreadable(error) from None
        return self._read[1]

    async def renew(self, refused: Credential) -> Credential:
        del refused
        self._read = None
        return await self.current()

    def _load(self) -> Credential:
        token = self._token.read_text("ascii").strip() if self._token else self._fixed.token
        if self._token and not token:
            raise Refused(
                f"No token is in {self._token}",
                why="the file is empty",
                fix="Look at what writes the file",
            )
        return Credential(
            token=token,
            certificate_pem=self._certificate.read_bytes()
            if self._certificate
            else self._fixed.certificate_pem,
            key_pem=self._key.read_bytes() if self._key else self._fixed.key_pem,
        )

    def _unreadable(self, error: OSError | UnicodeDecodeError) -> Refused:
        names = ", ".join(str(f) for f in (self._token, self._certificate, self._key) if f)
        why = (isinstance(error, OSError) and error.strerror) or "it is not text"
        return Refused(
            f"The credential in {names} cannot be used",
            why=why,
            fix="Check the path, its permissions, and what writes it",
        )


def _fingerprint(file: Path) -> tuple[int, int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_ino, found.st_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A program that prints an ExecCredential."""

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)  # people do put secrets into arguments
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = field(default=None, repr=False)
    """What the plugin is told about the cluster, if it asked for it."""

    deadline_s: float = 20.0


class _ExecStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    status: _ExecStatus


class FromPlugin:
    """Asks a plugin, keeps its answer until it expires or the server refuses it, and asks once at a time."""

    def __init__(self, plugin: Plugin, clock: Clock, env: Mapping[str, str]) -> None:
        self._plugin = plugin
        self._clock = clock
        self._env = dict(env)
        self._lock = asyncio.Lock()
        self._kept: tuple[Credential, datetime | None] | None = None

    async def current(self) -> Credential:
        async with self._lock:
            if self._kept is None or self._is_over(self._kept[1]):
                self._kept = await self._ask()
            return self._kept[0]

    async def renew(self, refused: Credential) -> Credential:
        async with self._lock:
            # Many requests are refused at once when a token ends: the first asks, the others find a newer one.
            if self._kept is None or self._kept[0] == refused:
                self._kept = await self._ask()
            return self._kept[0]

    def _is_over(self, expires_at: datetime | None) -> bool:
        return expires_at is not None and self._clock.now() >= expires_at - _EXPIRY_MARGIN

    async def _ask(self) -> tuple[Credential, datetime | None]:
        output = await self._run()
        try:
            answer = msgspec.json.decode(output, type=_ExecCredential)
        except (msgspec.MsgspecError, ValueError):
            raise self._failed("what it printed is not an ExecCredential") from None
        if answer.api_version != self._plugin.api_version or answer.kind != "ExecCredential":
            raise self._failed(f"it printed {answer.kind} {answer.api_version[:100]}")
        status = answer.status
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise self._failed("it gave a client certificate without its key, or a key alone")
        if not status.token and not status.client_certificate_data:
            raise self._failed("it gave neither a token nor a client certificate")
        credential = Credential(
            token=status.token,
            certificate_pem=status.client_certificate_data.encode(),
            key_pem=status.client_key_data.encode(),
        )
        return credential, status.expiration_timestamp

    async def _run(self) -> bytes:
        try:
            process = await asyncio.create_subprocess_exec(
                self._plugin.command,
                *self._plugin.args,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**self._env, **self._plugin.env, "KUBERNETES_EXEC_INFO": self._exec_info()},
                start_new_session=True,  # so that it can be ended with everything it started
            )
        except OSError as error:
            raise self._failed(error.strerror or "it cannot be started") from None
        try:
            async with asyncio.timeout(self._plugin.deadline_s):
                output, errors = await process.communicate()
        except BaseException as error:
            # Even if it ended itself: what it left behind holds its output open, and that is why we are here.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            if isinstance(error, TimeoutError):
                why = f"it ran longer than {self._plugin.deadline_s:g} s"
                raise self._failed(why) from None
            raise
        if process.returncode:
            raise self._failed(f"it ended with {process.returncode}: {_printable(errors)}")
        return output

    def _exec_info(self) -> str:
        spec: dict[str, Any] = {"interactive": False}
        if self._plugin.cluster is not None:
            spec["cluster"] = self._plugin.cluster
        info = {"apiVersion": self._plugin.api_version, "kind": "ExecCredential", "spec": spec}
        return msgspec.json.encode(info).decode()

    def _failed(self, why: str) -> Refused:
        return Refused(
            f"The credential plugin {self._plugin.command} gave nothing",
            why=why,
            fix=self._plugin.install_hint.strip().rstrip(".") or "Run the plugin by hand",
        )


def _printable(errors: bytes) -> str:
    """Return the end of what a plugin complained about, without anything that may be a token."""
    text = " ".join(errors.decode(errors="replace").split())
    return _LOOKS_SECRET.sub("…", text)[-_STDERR_MAX_CHARS:] or "it said nothing"


def from_base64(text: str) -> bytes:
    """Read what kubeconfigs hold as ``…-data``. Raises ValueError."""
    return base64.b64decode("".join(text.split()), validate=True)
