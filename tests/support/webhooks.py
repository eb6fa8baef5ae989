"""The route of GitHub's messages, served for real, and messages as GitHub signs them."""

from __future__ import annotations

import hashlib
import hmac
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from remuda.adapters.github import GithubSettings, GithubWebhooks
from remuda.adapters.http_server import serving_http
from remuda.adapters.status_server import Listen
from remuda.adapters.system import SystemClock
from remuda.dispatch.api.app import Process, build_app
from remuda.dispatch.api.ready import Ready
from remuda.dispatch.api.webhooks import webhook_routes
from remuda.dispatch.intake import Intake
from remuda.dispatch.metrics import DispatchMetrics
from remuda.dispatch.settings import IntakeSettings
from remuda.dispatch.who import Unknown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.dispatch.who import PersonIdentity, ServiceIdentity
    from remuda.ports.deliveries import Deliveries

SECRET = "it is a secret to everybody"  # noqa: S105 - made up
PATH = "/webhooks/github"
NOBODY = Unknown(401, "nobody is known here", "Ask elsewhere")


def a_body(number: int = 1, action: str = "queued", **job: object) -> bytes:
    """Write a message about a job, in the words that matter of GitHub's many."""
    said = {
        "action": action,
        "workflow_job": {"id": number, "run_id": 9000 + number, "labels": ["fast"], **job},
        "repository": {"full_name": "acme/app", "id": 7},
        "installation": {"id": 42},
    }
    return json.dumps(said).encode()


def signed(body: bytes, guid: str, secret: str = SECRET) -> dict[str, str]:
    """Return the headers that GitHub sends with a body."""
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {
        "Content-Type": "application/json",
        "X-GitHub-Event": "workflow_job",
        "X-GitHub-Delivery": guid,
        "X-Hub-Signature-256": f"sha256={digest}",
    }


class _NoDoorman:
    """Lets nobody in: the route has its own check. Implements ``Doorman``."""

    async def person(self, token: str) -> PersonIdentity | Unknown:  # noqa: ARG002 - the port
        return NOBODY

    async def service(self, token: str) -> ServiceIdentity | Unknown:  # noqa: ARG002 - the port
        return NOBODY

    def is_controller(self, who: ServiceIdentity) -> bool:  # noqa: ARG002 - the port
        return False


@dataclass
class Post:
    """A server that takes messages."""

    deliveries: Deliveries
    settings: IntakeSettings = field(default_factory=IntakeSettings)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    address: str = ""

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Post]:
        github = GithubSettings(app_id="1", private_key="none", webhook_secrets=(SECRET,))
        intake = Intake(
            GithubWebhooks(github),
            self.deliveries,
            settings=self.settings,
            metrics=DispatchMetrics(self.registry),
        )
        process = Process(
            doorman=_NoDoorman(),
            registry=self.registry,
            clock=SystemClock(),
            problems=tuple,
            ready=_ready,
        )
        app = build_app([], webhook_routes(intake), process)
        async with serving_http(app, Listen("127.0.0.1", 0), shutdown_s=1) as server:
            self.address = server.address
            yield self

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def counted(self, outcome: str) -> float:
        return self.registry.get_sample_value("remuda_webhooks_total", {"outcome": outcome}) or 0.0


async def _ready() -> Ready:
    return Ready(ok=True, says="ok")
