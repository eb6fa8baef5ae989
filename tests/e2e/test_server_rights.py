"""Dispatch under exactly the rights of docs/howto/server-rbac.yaml, on a real API server that enforces them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.control_plane import REPOSITORY
from tests.support.dispatched import dispatched

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.control_plane import RealControlPlane

RIGHTS = REPOSITORY / "docs" / "howto" / "server-rbac.yaml"
ACCOUNT = "remuda-server"


async def test_the_documented_rights_are_enough_and_the_logs_hold_no_token(
    real_control_plane: RealControlPlane, database_url: str, tmp_path: Path
) -> None:
    plane = real_control_plane
    tokens: list[str] = []

    def with_documented_rights(namespace: str) -> Path:
        mine = tmp_path / "rights.yaml"
        mine.write_text(RIGHTS.read_text().replace("namespace: remuda", f"namespace: {namespace}"))
        plane.kubectl("apply", f"--filename={mine}")
        tokens.append(plane.kubectl("create", "token", ACCOUNT, f"--namespace={namespace}").strip())
        return plane.kubeconfig_with_token("dispatch", tokens[-1])

    async with dispatched(
        plane.access.kubeconfig, database_url, tmp_path, who=with_documented_rights
    ) as stage:
        stage.servers.start("one")
        await stage.servers.ready("one")
        api = stage.api("one")
        await stage.fleet.create_pool("mac", 1, labels=["macos"])
        await stage.fleet.warm("mac", 1)
        posted = await api.post("/api/v1/jobs", {"pool": "mac", "script": "true"})
        assert (await stage.until_job(api, posted["id"]))["conclusion"] == "success"
        assert (await api.get("/api/v1/hosts"))["hosts"], "hosts are listed too"
        await stage.calm()
        logs = stage.servers.logs()

    assert [line for line in logs.splitlines() if "forbidden" in line.lower()] == []
    assert [token for token in (*tokens, *stage.desk.tokens()) if token in logs] == []


async def test_a_missing_right_is_named_until_somebody_grants_it(
    real_control_plane: RealControlPlane, database_url: str, tmp_path: Path
) -> None:
    plane = real_control_plane

    def with_fewer_rights(namespace: str) -> Path:
        text = RIGHTS.read_text().replace("namespace: remuda", f"namespace: {namespace}")
        mine = tmp_path / "rights.yaml"
        mine.write_text(text.replace("[get, list, watch, patch, delete]", "[get, list, watch]"))
        plane.kubectl("apply", f"--filename={mine}")
        token = plane.kubectl("create", "token", ACCOUNT, f"--namespace={namespace}").strip()
        return plane.kubeconfig_with_token("dispatch", token)

    async with dispatched(
        plane.access.kubeconfig, database_url, tmp_path, operators=1, who=with_fewer_rights
    ) as stage:
        stage.servers.start("one")
        await stage.fleet.until(
            lambda: "2 permissions: patch pods in namespace" in stage.servers.log("one")
        )
        assert "server-rbac.yaml" in stage.servers.log("one")
