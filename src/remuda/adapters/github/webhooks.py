"""
The border where GitHub's messages come in. No I/O, and nothing in a body is looked at before its signature was right.

The headers are not signed: the event's name only sorts messages out, and the GUID only tells copies apart.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from gidgethub import ValidationFailure
from gidgethub.sansio import validate_event

from remuda.adapters.github.payloads import job_message
from remuda.ports.deliveries import Delivery
from remuda.ports.forge import Ignored, Rejected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.adapters.github.settings import GithubSettings

EVENT: Final = "workflow_job"
_SIGNATURE: Final = re.compile(r"sha256=[0-9a-f]{64}", re.ASCII)
_GUID: Final = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
_FORM: Final = "application/x-www-form-urlencoded"
_WRONG: Final = Rejected(
    403,
    "The signature is wrong",
    "It was not made over this body with any webhook secret that is set here",
    "Set the same secret here and on the GitHub App's settings page",
)
_MISSING: Final = Rejected(
    401,
    "The message is not signed",
    "The header X-Hub-Signature-256 is missing",
    "Set a webhook secret on the GitHub App's settings page",
)


class GithubWebhooks:
    """Fills ``remuda.ports.forge.Webhooks``."""

    def __init__(self, settings: GithubSettings) -> None:
        self._secrets = settings.webhook_secrets
        self._host = settings.host

    def refuse_unread(self, headers: Mapping[str, str]) -> Rejected | None:
        signature = headers.get("x-hub-signature-256", "")
        if not signature:
            return _MISSING
        return None if _SIGNATURE.fullmatch(signature) else _WRONG

    def accept(self, headers: Mapping[str, str], body: bytes) -> Delivery | Ignored | Rejected:
        if (refusal := self.refuse_unread(headers)) is not None:
            return refusal
        if not self._signed(headers["x-hub-signature-256"], body):
            return _WRONG
        event = headers.get("x-github-event", "")
        if event != EVENT:
            return Ignored("ping" if event == "ping" else "other_event")
        guid = headers.get("x-github-delivery", "")
        if not _GUID.fullmatch(guid):
            return Ignored("no_guid")
        return self._delivery(guid, _json(headers.get("content-type", ""), body))

    def _signed(self, signature: str, body: bytes) -> bool:
        # Every secret is tried, so that the time taken does not tell which one fits.
        return any([_fits(secret, signature, body) for secret in self._secrets])  # noqa: C419 - see above

    def _delivery(self, guid: str, body: bytes) -> Delivery | Ignored:
        message = job_message(body)
        if message is None:
            return Ignored("malformed")
        if message.known_action is None:
            return Ignored("other_action")
        subject = f"{self._host}/{message.workflow_job.id}"
        return Delivery(guid=guid, event=EVENT, body=body, subject=subject)


def _fits(secret: str, signature: str, body: bytes) -> bool:
    try:
        validate_event(body, signature=signature, secret=secret)
    except ValidationFailure:
        return False
    return True


def _json(content_type: str, body: bytes) -> bytes:
    """Return the JSON of a message; a form (GitHub's other content type) has it in one field."""
    if content_type.partition(";")[0].strip().lower() != _FORM:
        return body
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=10)
        return fields["payload"][0].encode()
    except (ValueError, KeyError):
        return b""
