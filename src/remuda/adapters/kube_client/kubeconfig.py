"""
Where the API server is and who we are: from kubeconfig files, or from inside a Pod.

Every fault in what a person wrote is a BadInput that names the file and the entry, and never shows a secret.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
import yaml

from remuda.adapters.kube_client.connection import Connection, Credential, Credentials, Fixed
from remuda.adapters.kube_client.credentials import FromFiles, FromPlugin, Plugin, from_base64
from remuda.adapters.system import SystemClock
from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from remuda.ports.clock import Clock

_IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PLUGIN_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class _Entry(msgspec.Struct, frozen=True, rename="kebab"):
    pass


class _Cluster(_Entry, frozen=True):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _EnvVar(_Entry, frozen=True):
    name: str
    value: str = ""


class _Exec(msgspec.Struct, frozen=True, rename="camel"):
    command: str
    api_version: str = ""
    args: tuple[str, ...] = ()
    env: tuple[_EnvVar, ...] = ()
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class _User(_Entry, frozen=True):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    exec: _Exec | None = None
    auth_provider: dict[str, Any] | None = None
    username: str = ""
    password: str = ""
    impersonate: str = msgspec.field(name="as", default="")


class _Context(_Entry, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(_Entry, frozen=True):
    name: str
    cluster: _Cluster


class _NamedUser(_Entry, frozen=True):
    name: str
    user: _User = _User()


class _NamedContext(_Entry, frozen=True):
    name: str
    context: _Context


class _Config(_Entry, frozen=True):
    current_context: str = ""
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()


E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class _Placed(Generic[E]):
    """An entry and the file it stands in: relative paths in it are relative to that file."""

    entry: E
    file: Path
    name: str

    def path(self, text: str) -> Path:
        try:
            return self.file.parent / Path(text).expanduser()
        except RuntimeError:  # ~name, and there is nobody of that name
            return self.file.parent / text

    def bad(self, why: str, fix: str) -> BadInput:
        return BadInput(f"The entry {self.name!r} of {self.file} cannot be used", why=why, fix=fix)


@dataclass(slots=True)
class _Merged:
    """Several files as one: of entries with the same name, the first counts."""

    files: list[Path] = field(default_factory=list)
    current_context: str = ""
    clusters: dict[str, _Placed[_Cluster]] = field(default_factory=dict)
    users: dict[str, _Placed[_User]] = field(default_factory=dict)
    contexts: dict[str, _Placed[_Context]] = field(default_factory=dict)

    def add(self, file: Path, config: _Config) -> None:
        self.files.append(file)
        self.current_context = self.current_context or config.current_context
        for c in config.clusters:
            self.clusters.setdefault(c.name, _Placed(c.cluster, file, c.name))
        for u in config.users:
            self.users.setdefault(u.name, _Placed(u.user, file, u.name))
        for x in config.contexts:
            self.contexts.setdefault(x.name, _Placed(x.context, file, x.name))


def load(
    path: Path | None = None,
    context: str | None = None,
    *,
    env: Mapping[str, str] = os.environ,
    clock: Clock = SystemClock(),  # noqa: B008 - it holds nothing
) -> Connection:
    """Read ``path``, or the files of ``KUBECONFIG``, or ``~/.kube/config``, and follow one context."""
    merged = _Merged()
    for file in _files(path, env):
        merged.add(file, _parse(file))
    name = context or merged.current_context
    where = ", ".join(map(str, merged.files))
    if not name:
        raise BadInput(
            f"No context is chosen in {where}",
            why="there is no current-context" if merged.contexts else "there are no contexts in it",
            fix=f"Name one: {_names(merged.contexts)}"
            if merged.contexts
            else "Check that this is the file that was meant; 'kubectl config view' reads it too",
        )
    chosen = _pick(merged.contexts, name, f"context in {where}")
    cluster = _pick(merged.clusters, chosen.entry.cluster, f"cluster, for the context {name!r},")
    user: _Placed[_User] | None = None
    if chosen.entry.user:
        user = _pick(merged.users, chosen.entry.user, f"user, for the context {name!r},")
    return _connection(chosen.entry.namespace, cluster, user, _World(env, clock))


def in_cluster(*, env: Mapping[str, str] = os.environ, folder: Path = _IN_POD) -> Connection:
    """Use what every Pod is given: the service's address in the environment, token and CA in files."""
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise BadInput(
            "The cluster cannot be found from inside",
            why="KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is not a Pod",
            fix="Give a kubeconfig",
        )
    try:
        ca_pem = (folder / "ca.crt").read_bytes()
        (folder / "token").stat()
    except OSError as error:
        raise BadInput(
            f"The Pod's own credential {error.filename} cannot be read",
            why=error.strerror or type(error).__name__,
            fix="Let the Pod mount its ServiceAccount token",
        ) from None
    namespace = folder / "namespace"
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ca_pem=ca_pem,
        credentials=FromFiles(token=folder / "token"),
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
    )


def discover(
    path: Path | None = None, context: str | None = None, *, env: Mapping[str, str] = os.environ
) -> Connection:
    """Do what kubectl does: a kubeconfig if there is one or one was asked for, else the Pod that we are in."""
    asked = path is not None or context is not None or env.get("KUBECONFIG")
    if asked or _home_config(env).is_file() or not env.get("KUBERNETES_SERVICE_HOST"):
        return load(path, context, env=env)
    return in_cluster(env=env)


@dataclass(frozen=True, slots=True)
class _World:
    env: Mapping[str, str]
    clock: Clock


def _home_config(env: Mapping[str, str]) -> Path:
    return Path(env.get("HOME", "/"), ".kube", "config")


def _files(path: Path | None, env: Mapping[str, str]) -> list[Path]:
    if path is not None:
        return [path]
    listed = [Path(part) for part in env.get("KUBECONFIG", "").split(os.pathsep) if part]
    candidates = listed or [_home_config(env)]
    found = [file for file in candidates if file.exists()]  # of a list, some may be missing
    if not found:
        raise BadInput(
            "There is no kubeconfig",
            why=f"{', '.join(map(str, candidates))} does not exist",
            fix="Give its path, or set KUBECONFIG",
        )
    return found


def _parse(file: Path) -> _Config:
    what = f"The kubeconfig {file} cannot be read"
    fix = "Check the file; 'kubectl config view' reads it too"
    try:
        document = yaml.safe_load(file.read_bytes())
        return msgspec.convert(_without_nulls(document or {}), _Config)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise BadInput(what, why=why, fix="Check the path and its permissions") from None
    except yaml.YAMLError as error:
        # Not the error's own text: it quotes the line, and the line may hold a token.
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark else ""
        raise BadInput(what, why=f"it is not YAML{place}", fix=fix) from None
    except msgspec.ValidationError as error:
        raise BadInput(what, why=str(error), fix=fix) from None
    except (ValueError, RecursionError):  # a date that is none; a list within a list within itself
        raise BadInput(what, why="it is not YAML that can be used", fix=fix) from None


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - any YAML
    """Drop keys without a value: an empty ``users:`` is no users."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value


def _pick(entries: dict[str, _Placed[E]], name: str, what: str) -> _Placed[E]:
    if name not in entries:
        raise BadInput(
            f"There is no {what} named {name!r}",
            why=f"there are {_names(entries)}",
            fix="Name one of these, or add the entry",
        )
    return entries[name]


def _names(entries: Iterable[str]) -> str:
    return ", ".join(sorted(entries)) or "none"


def _connection(
    namespace: str, cluster: _Placed[_Cluster], user: _Placed[_User] | None, world: _World
) -> Connection:
    entry = cluster.entry
    if not entry.server:
        raise cluster.bad("it has no server", "Add server: https://host:port")
    ca_pem = _data(
        cluster,
        "certificate-authority",
        entry.certificate_authority_data,
        entry.certificate_authority,
    )
    credentials = Fixed() if user is None else _credentials(user, cluster, ca_pem, world)
    connection = Connection(
        server=entry.server,
        ca_pem=ca_pem,
        credentials=credentials,
        insecure=entry.insecure_skip_tls_verify,
        tls_server_name=entry.tls_server_name,
        proxy_url=entry.proxy_url,
        namespace=namespace or "default",
    )
    connection.tls(Credential())  # a CA that is none is said now and not at the first request
    return connection


def _data(place: _Placed[Any], key: str, data: str, file: str) -> bytes:
    """Read a value that stands in the kubeconfig as base64, or in a file of its own."""
    if data:
        try:
            return from_base64(data)
        except ValueError:
            raise place.bad(f"{key}-data is not base64", f"Correct it, or use {key}") from None
    if not file:
        return b""
    try:
        return place.path(file).read_bytes()
    except (OSError, ValueError) as error:
        why = (
            f"{key} {place.path(file)}: {(isinstance(error, OSError) and error.strerror) or error}"
        )
        raise place.bad(why, "Check the path and its permissions") from None


def _credentials(
    user: _Placed[_User], cluster: _Placed[_Cluster], ca_pem: bytes, world: _World
) -> Credentials:
    entry = user.entry
    _refuse_unsupported(user)
    certificate_pem = _data(
        user, "client-certificate", entry.client_certificate_data, entry.client_certificate
    )
    key_pem = _data(user, "client-key", entry.client_key_data, entry.client_key)
    if bool(certificate_pem) != bool(key_pem):
        raise user.bad(
            "a client certificate needs its key, and a key its certificate", "Add the other"
        )
    fixed = Credential(token=entry.token, certificate_pem=certificate_pem, key_pem=key_pem)
    if certificate_pem:
        Connection(server="https://check").tls(fixed)
    if entry.exec is not None and not certificate_pem and not entry.token:
        return FromPlugin(_plugin(user, entry.exec, cluster, ca_pem), world.clock, world.env)
    return _from_files(user, fixed)


def _from_files(user: _Placed[_User], fixed: Credential) -> Credentials:
    entry = user.entry
    # As in kubectl, the file counts if both are given: the token beside it is what was in it once.
    token = user.path(entry.token_file) if entry.token_file else None
    certificate = entry.client_certificate if not entry.client_certificate_data else ""
    key = entry.client_key if not entry.client_key_data else ""
    if token is not None and not token.is_file():
        raise user.bad(f"tokenFile {token} does not exist", "Check the path")
    if not (token or certificate or key):
        return Fixed(fixed)
    return FromFiles(
        token=token,
        certificate=user.path(certificate) if certificate else None,
        key=user.path(key) if key else None,
        fixed=fixed,
    )


def _refuse_unsupported(user: _Placed[_User]) -> None:
    entry = user.entry
    if entry.auth_provider is not None:
        raise user.bad(
            "auth-provider was removed from Kubernetes in 1.26", "Use an exec plugin or a token"
        )
    if entry.username or entry.password:
        raise user.bad(
            "passwords were removed from Kubernetes in 1.19", "Use a token or a client certificate"
        )
    if entry.impersonate:
        raise user.bad("acting as another user is not supported", "Use that user's own credential")


def _plugin(
    user: _Placed[_User], given: _Exec, cluster: _Placed[_Cluster], ca_pem: bytes
) -> Plugin:
    if given.api_version not in _PLUGIN_VERSIONS:
        raise user.bad(
            f"its exec plugin speaks {given.api_version or 'no named version'}",
            f"Use a plugin of {_PLUGIN_VERSIONS[0]}",
        )
    if given.interactive_mode == "Always":
        raise user.bad("its exec plugin needs a terminal", "Log in first and use a token or a file")
    # A command with a slash is a path, relative to the kubeconfig; one without is looked up in PATH.
    command = str(user.path(given.command)) if "/" in given.command else given.command
    return Plugin(
        command=command,
        args=given.args,
        env={variable.name: variable.value for variable in given.env},
        api_version=given.api_version,
        install_hint=given.install_hint,
        cluster=_cluster_info(cluster.entry, ca_pem) if given.provide_cluster_info else None,
    )


def _cluster_info(cluster: _Cluster, ca_pem: bytes) -> dict[str, Any]:
    info: dict[str, Any] = {"server": cluster.server}
    optional = {
        "certificate-authority-data": ca_pem,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "tls-server-name": cluster.tls_server_name,
        "proxy-url": cluster.proxy_url,
    }
    return info | {key: value for key, value in optional.items() if value}
