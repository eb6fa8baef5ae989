"""What is read for the checks, where there is little or nothing to read, and the command as people meet it then."""

from __future__ import annotations

import asyncio
import errno
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from remuda.adapters.system import SystemClock
from remuda.cli.doctor.asking import asked, readable
from remuda.cli.doctor.command import doctor
from remuda.cli.doctor.decide.facts import GithubFacts, Unread
from remuda.cli.doctor.decide.report import CHECKS
from remuda.cli.doctor.gather_api import github_facts, violations_in
from remuda.cli.doctor.gather_kube import OPERATOR_LEASE, holds, purposes
from remuda.cli.doctor.gather_machine import machine_facts
from remuda.cli.finding import Where
from remuda.cli.tree.folder import Folder, Kept
from remuda.kube import crd
from remuda.kube.runner_pod import PodSettings
from remuda.pools.settings import PoolSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from click.testing import Result

FIELDS = {"name", "group", "level", "sentence", "evidence", "fix", "invariants", "mendable"}


def run(*args: str, **env: str) -> Result:
    bare = {
        **dict.fromkeys(("REMUDA_DATA", "REMUDA_SERVER", "REMUDA_KUBECONFIG", "KUBECONFIG")),
        **env,
    }
    return CliRunner().invoke(doctor, args, env=bare, catch_exceptions=False)


# --- the command ------------------------------------------------------------------------------------------------------


def test_with_nothing_there_one_thing_is_wrong_and_the_first_step_is_said(tmp_path: Path) -> None:
    answer = run("--json", HOME=str(tmp_path), XDG_DATA_HOME=str(tmp_path / "share"))

    said = json.loads(answer.stdout)
    assert answer.exit_code == 1
    assert said["ok"] is False
    assert [check["name"] for check in said["checks"]] == [check.name for check in CHECKS]
    assert all(set(check) == FIELDS for check in said["checks"])
    failed = [check for check in said["checks"] if check["level"] == "fail"]
    assert [check["name"] for check in failed] == ["up-running"]
    assert "remuda up" in failed[0]["fix"]
    assert list(tmp_path.iterdir()) == [], "a look changes nothing"


def test_a_kubeconfig_that_is_none_is_the_fault_and_the_rest_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("{{")

    answer = run("-o", "yaml", f"--kubeconfig={file}")

    assert answer.exit_code == 1
    levels = {check["name"]: check["level"] for check in yaml.safe_load(answer.stdout)["checks"]}
    assert levels.pop("kubernetes-api") == "fail"
    assert set(levels.values()) == {"skip"}


def test_servers_that_do_not_answer_are_the_faults(tmp_path: Path) -> None:
    file = tmp_path / "config"
    cluster = {"clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}]}
    context = {"contexts": [{"name": "a", "context": {"cluster": "a"}}], "current-context": "a"}
    file.write_text(json.dumps(cluster | context))

    answer = run("--server=http://127.0.0.1:1", "--token=x", f"--kubeconfig={file}")

    assert answer.exit_code == 1
    assert answer.stdout.count("  fail  ") == 2
    assert "http://127.0.0.1:1 does not answer" in answer.stdout
    assert "http://127.0.0.1:1 could not be asked" in answer.stdout
    assert "\x1b" not in answer.stdout


def test_nothing_is_mended_where_nothing_can_be_seen(tmp_path: Path) -> None:
    answer = run("--fix", "--only=up-running", f"--data={tmp_path / 'none'}")
    assert answer.exit_code == 1
    assert "nothing that can be mended safely" in answer.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        pytest.param(
            ["--only=nonsense"], "is no check. There are: data-folder", id="no such check"
        ),
        pytest.param(["--dry-run"], "give --fix too", id="a dry run of nothing"),
        pytest.param(["--stuck-after=soon"], "not a time such as", id="no time"),
    ],
)
def test_a_command_that_makes_no_sense(args: list[str], words: str) -> None:
    answer = run(*args)
    assert answer.exit_code == 2
    assert words in answer.stderr


# --- this machine -----------------------------------------------------------------------------------------------------


async def test_a_named_fleet_is_not_the_one_of_this_machine() -> None:
    found = await machine_facts(Where(server="https://dispatch.test"))
    assert isinstance(found, Unread)
    assert not found.asked


async def test_a_folder_that_was_used_once(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.lock.touch()
    folder.keep(Kept(node="here", driver="qemu", image="debian@sha256:0", vms=1, pool="default"))
    (tmp_path / ".kept.json.new").write_text("{")
    (tmp_path / "api-token").write_text("secret")
    (tmp_path / "api-token").chmod(0o644)
    folder.home.addresses_file.write_text("{")

    found = await machine_facts(Where(data=tmp_path))

    assert not isinstance(found, Unread)
    assert found.folder.leftovers == (str(tmp_path / ".kept.json.new"),)
    assert found.folder.exposed == ("api-token",)
    assert len(found.folder.broken) == 1
    assert "addresses.json" in found.folder.broken[0]
    assert not isinstance(found.driver, Unread)
    assert (found.driver.name, found.driver.image_there) == ("qemu", False)
    assert not isinstance(found.tree, Unread)
    assert found.tree.supervisor is None


async def test_keys_of_the_app_and_of_the_authority_are_for_their_owner_alone(
    tmp_path: Path,
) -> None:
    folder = Folder(tmp_path)
    folder.lock.touch()
    for place in (folder.pki, folder.github):
        place.mkdir(parents=True, mode=0o700)
        for name in ("closed", "open", ".half.new"):
            (place / name).touch(mode=0o600)
        (place / "open").chmod(0o640)
    folder.control_plane.chmod(0o700)
    folder.github.chmod(0o755)

    found = await machine_facts(Where(data=tmp_path))

    assert not isinstance(found, Unread)
    assert found.folder.exposed == ("github", "control-plane/pki/open", "github/open")
    assert found.folder.leftovers == (
        str(folder.pki / ".half.new"),
        str(folder.github / ".half.new"),
    )


async def test_a_folder_that_is_somebody_elses(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "images").mkdir()
    found = await machine_facts(Where(data=tmp_path))
    assert not isinstance(found, Unread)
    assert found.folder.foreign == ("photos",)
    assert isinstance(found.tree, Unread)


async def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = await machine_facts(Where(data=tmp_path / "file"))
    assert not isinstance(found, Unread)
    assert "Not a directory" in found.folder.fault


async def test_a_file_that_is_closed_to_us_is_a_fact_like_any_other() -> None:
    async def closed() -> str:
        raise PermissionError(errno.EACCES, "Permission denied", "/data/kubeconfig")

    found = await readable(closed())
    assert isinstance(found, Unread)
    assert found.why == "/data/kubeconfig: Permission denied."


async def test_what_does_not_come_is_waited_for_no_longer_than_said() -> None:
    found = await asked(asyncio.Event().wait(), 0.01)
    assert isinstance(found, Unread)
    assert "No answer came" in found.why


# --- the servers ------------------------------------------------------------------------------------------------------


def test_the_operators_lease_is_the_one_that_it_takes() -> None:
    settings = PoolSettings(
        namespace="ci", identity="one", pod=PodSettings(dispatch_url="http://d")
    )
    assert settings.election().name == OPERATOR_LEASE


def test_what_is_asked_for_is_what_commands_do() -> None:
    needs = [str(one.need) for one in purposes("ci")]
    assert "patch pods in namespace ci" in needs
    assert "list leases.coordination.k8s.io in namespace kube-node-lease" in needs
    assert len(set(needs)) == len(needs)


@pytest.mark.parametrize(
    ("there", "same"),
    [
        pytest.param({"a": 1, "b": [{"c": 2}]}, True, id="the same"),
        pytest.param(
            {"a": 1, "b": [{"c": 2, "d": 3}], "e": 4}, True, id="with a server's defaults"
        ),
        pytest.param({"b": [{"c": 2}]}, False, id="less"),
        pytest.param({"a": 2, "b": [{"c": 2}]}, False, id="another value"),
        pytest.param({"a": 1, "b": [{"c": 2}, {}]}, False, id="a longer list"),
        pytest.param({"a": 1, "b": "c"}, False, id="of another kind"),
    ],
)
def test_whether_a_kind_is_as_we_have_it(there: object, same: bool) -> None:  # noqa: FBT001 - a table's column
    assert holds(there, {"a": 1, "b": [{"c": 2}]}) is same


def test_our_own_kinds_are_as_we_have_them() -> None:
    for manifest in crd.manifests():
        assert holds(json.loads(json.dumps(manifest)), manifest)


def test_findings_are_read_from_metrics() -> None:
    text = (
        "# TYPE remuda_invariant_violations gauge\n"
        'remuda_invariant_violations{invariant="S1"} 0.0\n'
        'remuda_invariant_violations{invariant="V3"} 2.0\n'
        'remuda_jobs_queued{pool="mac"} 7.0\n'
    )
    assert violations_in(text) == {"S1": 0, "V3": 2}
    assert violations_in("nonsense") == {}


async def test_github_is_asked_only_if_it_is_set_up(tmp_path: Path) -> None:
    clock = SystemClock()
    nothing = await github_facts(clock, env={"PATH": "/bin"})
    assert isinstance(nothing, Unread)
    assert not nothing.asked

    half = await github_facts(clock, env={"REMUDA_GITHUB_APP_ID": "1"})
    assert isinstance(half, Unread)
    assert half.asked
    assert "REMUDA_GITHUB_PRIVATE_KEY_FILE" in half.why

    file = tmp_path / "settings.env"
    file.write_text("REMUDA_GITHUB_APP_ID=1\n")
    kept = await github_facts(clock, file, env={})
    assert isinstance(kept, Unread)
    assert kept.asked, "what remuda setup github left is looked at too"

    named = await github_facts(clock, env={"REMUDA_GITHUB_FILE": str(file)})
    assert isinstance(named, Unread)
    assert named.asked, "and the file that a server is told by the environment"
    assert "REMUDA_GITHUB_PRIVATE_KEY_FILE" in named.why
    gone = await github_facts(clock, env={"REMUDA_GITHUB_FILE": str(tmp_path / "gone")})
    assert isinstance(gone, Unread)
    assert gone.asked
    assert "cannot be read" in gone.why


@asynccontextmanager
async def a_github(status: int) -> AsyncIterator[str]:
    """Serve what GitHub answers to the App's own question."""

    async def app(request: web.Request) -> web.Response:
        assert request.headers["Authorization"].lower().startswith("bearer ey")
        return web.json_response({"slug": "our-app", "message": "no"}, status=status)

    site = web.Application()
    site.router.add_get("/app", app)
    server = TestServer(site)
    await server.start_server()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.close()


@pytest.mark.parametrize(("status", "known"), [(200, True), (401, False), (500, False)])
async def test_github_says_whether_it_knows_the_app(
    tmp_path: Path, status: int, *, known: bool
) -> None:
    key = tmp_path / "app.pem"
    key.write_bytes(
        generate_private_key(65537, 2048).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
    )
    async with a_github(status) as url:
        env = {
            "REMUDA_GITHUB_APP_ID": "1",
            "REMUDA_GITHUB_PRIVATE_KEY_FILE": str(key),
            "REMUDA_GITHUB_WEBHOOK_SECRET": "what only we know",
            "REMUDA_GITHUB_API_URL": url,
        }
        found = await github_facts(SystemClock(), env=env)

    if known:
        assert found == GithubFacts(url.removeprefix("http://"), "our-app")
    else:
        assert isinstance(found, Unread)
        assert found.asked
        assert found.fix
