"""What the GitHub adapter is told, and how it says that it cannot be used: without showing a key or a secret."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from remuda.adapters.github import GithubSettings, MintScope, github_forge
from remuda.model.errors import BadInput
from tests.support.github_server import MovedClock, app_key

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "canary-secret-12345"  # noqa: S105 - the tests' own


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    key = tmp_path / "app.pem"
    key.write_text(app_key()[0])
    return {
        "REMUDA_GITHUB_APP_ID": "123",
        "REMUDA_GITHUB_PRIVATE_KEY_FILE": str(key),
        "REMUDA_GITHUB_WEBHOOK_SECRET": SECRET,
    }


def test_without_any_setting_there_is_no_github() -> None:
    assert GithubSettings.from_env({"PATH": "/bin", "REMUDA_GITHUB_APP_ID": " "}) is None


def test_the_least_that_is_needed_is_an_app_a_key_and_a_secret(env: dict[str, str]) -> None:
    settings = GithubSettings.from_env(env)
    assert settings is not None
    assert (settings.app_id, settings.private_key) == ("123", app_key()[0])
    assert settings.webhook_secrets == (SECRET,)
    assert (settings.api_url, settings.host) == ("https://api.github.com", "github.com")
    assert (settings.accounts, settings.runner_group) == ((), 1)
    assert settings.scope is MintScope.ORGANISATION


def test_everything_can_be_set(env: dict[str, str], tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text("new\n\nold\n")
    more = {
        "REMUDA_GITHUB_WEBHOOK_SECRET": "",
        "REMUDA_GITHUB_WEBHOOK_SECRET_FILE": str(secrets),
        "REMUDA_GITHUB_API_URL": "https://ghes.example/api/v3/",
        "REMUDA_GITHUB_ACCOUNTS": "Acme, globex",
        "REMUDA_GITHUB_RUNNER_GROUP": "acme=Build machines,globex=7,3",
        "REMUDA_GITHUB_SCOPE": "repository",
        "REMUDA_GITHUB_REPOSITORIES": "acme/widgets, acme/gadgets",
        "REMUDA_GITHUB_INTAKE": "polling",
    }
    settings = GithubSettings.from_env(env | more)
    assert settings is not None
    assert settings.webhook_secrets == ("new", "old")
    assert (settings.api_url, settings.host) == ("https://ghes.example/api/v3", "ghes.example")
    assert settings.serves("ACME")
    assert not settings.serves("initech")
    assert [settings.group_for(name) for name in ("Acme", "globex", "other")] == [
        "Build machines",
        7,
        3,
    ]
    assert settings.scope is MintScope.REPOSITORY
    assert settings.serves_repository("Acme/Widgets")
    assert not settings.serves_repository("acme/other")
    assert (settings.polls, settings.takes_messages) == (True, True)


def test_who_polls_needs_no_secret(env: dict[str, str]) -> None:
    env = {**env, "REMUDA_GITHUB_WEBHOOK_SECRET": "", "REMUDA_GITHUB_INTAKE": "polling"}
    settings = GithubSettings.from_env(env)
    assert settings is not None
    assert (settings.polls, settings.takes_messages) == (True, False)
    assert settings.installations_s <= 30, "no message tells of a new installation"
    assert settings.repositories_s <= 60, "or of a new repository"


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://api.github.com", "github.com"),
        ("https://API.github.com/", "github.com"),
        ("https://api.octo.ghe.com", "octo.ghe.com"),
        ("https://ghes.example/api/v3", "ghes.example"),
        ("https://api.ghes.example/api/v3", "api.ghes.example"),
        ("https://ghes.example:8443/api/v3", "ghes.example:8443"),
    ],
)
def test_each_github_has_its_own_word_in_the_ids_of_jobs(
    env: dict[str, str], url: str, host: str
) -> None:
    settings = GithubSettings.from_env(env | {"REMUDA_GITHUB_API_URL": url})
    assert settings is not None
    assert settings.host == host


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("APP_ID", "", "REMUDA_GITHUB_APP_ID is not set"),
        ("APP_ID", "a b", "id cannot be used"),
        ("PRIVATE_KEY_FILE", "", "REMUDA_GITHUB_PRIVATE_KEY_FILE is not set"),
        ("PRIVATE_KEY_FILE", "/no/such/file", "No such file"),
        ("PRIVATE_KEY_FILE", "/", "Is a directory"),
        ("PRIVATE_KEY_FILE", "/dev/null", "it is empty"),
        ("WEBHOOK_SECRET", "", "webhook secret is missing"),
        ("WEBHOOK_SECRET_FILE", "/no/such/file", "No such file"),
        ("API_URL", "api.github.com", "not a URL with a host"),
        ("API_URL", "http://ghes.example/api/v3", "in clear"),
        ("API_URL", "https://user:pw@ghes.example", "a user, a query"),
        ("API_URL", "https://[", "not a URL"),
        ("ACCOUNTS", "acme,glo bex", "is no account"),
        ("RUNNER_GROUP", "a,b", "cannot be used"),
        ("RUNNER_GROUP", "acme=", "cannot be used"),
        ("SCOPE", "enterprise", "organisation or"),
        ("REPOSITORIES", "acme/widgets,acme", "is no repository"),
        ("INTAKE", "pigeon", "webhook or to polling"),
    ],
)
def test_what_cannot_be_used_is_said_with_what_why_and_fix(
    env: dict[str, str], name: str, value: str, says: str
) -> None:
    with pytest.raises(BadInput, match=says) as raised:
        GithubSettings.from_env(env | {f"REMUDA_GITHUB_{name}": value})
    text = "".join(traceback.format_exception(raised.value))
    assert SECRET not in text
    assert "pw@" not in str(raised.value)
    assert raised.value.fix


def _pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, passphrase: bytes = b"") -> str:
    hidden = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden).decode()


async def test_githubs_form_of_a_key_and_the_newer_one_are_read() -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    for pem in (app_key()[0], _pem(key)):
        settings = GithubSettings(app_id="1", private_key=pem, webhook_secrets=("s",))
        async with github_forge(settings, MovedClock()):
            pass


@pytest.mark.parametrize(
    ("pem", "says"),
    [
        pytest.param("canary-key", "not a PEM file", id="no key at all"),
        pytest.param(
            _pem(ec.generate_private_key(ec.SECP256R1())), "not an RSA key", id="another kind"
        ),
        pytest.param(
            _pem(rsa.generate_private_key(public_exponent=65537, key_size=2048), b"pw"),
            "passphrase",
            id="one with a passphrase",
        ),
        pytest.param(
            _pem(rsa.generate_private_key(public_exponent=65537, key_size=1024)),  # noqa: S505 - that is the point
            "shorter",
            id="a short one",
        ),
        pytest.param(app_key()[0][:400], "not a PEM file", id="half of one"),
    ],
)
async def test_a_key_that_is_none_is_refused_before_anything_is_asked(pem: str, says: str) -> None:
    settings = GithubSettings(app_id="1", private_key=pem, webhook_secrets=("s",))
    with pytest.raises(BadInput, match=says) as raised:
        async with github_forge(settings, MovedClock()):
            pass
    shown = "".join(traceback.format_exception(raised.value)) + repr(settings)
    assert not any(line in shown for line in pem.splitlines() if "KEY" not in line)
