"""``remuda setup github`` as a person runs it, against a GitHub of our own; GitHub's OpenAPI watches."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import sys
import zlib
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from remuda.adapters.github import GithubSettings
from remuda.adapters.github.conversion import convert
from remuda.adapters.github.manifest import Site
from remuda.adapters.github.settings_file import read_file
from remuda.adapters.system import SystemIds
from remuda.cli.setup_files import GithubFiles
from remuda.cli.setup_flow import Setup, by_code
from remuda.cli.tree.folder import Folder
from remuda.model.errors import RemudaError
from remuda.ports.forge import ForgeUnavailable
from tests.support.eventually import eventually
from tests.support.github_server import APP_ID, SECRET, Fault, app_key
from tests.support.github_site import GithubSite, a_browser

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.github_references import Judge

WAIT_S = 90
KEY_LINE = app_key()[0].splitlines()[3]


@pytest.fixture
async def site(github_openapi: Judge) -> AsyncIterator[GithubSite]:
    github_openapi.faults.clear()
    site = GithubSite()
    site.api.watch = github_openapi.watch
    async with site.running():
        yield site
    assert github_openapi.faults == []


@dataclass
class Command:
    """The command while it runs."""

    process: asyncio.subprocess.Process

    async def page(self) -> str:
        """Return the address of its page."""
        assert self.process.stdout is not None
        async with asyncio.timeout(WAIT_S):
            line = (await self.process.stdout.readline()).decode().strip()
        assert line.startswith("http://127.0.0.1:"), await self.ended()
        return line

    async def ended(self) -> tuple[int, str]:
        """Wait for its end; return its exit code and what it said. Nothing that it says is a secret."""
        async with asyncio.timeout(WAIT_S):
            out, err = await self.process.communicate()
        said = (out + err).decode()
        for secret in (KEY_LINE, SECRET, "client-secret-canary"):
            assert secret not in said
        assert self.process.returncode is not None
        return self.process.returncode, said


@asynccontextmanager
async def setup(data: Path, *options: str) -> AsyncIterator[Command]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "remuda.cli.main", "setup", "github", f"--data={data}", *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "DISPLAY": ""},
    )
    try:
        yield Command(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def ran(data: Path, *options: str) -> tuple[int, str]:
    async with setup(data, *options) as command:
        return await command.ended()


async def test_an_app_is_made_kept_and_installed_with_a_page(
    site: GithubSite, tmp_path: Path
) -> None:
    data = tmp_path / "fleet"
    options = ("--org=acme", f"--github-url={site.url}", "--repos=acme/widgets", "--no-browser")
    async with setup(data, *options) as command, a_browser() as browser:
        page = await command.page()
        start = await browser.open(page)
        assert start.status == 200
        assert start.headers["cache-control"] == "no-store"
        policy = start.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert f"form-action {site.url}" in policy
        (form,) = start.forms
        assert form[""].startswith(f"{site.url}/organizations/acme/settings/apps/new?state=")

        forged = await browser.open(f"{page}created?code=code-1&state=somebody-elses")
        assert (forged.status, len(site.api.codes)) == (403, 0)
        elsewhere = await browser.open(page, host="evil.example")
        assert elsewhere.status == 421
        assert (await browser.open(page.rsplit("/", 2)[0])).status == 404

        made = await browser.send(form)
        assert (made.status, made.url) == (200, page), "the code is out of the address"
        assert 'http-equiv="refresh"' in made.text
        (install,) = made.links
        settings_file = Folder(data).github_settings
        assert settings_file.exists(), "the App is kept before anything else"
        assert (await browser.open(install)).text == "installed"

        async def looked() -> str:
            return (await browser.open(page)).text

        await eventually(looked, lambda text: "GitHub is connected" in text, within_s=WAIT_S)
        code, said = await command.ended()
    assert code == 0, said
    assert "installed for acme" in said
    assert f"remuda up --data {data}" in said
    _check_manifest(site.manifests[0], page)
    _check_kept(data)
    assert (await ran(data, "--check"))[0] == 0


def _check_manifest(manifest: dict[str, Any], page: str) -> None:
    assert manifest["default_permissions"] == {
        "organization_self_hosted_runners": "write",
        "actions": "read",
        "metadata": "read",
    }
    assert manifest["public"] is False
    assert manifest["redirect_url"] == f"{page}created"
    assert not {"hook_attributes", "default_events"} & set(manifest), "there is no webhook"


def _check_kept(data: Path) -> None:
    folder = Folder(data).github
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert modes == dict.fromkeys(("app-7.pem", "app.json", "settings.env"), 0o600)
    settings = GithubSettings.from_env(read_file(folder / "settings.env"))
    assert settings is not None
    assert (settings.app_id, settings.private_key) == (APP_ID, app_key()[0])
    assert (settings.polls, settings.takes_messages) == (True, False)
    assert (settings.accounts, settings.repositories) == (("acme",), ("acme/widgets",))


async def test_an_app_is_made_by_hand_where_no_browser_is(site: GithubSite, tmp_path: Path) -> None:
    data, hook = tmp_path / "fleet", "https://ci.example/webhooks/github"
    where = (f"--github-url={site.url}", f"--webhook-url={hook}")
    code, said = await ran(data, "--user", "--print", "--name=My runners", *where)
    assert code == 0, said
    manifest = json.loads(said[said.index("{") : said.rindex("}") + 1])
    assert manifest["hook_attributes"] == {"url": hook, "active": True}
    assert manifest["default_events"] == ["workflow_job"]
    assert manifest["default_permissions"]["administration"] == "write"
    form_file = Folder(data).github / "register.html"
    assert str(form_file) in said
    assert json.dumps(manifest).replace('"', "&quot;") in form_file.read_text()

    pending = json.loads((Folder(data).github / "pending.json").read_text())
    brought = f"http://127.0.0.1:65535/created?code={site.make_code(manifest, '')}&state="
    code, said = await ran(data, "--code", f"{brought}somebody-elses")
    assert code == 1
    assert "not the answer" in said

    site.install("alice", kind="User")
    code, said = await ran(data, "--code", f"{brought}{pending['state']}")

    assert code == 0, said
    settings = GithubSettings.from_env(read_file(Folder(data).github_settings))
    assert settings is not None
    assert (settings.polls, settings.webhook_secrets) == (False, (SECRET,))
    assert settings.scope == "repository"
    assert not form_file.exists()


async def test_an_app_that_is_there_is_replaced_only_when_told(
    site: GithubSite, tmp_path: Path
) -> None:
    where = f"--github-url={site.url}"
    manifest = {"name": "first"}
    first = await ran(tmp_path / "d", where, "--wait=0", "--code", site.make_code(manifest, "acme"))
    assert first[0] == 0, first[1]
    kept = Folder(tmp_path / "d").github_settings.read_text()

    code, said = await ran(tmp_path / "d", where, "--org=acme")

    assert (code, "set up already" in said) == (4, True)
    assert "the App first" in said
    assert Folder(tmp_path / "d").github_settings.read_text() == kept
    again = await ran(tmp_path / "d", "--replace", where, "--code", "code-999")
    assert again[0] == 1
    assert Folder(tmp_path / "d").github_settings.read_text() == kept, (
        "what failed replaced nothing"
    )
    code, said = await ran(tmp_path / "d", "--check")
    assert (code, "not installed" in said) == (1, True)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        pytest.param(None, "older than an hour", id="a code that is none any more"),
        pytest.param(Fault("conversion", status=422), "used before", id="a code that is refused"),
        pytest.param(Fault("conversion", status=500), "Try again within the hour", id="broken"),
        pytest.param(Fault("conversion", kind="cut"), "Try again within the hour", id="cut off"),
        pytest.param(
            Fault("conversion", status=201, body=b'{"id": 7, "pem": "no key"}'),
            "private key cannot be used",
            id="a key that is none",
        ),
    ],
)
async def test_what_goes_wrong_is_said_and_nothing_is_kept(
    site: GithubSite, tmp_path: Path, fault: Fault | None, says: str
) -> None:
    if fault is not None:
        site.api.faults.append(fault)
    told = _told(site, tmp_path)
    with pytest.raises(RemudaError) as raised:
        await by_code(told, "code-100")
    assert says in str(raised.value)
    assert not told.files.folder.github_settings.exists()
    assert _left(told) == []


def _told(site: GithubSite, place: Path) -> Setup:
    files = GithubFiles(Folder(place / "d"))
    files.make(may_replace=False)
    return Setup(
        files=files,
        site=Site.at(site.url),
        wish=None,
        repositories=(),
        port=0,
        wait_s=0.0,
        opens_browser=False,
        option="",
        ids=SystemIds(),
    )


def _left(told: Setup) -> list[str]:
    """Return what lies about in the folder and is no file of an App."""
    return [path.name for path in told.files.root.iterdir() if path.name.startswith(".")]


async def test_a_disk_that_cannot_take_the_key_is_found_before_github_tells_it(
    site: GithubSite, tmp_path: Path
) -> None:
    told, code = _told(site, tmp_path), site.make_code({"name": "r"}, "acme")
    in_the_way = told.files.root / "..room.new.new"
    in_the_way.mkdir()

    with pytest.raises(RemudaError) as raised:
        await by_code(told, code)
    assert f"--code {code}" in raised.value.fix
    in_the_way.rmdir()

    await by_code(told, code)  # it was not spent
    assert told.files.folder.github_settings.exists()
    assert _left(told) == []


async def test_the_room_for_a_key_is_room_also_on_a_disk_that_compresses(
    site: GithubSite, tmp_path: Path
) -> None:
    told = _told(site, tmp_path)
    told.files.reserve()

    (room,) = (told.files.root / name for name in _left(told))
    kept = room.read_bytes()
    assert len(zlib.compress(kept)) >= len(kept)
    told.files.release()
    assert _left(told) == []


async def test_a_key_that_could_not_be_kept_all_the_same_says_how_to_get_on(
    site: GithubSite, tmp_path: Path
) -> None:
    told, code = _told(site, tmp_path), site.make_code({"name": "r"}, "acme")
    (told.files.root / f"app-{APP_ID}.pem").mkdir()

    with pytest.raises(RemudaError, match="could not be kept here") as raised:
        await by_code(told, code)

    assert f"{site.url}/organizations/acme/settings/apps/" in raised.value.fix
    assert f"REMUDA_GITHUB_APP_ID={APP_ID}" in raised.value.fix
    assert KEY_LINE not in str(raised.value) + raised.value.fix
    assert _left(told) == [], "no half of a key lies about"


async def test_a_failure_is_shown_on_the_page_too(site: GithubSite, tmp_path: Path) -> None:
    options = ("--org=acme", f"--github-url={site.url}")
    async with setup(tmp_path / "d", *options) as command, a_browser() as browser:
        start = await browser.open(await command.page())
        site.api.faults.append(Fault("conversion", status=404))
        failed = await browser.send(start.forms[0])
        assert (failed.status, "older than an hour" in failed.text) == (502, True)
        code, said = await command.ended()
    assert (code, "begin again" in said) == (1, True)


async def test_a_port_that_is_taken_is_said(site: GithubSite, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = ("--org=acme", f"--github-url={site.url}", f"--port={port}")
        code, said = await ran(tmp_path / "d", *options)
    assert code == 1
    assert "in use" in said
    assert "--port" in said


async def test_nobody_coming_back_ends_the_waiting(site: GithubSite, tmp_path: Path) -> None:
    code, said = await ran(tmp_path / "d", "--org=acme", f"--github-url={site.url}", "--wait=1")
    assert (code, "No App was made" in said) == (1, True)


async def test_a_github_that_hangs_is_given_up_and_the_code_can_be_tried_again(
    site: GithubSite,
) -> None:
    code = site.make_code({"name": "r"}, "acme")
    site.api.faults.append(Fault("conversion", kind="hang"))
    with pytest.raises(ForgeUnavailable, match="did not answer within"):
        await convert(Site.at(site.url), code, within_s=0.3)
    assert (await convert(Site.at(site.url), code)).account == "acme"
