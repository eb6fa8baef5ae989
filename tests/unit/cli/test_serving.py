"""How one replica is put together from what it was told."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.adapters.github import GithubSettings, Taking
from remuda.adapters.kube_client import Connection
from remuda.adapters.status_server import Listen
from remuda.cli.serving import ServerSettings, intake_of
from remuda.dispatch.settings import DispatchSettings

POLLING = GithubSettings(app_id="1", private_key="", intake=Taking.POLLING)
BOTH = GithubSettings(app_id="1", private_key="", webhook_secrets=("s",), intake=Taking.POLLING)
MESSAGES = GithubSettings(app_id="1", private_key="", webhook_secrets=("s",))


@pytest.mark.parametrize(
    ("github", "polls", "messages"),
    [
        pytest.param(None, False, True, id="no GitHub"),
        pytest.param(MESSAGES, False, True, id="messages"),
        pytest.param(POLLING, True, False, id="polling"),
        pytest.param(BOTH, True, True, id="both"),
    ],
)
def test_news_come_in_as_github_was_set_up(
    github: GithubSettings | None, *, polls: bool, messages: bool
) -> None:
    intake = intake_of(
        ServerSettings(
            connection=Connection(server="http://127.0.0.1:1"),
            dispatch=DispatchSettings(namespace="ci"),
            listen=Listen(),
            data=Path("/nowhere"),
            env={},
            github=github,
        )
    )
    assert (intake.polling is not None, intake.messages) == (polls, messages)
