"""
A real Kubernetes control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler.

The judge of the contract suite and the yardstick of ``make bench``. Nothing here knows our own control plane.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import yaml

from tests.support.certificates import Authority, service_account_key
from tests.support.processes import Processes, free_port

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from tests.support.certificates import KeyPair

REPOSITORY = Path(__file__).resolve().parents[2]
CRD_FOLDER = REPOSITORY / "charts" / "remuda" / "crds"
NEEDED = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
ISSUER = "https://kubernetes.default.svc"
NODE_GRACE_S = 6
"""How old a Node's Lease may be. Short, so that the test of it is; a test's live Nodes renew every second."""

# The controllers that the contract is about. The thirty others would only take the two cores of a small machine.
CONTROLLERS = (
    "certificatesigningrequest-signing-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "serviceaccount-controller",
    "taint-eviction-controller",
)


class NoBinaries(Exception):
    """The control plane's binaries are not on this machine."""


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach the API server as its administrator."""

    url: str
    ca_file: Path
    admin_token: str
    kubeconfig: Path


def find_assets() -> Path:
    """Return the folder with the binaries: KUBEBUILDER_ASSETS, else what ``make control-plane`` has built."""
    named = os.environ.get("KUBEBUILDER_ASSETS", "")
    built = named or _built_assets()
    if not built:
        raise NoBinaries(
            "the real control plane is not built; run `make control-plane` once, or set KUBEBUILDER_ASSETS"
        )
    missing = [name for name in NEEDED if not (Path(built) / name).exists()]
    if missing:
        raise NoBinaries(f"{built} (KUBEBUILDER_ASSETS) lacks {', '.join(missing)}")
    return Path(built)


def _built_assets() -> str:
    script = REPOSITORY / "tools" / "control-plane" / "build.sh"
    answer = subprocess.run(  # noqa: S603 - our own script
        [script, "--if-built"], check=True, capture_output=True, text=True
    )
    return answer.stdout.strip()


class RealControlPlane:
    """
    The four processes in a temporary folder, from ``with`` to the end of its block.

    CRDs go in before the controller-manager starts: its garbage collector looks for new kinds only every half minute.
    """

    def __init__(self, crds: Sequence[Path] = (CRD_FOLDER,)) -> None:
        self.assets = find_assets()
        self._crds = tuple(crds)
        self._folder = Path(tempfile.mkdtemp(prefix="remuda-control-plane-"))
        self._processes = Processes(self._folder / "logs")
        self._authority = Authority(self._folder / "pki")
        self.service_account_key = service_account_key(self._folder / "pki" / "sa.key")
        port = free_port()
        self.etcd_url = f"http://127.0.0.1:{free_port()}"
        self.access = Access(
            url=f"https://127.0.0.1:{port}",
            ca_file=self._authority.file,
            admin_token=secrets.token_urlsafe(24),
            kubeconfig=self._folder / "admin.kubeconfig",
        )

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._processes.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def kubeconfig(self, user: str, groups: tuple[str, ...] = ()) -> Path:
        """Write a kubeconfig of a user by client certificate (``system:node:mac-1`` with ``system:nodes``, say)."""
        file = self._folder / f"{user.replace(':', '-')}.kubeconfig"
        pair = self._authority.client(user, groups)
        self._write_kubeconfig(
            file, {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        )
        return file

    def client_certificate(self, user: str, groups: tuple[str, ...] = ()) -> KeyPair:
        """Sign a client certificate of a user, for what is asked of others than the API server."""
        return self._authority.client(user, groups)

    def kubeconfig_with_token(self, name: str, token: str) -> Path:
        """Write a kubeconfig of whom a token belongs to."""
        file = self._folder / f"{name}.kubeconfig"
        self._write_kubeconfig(file, {"token": token})
        return file

    def kubectl(self, *arguments: str) -> str:
        answer = subprocess.run(  # noqa: S603 - our own kubectl
            [self.assets / "kubectl", "--kubeconfig", self.access.kubeconfig, *arguments],
            check=True,
            capture_output=True,
            text=True,
        )
        return answer.stdout

    def _start(self) -> None:
        self._write_kubeconfig(self.access.kubeconfig, {"token": self.access.admin_token})
        self._start_etcd()
        self._start_apiserver()
        files = [file for folder in self._crds for file in sorted(folder.glob("*.yaml"))]
        if files:
            self.kubectl("create", *(f"--filename={file}" for file in files))
            self.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        self._start_controller_manager()
        self._start_scheduler()
        self._processes.wait_until(
            "kube-controller-manager", self._has_default_account, "the default ServiceAccount"
        )

    def _start_etcd(self) -> None:
        peer = f"http://127.0.0.1:{free_port()}"
        self._processes.start(
            "etcd",
            [
                str(self.assets / "etcd"),
                f"--data-dir={self._folder / 'etcd'}",
                f"--listen-client-urls={self.etcd_url}",
                f"--advertise-client-urls={self.etcd_url}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync",  # the folder lives no longer than the run
                "--log-level=warn",
            ],
        )
        self._processes.wait_until("etcd", lambda: self._is_ok(f"{self.etcd_url}/health"), "health")

    def _start_apiserver(self) -> None:
        server = self._authority.server("kube-apiserver")
        kubelet_client = self._authority.client(
            "kube-apiserver-kubelet-client", ("system:masters",)
        )
        tokens = self._folder / "tokens.csv"
        tokens.write_text(f'{self.access.admin_token},admin,admin,"system:masters"\n')
        self._processes.start(
            "kube-apiserver",
            [
                str(self.assets / "kube-apiserver"),
                f"--etcd-servers={self.etcd_url}",
                "--bind-address=127.0.0.1",
                f"--secure-port={self.access.url.rpartition(':')[2]}",
                f"--tls-cert-file={server.certificate}",
                f"--tls-private-key-file={server.key}",
                f"--client-ca-file={self._authority.file}",
                # How it shows itself to agents when it asks them for logs; their authority is the same one.
                f"--kubelet-client-certificate={kubelet_client.certificate}",
                f"--kubelet-client-key={kubelet_client.key}",
                f"--token-auth-file={tokens}",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                f"--service-account-issuer={ISSUER}",
                f"--service-account-key-file={self.service_account_key}",
                f"--service-account-signing-key-file={self.service_account_key}",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--event-ttl=10m",
                "--allow-privileged",  # as every distribution has it
                "--profiling=false",
            ],
        )
        self._processes.wait_until(
            "kube-apiserver", lambda: self._is_ok(f"{self.access.url}/readyz"), "/readyz"
        )

    def _start_controller_manager(self) -> None:
        self._start_client(
            "kube-controller-manager",
            f"--controllers={','.join(CONTROLLERS)}",
            "--use-service-account-credentials",  # RBAC gives each controller its rights, not their host
            f"--service-account-private-key-file={self.service_account_key}",
            f"--root-ca-file={self._authority.file}",
            f"--cluster-signing-cert-file={self._authority.file}",
            f"--cluster-signing-key-file={self._authority.key_file}",
            f"--node-monitor-grace-period={NODE_GRACE_S}s",
            "--node-monitor-period=1s",
        )

    def _start_scheduler(self) -> None:
        self._start_client("kube-scheduler")

    def _start_client(self, name: str, *arguments: str) -> None:
        kubeconfig = self.kubeconfig(f"system:{name}")
        port = free_port()
        self._processes.start(
            name,
            [
                str(self.assets / name),
                f"--kubeconfig={kubeconfig}",
                f"--authentication-kubeconfig={kubeconfig}",
                f"--authorization-kubeconfig={kubeconfig}",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                "--authentication-skip-lookup",
                "--leader-elect=false",
                "--profiling=false",
                *arguments,
            ],
        )
        health = f"https://127.0.0.1:{port}/healthz"
        self._processes.wait_until(name, lambda: self._is_ok(health, verify=False), "/healthz")

    def _has_default_account(self) -> bool:
        return self._is_ok(f"{self.access.url}/api/v1/namespaces/default/serviceaccounts/default")

    def _is_ok(self, url: str, *, verify: bool = True) -> bool:
        secure = url.startswith("https:")
        context = ssl.create_default_context(cafile=str(self.access.ca_file)) if secure else None
        if (
            context and not verify
        ):  # the clients' health ports have certificates of their own making
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        request = urllib.request.Request(  # noqa: S310 - loopback URLs made here
            url, headers={"Authorization": f"Bearer {self.access.admin_token}"} if verify else {}
        )
        with (
            contextlib.suppress(OSError, urllib.error.URLError),
            urllib.request.urlopen(request, timeout=2, context=context) as answer,  # noqa: S310 - as above
        ):
            return bool(answer.status == 200)
        return False

    def _write_kubeconfig(self, file: Path, user: dict[str, str]) -> None:
        cluster = {"server": self.access.url, "certificate-authority": str(self.access.ca_file)}
        body = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        file.write_text(yaml.safe_dump(body))
        file.chmod(0o600)
