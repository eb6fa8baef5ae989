"""Joins the agent's parts to the outside world: API server, dispatch, driver, HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.adapters.kube_client import Connection
    from remuda.adapters.poll_client import PollSettings
    from remuda.adapters.status_server import Listen
    from remuda.agent.settings import AgentSettings
    from remuda.cli.drivers import DriverSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCommand:
    """Everything the command was told, read and checked."""

    connection: Connection
    agent: AgentSettings
    driver: DriverSettings
    dispatch: PollSettings
    listen: Listen
    kubelet: Listen
    """Where logs are served to the API server."""
    kubelet_client_ca: Path | None
    """Who signs the API server's certificate; None: no logs are served."""


async def host(command: AgentCommand) -> None:
    """Run the agent until cancelled."""
    raise NotImplementedError(command)
