"""``remuda hosts operate`` as a process on the one-machine control plane: a Mac becomes a host, or is said not to."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
import urllib.error
import urllib.request
from base64 import b64decode, b64encode
from signal import SIGTERM
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from tests.support.control_plane import CRD_FOLDER
from tests.support.github_server import APP_ID, GithubServer, app_key
from tests.support.kubectl import Kubectl, found
from tests.support.processes import free_port, pause, seconds, signal_group
from tests.support.scripted_mac import snapshots, states
from tests.support.scripted_mac.bootstrapping import GOOD_AGENT, TART, tart_archive
from tests.support.scripted_mac.place import a_place
from tests.support.standalone import StandaloneProcess

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.scripted_mac.place import Place

WAIT_S = 120.0
MAC_S = 300.0
"""For what is done on a Mac: many programs run there, one after the other."""
CANARY = "canary-password-of-the-account"
WRONG = "canary-of-a-wrong-password"


def a_host(name: str, port: int, secret: str) -> str:
    host = {
        "apiVersion": "remuda.dev/v1alpha1",
        "kind": "Host",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "fleet": "barn",
            "provider": {"static": {"address": "127.0.0.1", "port": port}},
            "ssh": {
                "user": "m1",
                "keySecretRef": {"name": secret, "key": "key"},
                "passwordSecretRef": {"name": secret, "key": "password"},
            },
        },
    }
    return json.dumps(host)


def a_key() -> bytes:
    return ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )


def a_secret(name: str, **values: str) -> str:
    metadata = {"name": name, "namespace": "default"}
    data = {
        key.replace("_", "-"): b64encode(text.encode()).decode() for key, text in values.items()
    }
    return json.dumps({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})


@pytest.fixture(scope="module")
def plane(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[StandaloneProcess, Kubectl]]:
    programs = found()
    if not programs:
        pytest.skip("no kubectl: run `make control-plane`, or install one")
    plane = StandaloneProcess(tmp_path_factory.mktemp("hosts"))
    try:
        plane.start()
        kubectl = Kubectl(next(iter(programs.values())), plane.kubeconfig)
        kubectl("apply", f"--filename={CRD_FOLDER}")
        kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        yield plane, kubectl
    finally:
        plane.stop()


def soon(probe: Callable[[], object], wanted: object) -> None:
    deadline = seconds() + WAIT_S
    while (last := probe()) != wanted:
        assert seconds() < deadline, f"not {wanted!r} in {WAIT_S} s; the last answer was {last!r}"
        pause(0.5)


def read(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - ours
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


class Operator:
    """The process, on a control plane."""

    def __init__(self, process: StandaloneProcess, folder: Path, name: str, *options: str) -> None:
        self._processes, self._name = process.processes, name
        agent, tart = folder / "agent", folder / "tart.tar.gz"
        agent.write_bytes(GOOD_AGENT)
        tart.write_bytes(tart_archive())
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [
            *(sys.executable, "-m", "remuda.cli.main", "hosts", "operate"),
            *(f"--kubeconfig={process.kubeconfig}", f"--listen=127.0.0.1:{port}"),
            *(f"--pki={process.data / 'pki'}", f"--agent={agent}", f"--tart={tart}"),
            *(f"--tart-version={TART}", "--dispatch-url=http://dispatch.test", "--trust-first-key"),
            *options,
        ]
        self._running: subprocess.Popen[bytes] = self._processes.start(name, command)
        leads = lambda: read(f"{self.url}/readyz") == (200, "leading\n")  # noqa: E731 - said once
        self._processes.wait_until(name, leads, "leadership", timeout_s=WAIT_S)

    def ended(self) -> str:
        """Stop it as a service manager does, and return all that it logged."""
        signal_group(self._running, SIGTERM)
        assert self._running.wait(WAIT_S) == 0
        return self._processes.log(self._name).read_text()


class Hosts:
    """Hosts, as a person sees them."""

    def __init__(self, kubectl: Kubectl) -> None:
        self.kubectl = kubectl

    def get(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", "host", name, "--output=json"))
        return found

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(name).get("status", {})
        return found

    def observed(self, name: str) -> int:
        return int(self.status(name).get("observedGeneration", 0))

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        said = self.status(name).get("conditions", ())
        return next((c for c in said if c["type"] == kind), {})

    def events(self) -> str:
        return self.kubectl("get", "events", "--output=json")

    def retry(self, name: str) -> None:
        self.kubectl("annotate", "host", name, "remuda.dev/retry=true")


def test_hosts_that_cannot_be_bootstrapped_say_why_and_can_be_deleted(
    plane: tuple[StandaloneProcess, Kubectl], tmp_path: Path
) -> None:
    process, kubectl = plane
    operator, hosts = Operator(process, tmp_path, "unreachable"), Hosts(kubectl)
    kubectl("apply", "-f", "-", stdin=a_secret("minis", key=a_key().decode(), password=CANARY))
    kubectl("apply", "-f", "-", stdin=a_host("far-away", free_port(), "minis"))
    kubectl("apply", "-f", "-", stdin=a_host("no-key", free_port(), "nowhere"))

    condition = hosts.condition
    soon(lambda: condition("far-away", "Converged").get("reason"), "Unreachable")
    soon(lambda: condition("no-key", "Converged").get("reason"), "NoCredential")
    assert "there is no Secret nowhere" in condition("no-key", "Converged")["message"]
    soon(lambda: "127.0.0.1" in condition("far-away", "Ready").get("message", ""), wanted=True)
    assert condition("far-away", "Ready")["status"] == "False"
    _, metrics = read(f"{operator.url}/metrics")
    phases = [line for line in metrics.splitlines() if line.startswith("remuda_host_phase{")]
    assert len(phases) == 2, "one series per host"
    assert read(f"{operator.url}/healthz") == (200, "ok\n")

    kubectl("delete", "host", "far-away", "no-key", "--wait=false")
    soon(lambda: kubectl("get", "hosts", "--output=name"), "")
    log = operator.ended()
    assert "Traceback" not in log
    assert CANARY not in log + hosts.events()


async def until(probe: Callable[[], bool], what: str, hosts: Hosts) -> None:
    """Wait, and let GitHub answer meanwhile: it is ours, in this process."""
    deadline = seconds() + MAC_S
    while not await asyncio.to_thread(probe):
        assert seconds() < deadline, (
            f"not {what} in {MAC_S} s: {hosts.kubectl('get', 'hosts', '-o', 'yaml')}"
        )
        await asyncio.sleep(0.3)


def check_credential(mac: Place, node: str) -> None:
    """See that the agent on the Mac is that Node, and that nobody else there can say so."""
    file = mac.path("/private/etc/remuda/kubeconfig")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    user = json.loads(file.read_bytes())["users"][0]["user"]
    shown = x509.load_pem_x509_certificate(b64decode(user["client-certificate-data"]))
    assert shown.subject.rfc4514_string() == f"CN=system:node:{node},O=system:nodes"


BUILDER = {
    "githubOrg": "acme",
    "labels": ["image-builder"],
    "runnerVersion": "2.330.0",
    "appSecretRef": {"name": "app", "key": "private-key"},
}


async def test_a_mac_becomes_a_host_and_then_a_builder(
    plane: tuple[StandaloneProcess, Kubectl], tmp_path: Path
) -> None:
    process, kubectl = plane
    hosts, github = Hosts(kubectl), GithubServer()
    with a_place(tmp_path / "mac", password=CANARY) as mac:
        key = mac.key.export_private_key().decode()
        async with github.running("/api/v3"):
            site = github.url.removesuffix("/api/v3")
            operator = Operator(process, tmp_path, "a-mac", f"--github-url={site}")
            kubectl("apply", "-f", "-", stdin=a_secret("mac", key=key, password=WRONG))
            kubectl("apply", "-f", "-", stdin=a_host("mini-1", mac.port, "mac"))

            # The wrong password: tried once, and said.
            await until(lambda: hosts.status("mini-1").get("phase") == "Failed", "given up", hosts)
            assert "password is wrong" in hosts.condition("mini-1", "Converged")["message"]
            assert states.read(mac)["wrong_passwords"] == 1

            # The right one, and a person who says so.
            kubectl("apply", "-f", "-", stdin=a_secret("mac", key=key, password=CANARY))
            hosts.retry("mini-1")
            await until(lambda: bool(hosts.status("mini-1").get("configHash")), "whole", hosts)
            assert hosts.status("mini-1")["hostKeyFingerprint"] == mac.fingerprint
            assert hosts.condition("mini-1", "Converged")["status"] == "True"
            check_credential(mac, "mini-1")

            # All of it once more: nothing is changed.
            before = snapshots.taken(mac)
            hosts.retry("mini-1")
            await until(lambda: "nothing was to do" in hosts.events(), "looked at again", hosts)
            assert snapshots.changed(before, snapshots.taken(mac)) == []
            assert github.asked("registration_token") == [], "a runner needs none"

            # A builder: registered as the App that its Secret holds.
            number = str(github.account("acme").installation)
            app = {"app_id": APP_ID, "installation_id": number, "private_key": app_key()[0]}
            kubectl("apply", "-f", "-", stdin=a_secret("app", **app))
            change = json.dumps({"spec": {"role": "builder", "builder": BUILDER}})
            kubectl("patch", "host", "mini-1", "--type=merge", f"--patch={change}")
            await until(lambda: hosts.observed("mini-1") == 2, "a builder", hosts)
            check_builder(mac, f"{site}/acme")
            assert len(github.asked("registration_token")) == 1
            shown = json.dumps(hosts.get("mini-1")) + hosts.events()

            # Deleted: nothing is left of it, neither on the Mac nor at GitHub.
            github.registered("mini-1", "acme")
            kubectl("delete", "host", "mini-1", "--wait=false")
            await until(lambda: not kubectl("get", "hosts", "--output=name"), "gone", hosts)
            assert github.runners == {}
            assert "gui/501/actions.runner.acme.mini-1" not in states.read(mac)["services"]
            log = operator.ended()
        assert "Traceback" not in log
        told = log + shown + mac.seen().decode(errors="replace")
        secrets = (
            WRONG,
            CANARY,
            github.registration_token,
            "ghs_canary",
            *app_key()[0].split("\n")[1:3],
        )
        assert [secret for secret in secrets if secret in told] == []


def check_builder(mac: Place, url: str) -> None:
    """See that GitHub's runner is registered and loaded there, and that the agent collects no garbage any more."""
    services = states.read(mac)["services"]
    assert services["gui/501/actions.runner.acme.mini-1"]["pid"]
    assert "--disable-vm-gc" in services["system/dev.remuda.agent"]["arguments"]
    registered = json.loads(mac.path("/opt/actions-runner/.runner").read_bytes())
    assert registered == {"agentName": "mini-1", "gitHubUrl": url}
