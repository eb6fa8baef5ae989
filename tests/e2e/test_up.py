"""One machine, one command: a fleet that is started, used, killed in every way and started again."""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from remuda.cli.tree.parts import STARTED
from tests.support.eventually import eventually
from tests.support.kubectl import Kubectl, found
from tests.support.trees import Tree, a_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONG = (
    "a-folder-whose-path-is-too-long-for-the-address-of-a-unix-socket-by-any-measure-of-any-system"
)


@pytest.fixture(scope="module")
def kept_tree() -> Iterator[Tree]:
    with a_tree("--vms=2", name=LONG) as tree:
        yield tree


@pytest.fixture
def tree(kept_tree: Tree) -> Tree:
    """Return the tree, up and well: the tests share it, and each leaves it as it likes."""
    if not kept_tree.status()["ok"]:
        kept_tree.kill_all()
        kept_tree.up()
    return kept_tree


def kubectl(tree: Tree) -> Kubectl:
    programs = found()
    if not programs:
        pytest.skip("no kubectl: run `make control-plane`, or install one")
    return Kubectl(next(iter(programs.values())), tree.kubeconfig)


async def test_a_job_runs_and_kubectl_shows_the_living_fleet(tree: Tree) -> None:
    job = await tree.post("echo on one machine; exit 7")

    over = await tree.until_job(job)

    assert over["conclusion"] == "failure"
    assert await tree.exit_code(over["pod"]) == 7
    assert "on one machine\n" in await tree.api.text(f"/api/v1/jobs/{job}/logs")
    ask = kubectl(tree)
    shown = await asyncio.to_thread(ask, "get", "runnerpools,pods,nodes")
    assert "runnerpool.remuda.dev/default" in shown
    assert "pod/default-" in shown
    assert f"node/{tree.folder.kept().node}" in shown  # type: ignore[union-attr] # it is up
    assert "Ready" in shown
    said = tree.status()
    assert [part["name"] for part in said["parts"]] == list(STARTED)
    assert {part["condition"] for part in said["parts"]} == {"healthy"}
    assert said["isolated"] is False


async def test_an_edit_of_the_pool_rolls_it_and_outlives_a_restart(tree: Tree) -> None:
    (tree.folder.images / "second").mkdir(exist_ok=True)
    ask = kubectl(tree)

    change = '{"spec": {"image": "second"}}'
    await asyncio.to_thread(
        ask, "patch", "runnerpool", "default", "--type=merge", f"--patch={change}"
    )

    async def images() -> str:
        path = "{range .items[*]}{.spec.containers[0].image} {.status.phase},{end}"
        return await asyncio.to_thread(ask, "get", "pods", f"--output=jsonpath={path}")

    await eventually(images, lambda s: s == "second Running,second Running,", within_s=120)
    tree.kill_all()
    tree.up()
    image = await asyncio.to_thread(
        ask, "get", "runnerpool", "default", "--output=jsonpath={.spec.image}"
    )
    assert image == "second", "a pool that is there is never overwritten"


async def test_jobs_outlive_every_part_its_keeper_and_all_at_once(tree: Tree) -> None:
    go, ran = tree.data / "go", tree.data / "ran"
    go.unlink(missing_ok=True)
    script = f"echo begun $0 >>{ran}; until [ -e {go} ]; do sleep 0.1; done"
    jobs = [await tree.post(script) for _ in range(2)]
    for job in jobs:
        await tree.until_job(job, "running")
    jobs.append(await tree.post(script))  # no runner is left for it: it stays queued

    before = {part: tree.kill(part) for part in STARTED}
    said = await tree.until_well()
    assert all(part["restarts"] >= 1 for part in said["parts"])
    assert all(part["pid"] != before[part["name"]] for part in said["parts"])

    tree.kill_supervisor()
    said = tree.status()
    assert not said["ok"]
    assert "Nobody tends" in said["says"]
    tree.up()
    assert "Ended what an earlier remuda up left" in tree.folder.log("up").read_text()

    tree.kill_all()
    assert "Nothing runs" in tree.status()["says"]
    tree.up()

    states = [(await tree.api.get(f"/api/v1/jobs/{job}"))["state"] for job in jobs]
    assert states == ["running", "running", "queued"]
    go.touch()
    for job in jobs:
        assert (await tree.until_job(job))["conclusion"] == "success"
    assert len(ran.read_text().splitlines()) == 3, "each ran once"


async def test_numbers_that_now_belong_to_strangers_harm_nobody(tree: Tree) -> None:
    tree.strike(vms=True)
    with subprocess.Popen(["/bin/sleep", "3600"]) as stranger:  # noqa: ASYNC220 - it is only to be there
        try:
            number = f"{stranger.pid}\n"
            postmaster = tree.folder.postgres / "data" / "postmaster.pid"
            _, rest = postmaster.read_text().split("\n", 1)
            postmaster.write_text(number + rest)
            named = [tree.folder.lock, tree.folder.postgres / "lock"]
            named += [
                tree.folder.part(part) / file for part in STARTED for file in ("pid", "program")
            ]
            named += tree.folder.agent.glob("process/vms/*/run/pid")
            for file in named:
                file.write_text(number)

            assert "Nothing runs" in tree.status()["says"]
            assert "Nothing runs" in tree.down("--end-jobs")
            tree.up()
            job = await tree.post("exit 0")
            assert (await tree.until_job(job))["conclusion"] == "success"
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_second_one_is_refused_and_a_port_that_is_taken_is_named(tree: Tree) -> None:
    answer = tree.remuda("up")
    assert answer.code == 1
    assert "Another remuda up is there already" in answer.said
    assert "remuda down" in answer.said

    with a_tree() as other, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        answer = other.remuda("up", "--detach", f"--port={port}")
        assert answer.code == 1
        assert f"The server cannot listen on 127.0.0.1:{port}" in answer.said
        assert "--port" in answer.said
        assert other.processes() == {}


def test_a_database_that_is_half_there_is_named_and_nothing_is_left_running() -> None:
    with a_tree() as tree:
        (tree.folder.postgres / "data").mkdir(parents=True)
        (tree.folder.postgres / "data" / "base").mkdir()
        tree.folder.lock.touch()
        _give_to_nobody(tree.folder.postgres)

        answer = tree.remuda("up", "--detach")

        assert answer.code == 1
        assert "is no whole PostgreSQL data directory" in answer.said
        assert "fix: Move it away" in answer.said
        assert tree.processes() == {}


async def test_down_leaves_jobs_alone_or_nothing_at_all(tree: Tree) -> None:
    go = tree.data / "go-on"
    job = await tree.post(f"until [ -e {go} ]; do sleep 0.1; done")
    await tree.until_job(job, "running")

    said = tree.down()
    assert "It is down." in said
    assert "1 VM" in said
    assert tree.processes() != {}, "the job goes on"
    assert "Nothing runs" in tree.status()["says"]

    tree.up()
    go.touch()
    assert (await tree.until_job(job))["conclusion"] == "success"

    lost = await tree.post("sleep 3600")
    await tree.until_job(lost, "running")
    assert "ended, with what ran there" in tree.down("--end-jobs")

    async def left() -> dict[int, str]:
        return tree.processes()

    await eventually(left, lambda processes: processes == {}, within_s=60)
    assert "Nothing runs in" in tree.down()
    assert not tree.status()["ok"]


def _give_to_nobody(folder: Path) -> None:
    """As root, data is run by its owner, and never by root."""
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        for path in (folder, folder / "data", folder / "data" / "base"):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
