"""The operator under exactly the rights of docs/howto/operator-rbac.yaml, on an API server that enforces them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.control_plane import REPOSITORY
from tests.support.operated import check_always, operated

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.control_plane import RealControlPlane

RIGHTS = REPOSITORY / "docs" / "howto" / "operator-rbac.yaml"
ACCOUNT = "remuda-controller"


async def test_the_documented_rights_are_enough_and_the_logs_hold_no_token(
    real_control_plane: RealControlPlane, tmp_path: Path
) -> None:
    plane = real_control_plane
    tokens = [plane.access.admin_token]

    def with_documented_rights(namespace: str) -> Path:
        mine = tmp_path / "rights.yaml"
        mine.write_text(RIGHTS.read_text().replace("namespace: remuda", f"namespace: {namespace}"))
        plane.kubectl("apply", f"--filename={mine}")
        tokens.append(plane.kubectl("create", "token", ACCOUNT, f"--namespace={namespace}").strip())
        return plane.kubeconfig_with_token("operator", tokens[-1])

    async with operated(plane, tmp_path / "logs", with_documented_rights) as stage:
        fleet = stage.fleet
        await fleet.create_pool("mac", 4)
        await fleet.until(lambda: fleet.is_rolled("mac"))
        jobs = await fleet.busy("mac", 1)
        await fleet.change_pool("mac", image="registry.test/runner:2", replicas=3)
        await fleet.desk.finish(jobs[0])
        await fleet.until(lambda: fleet.is_rolled("mac"))
        await stage.kubectl("delete", "rpool", "mac", "--timeout=60s")
        await check_always(fleet)
        logs = stage.operators.logs()

        assert "leading" in logs, "these are the logs of a leader"
        assert [line for line in logs.splitlines() if "forbidden" in line.lower()] == []
        assert [token for token in tokens if token in logs] == []
