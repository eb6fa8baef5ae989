"""
How commands find the fleet: what they are told, in options or variables, else the ``remuda up`` of this machine.

``remuda up`` leaves in its data folder what others need (``Home``): the addresses, a token of the API, a kubeconfig.
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from remuda.adapters.api_client import ApiClient, ApiSettings
    from remuda.adapters.kube_client import Connection

_F = TypeVar("_F", bound="Callable[..., Any]")
_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)
_HOW: Final = (
    "Start one here with remuda up, or name one: --server and --token-file, or REMUDA_SERVER and"
    " REMUDA_API_TOKEN"
)

_ROOTS_HOME: Final = Path("/root")
"""Closed to others on most machines, and as root PostgreSQL runs as another user, who has to get to its data."""


class Addresses(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the parts of one ``remuda up`` are. What a newer one says more is passed over."""

    server: str
    """The API of dispatch, such as http://127.0.0.1:8080."""
    kubernetes: str = ""
    namespace: str = "default"
    """Of the pools."""
    metrics: dict[str, str] = {}
    """Of each part, by its name."""


@dataclass(frozen=True, slots=True)
class Home:
    """The data folder of a ``remuda up``: what stands where."""

    folder: Path

    @property
    def addresses_file(self) -> Path:
        return self.folder / "addresses.json"

    @property
    def token_file(self) -> Path:
        """A token of the API with the role operate. Readable by its owner only."""
        return self.folder / "api-token"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def write_addresses(self, addresses: Addresses) -> None:
        """Say where the parts are, whole or not at all."""
        new = self.addresses_file.with_suffix(".new")
        new.write_bytes(msgspec.json.format(msgspec.json.encode(addresses)) + b"\n")
        new.replace(self.addresses_file)

    def addresses(self) -> Addresses | None:
        """Return where the parts are, or were when it ran last; None if it never got so far."""
        try:
            return msgspec.json.decode(self.addresses_file.read_bytes(), type=Addresses)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, ValueError) as error:
            why = (isinstance(error, OSError) and error.strerror) or str(error)
            raise BadInput(
                f"The file {self.addresses_file} cannot be used",
                why=str(why),
                fix="Start remuda up again, which writes it anew, or choose another folder with --data",
            ) from None


def default_home(env: Mapping[str, str] = os.environ) -> Home:
    """Return the data folder that is meant when none is named."""
    if said := env.get("REMUDA_DATA"):
        return Home(Path(said))
    if said := env.get("XDG_DATA_HOME"):
        return Home(Path(said, "remuda"))
    home = Path(env.get("HOME") or Path.home())
    if home == _ROOTS_HOME:
        return Home(Path("/var/lib/remuda"))
    if sys.platform == "darwin":
        return Home(home / "Library" / "Application Support" / "remuda")
    return Home(home / ".local" / "share" / "remuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """What a command was told about where the fleet is."""

    server: str = ""
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    server_ca: Path | None = None
    kubeconfig: Path | None = None
    named_namespace: str = ""
    data: Path | None = None

    @property
    def home(self) -> Home:
        return default_home() if self.data is None else Home(self.data)

    @property
    def is_named(self) -> bool:
        """Whether a fleet was named, so that the ``up`` of this machine is not meant."""
        return bool(self.server) or (self.kubeconfig is not None and self.data is None)

    def api_settings(self) -> ApiSettings:
        """Say where dispatch's API is, and with which token to ask it."""
        from remuda.adapters.api_client import ApiSettings  # noqa: PLC0415 - help needs none of it

        if self.server:
            return ApiSettings(
                base_url=self.server,
                token=self.token,
                token_file=None if self.token else self.token_file,
                ca_file=self.server_ca,
            )
        what = "It is not known where the fleet is"
        if self.is_named:
            why = "a kubeconfig is given, and not where dispatch is"
            fix = "Give --server too, such as https://dispatch.example"
            raise BadInput(what, why=why, fix=fix)
        home = self.home
        found = home.addresses()
        if found is None:
            why = f"no server is named, and no remuda up has come up with its data in {home.folder}"
            raise BadInput(what, why=why, fix=_HOW)
        return ApiSettings(
            base_url=found.server,
            token=self.token,
            token_file=None if self.token else self.token_file or home.token_file,
            ca_file=self.server_ca,
            if_unreachable=f"Look at remuda status, and start it with remuda up{self._chosen}",
        )

    @property
    def _chosen(self) -> str:
        return "" if self.data is None else f" --data {shlex.quote(str(self.data))}"

    def connection(self) -> Connection:
        """Say where the Kubernetes API is, and as whom to ask it."""
        from remuda.adapters.kube_client import kubeconfig  # noqa: PLC0415 - likewise

        if self.kubeconfig is not None:
            return kubeconfig.load(self.kubeconfig)
        if not self.is_named and self.home.kubeconfig.is_file():
            return kubeconfig.load(self.home.kubeconfig)
        if self.data is not None and not self.server:
            # Whoever names a folder must not change another fleet, only because kubectl would reach one.
            raise BadInput(
                "It is not known where the Kubernetes API is",
                why=f"no remuda up has run with its data in {self.data}",
                fix=f"Start one with remuda up{self._chosen}, or name another: --data or --kubeconfig",
            )
        return kubeconfig.discover()

    def namespace(self) -> str:
        """Return the namespace of the pools: the one named, else that of ``up`` or of the kubeconfig's context."""
        if self.named_namespace:
            return self.named_namespace
        if not self.is_named and (found := self.home.addresses()) is not None:
            return found.namespace
        return self.connection().namespace

    @asynccontextmanager
    async def api(self) -> AsyncIterator[ApiClient]:
        """Return the API, closed at the end."""
        from remuda.adapters.api_client import api_client  # noqa: PLC0415 - likewise
        from remuda.adapters.system import SystemClock  # noqa: PLC0415 - likewise

        async with api_client(self.api_settings(), SystemClock()) as client:
            yield client


_API = (
    click.option(
        "--server",
        envvar="REMUDA_SERVER",
        show_envvar=True,
        default="",
        metavar="URL",
        help="Where dispatch is. Default: the remuda up of this machine.",
    ),
    click.option(
        "--token",
        envvar="REMUDA_API_TOKEN",
        show_envvar=True,
        default="",
        help="A token of the API. The variable or a file keep it from others on this machine.",
    ),
    click.option(
        "--token-file",
        type=_FILE,
        envvar="REMUDA_API_TOKEN_FILE",
        show_envvar=True,
        help="A file that holds the token.",
    ),
    click.option(
        "--server-ca",
        type=_FILE,
        envvar="REMUDA_SERVER_CA",
        show_envvar=True,
        help="Certificates to trust, in PEM. Default: those of this machine.",
    ),
    click.option(
        "--data",
        type=_FOLDER,
        help="The data folder of the remuda up that is meant. Variable: REMUDA_DATA.",
    ),
)
_KUBE = (
    click.option(
        "--kubeconfig",
        type=_FILE,
        envvar="REMUDA_KUBECONFIG",
        show_envvar=True,
        help="How to reach the Kubernetes API. Default: that of the remuda up, else what kubectl would use.",
    ),
    click.option(
        "--namespace",
        "named_namespace",
        envvar="REMUDA_NAMESPACE",
        show_envvar=True,
        default="",
        help="The namespace of the pools. Default: that of the remuda up, else the kubeconfig's.",
    ),
)


def api_options(command: _F) -> _F:
    """Let a command be told where the API is: it gets ``where``, a ``Where``."""
    return _told(command, _API)


def fleet_options(command: _F) -> _F:
    """Likewise, and where the Kubernetes API is."""
    return _told(command, (*_API, *_KUBE))


def _told(command: _F, options: tuple[Callable[[_F], _F], ...]) -> _F:
    names = ("server", "token", "token_file", "server_ca", "kubeconfig", "named_namespace", "data")

    @functools.wraps(command)
    def with_where(*args: Any, **given: Any) -> Any:  # noqa: ANN401 - a command's own
        told = {name: given.pop(name) for name in names if name in given}
        return command(*args, where=Where(**told), **given)

    wrapped: Any = with_where
    for option in reversed(options):
        wrapped = option(wrapped)
    made: _F = wrapped
    return made
