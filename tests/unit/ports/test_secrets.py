from __future__ import annotations

from datetime import UTC, datetime

import pytest

from remuda.kube.core import Secret
from remuda.ports.kube import Manifest, Token
from remuda.ports.wire import Request, Response

SECRET = b"hunter2"


@pytest.mark.parametrize(
    "holder",
    [
        Request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", (), SECRET),
        Response(201, SECRET),
        Manifest(SECRET, "ci"),
        Token(SECRET.decode(), datetime(2026, 1, 1, tzinfo=UTC)),
        Secret(data={"password": SECRET}),
    ],
    ids=lambda holder: type(holder).__name__,
)
def test_what_may_hold_a_secret_does_not_show_it(holder: object) -> None:
    assert "hunter2" not in repr(holder)
    assert "hunter2" not in f"{holder}"
    assert "hunter2" not in repr([holder])
