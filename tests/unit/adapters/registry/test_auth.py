from __future__ import annotations

import pytest

from remuda.adapters.registry.auth import Challenge, Credentials, read_challenge, read_token
from remuda.adapters.registry.errors import BadAnswer


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param([], None, id="nothing"),
        pytest.param(["Negotiate abc"], None, id="a scheme that we do not know"),
        pytest.param(['basic realm="x"'], Challenge(is_bearer=False, realm="x"), id="basic"),
        pytest.param(
            ['Basic realm="x"', 'Bearer realm="https://t/token",service="s"'],
            Challenge(is_bearer=True, realm="https://t/token", service="s"),
            id="bearer before basic",
        ),
        pytest.param(
            ['Bearer realm="https://t/token",service="s",scope="repository:a/b:pull,push"'],
            Challenge(
                is_bearer=True,
                realm="https://t/token",
                service="s",
                scope="repository:a/b:pull,push",
            ),
            id="commas inside quotes",
        ),
        pytest.param(["Bearer"], Challenge(is_bearer=True), id="bearer alone"),
        pytest.param(["Bearer " + 'a="' * 9999], Challenge(is_bearer=True), id="a long mess"),
    ],
)
def test_read_challenge(headers: list[str], expected: Challenge | None) -> None:
    assert read_challenge(headers) == expected


def test_the_token_url_keeps_what_the_realm_asks() -> None:
    challenge = Challenge(is_bearer=True, realm="https://t/x?a=1#f", service="s v")
    url = challenge.token_url(plain=False, scope="repository:r:pull")
    assert url == "https://t/x?a=1&service=s+v&scope=repository%3Ar%3Apull"


@pytest.mark.parametrize("realm", ["http://t/", "file:///etc/passwd", "", "//t", "https://"])
def test_a_password_goes_to_https_only(realm: str) -> None:
    with pytest.raises(BadAnswer, match="not an https address"):
        Challenge(is_bearer=True, realm=realm).token_url(plain=False, scope="")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"token":"a\\r\\nX: y"}', b'{"token":1}', b'{"token":"a b"}']
)
def test_a_token_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(BadAnswer):
        read_token(body)


@pytest.mark.parametrize("key", ["token", "access_token"])
def test_both_names_of_a_token_are_read(key: str) -> None:
    assert read_token(f'{{"{key}":"abc","expires_in":60}}'.encode()) == "Bearer abc"


def test_a_password_is_not_shown() -> None:
    assert "hunter2" not in repr(Credentials("me", "hunter2"))
