"""The App that GitHub is asked for, where it is made, and what a person may bring back."""

from __future__ import annotations

import pytest

from remuda.adapters.github.conversion import NewApp, Pasted, read_pasted
from remuda.adapters.github.manifest import AppWish, Site
from remuda.model.errors import BadInput
from tests.support.github_site import manifest_fault

HOOK = "https://ci.example/webhooks/github"
BACK = "http://127.0.0.1:4000/t/created"


@pytest.mark.parametrize(
    ("wish", "permissions", "hook"),
    [
        (
            AppWish(org="acme", name="r"),
            {"organization_self_hosted_runners": "write", "actions": "read", "metadata": "read"},
            None,
        ),
        (
            AppWish(org="", name="r", webhook_url=HOOK),
            {"administration": "write", "actions": "read", "metadata": "read"},
            HOOK,
        ),
    ],
)
def test_an_app_asks_for_what_dispatch_needs_and_for_nothing_else(
    wish: AppWish, permissions: dict[str, str], hook: str | None
) -> None:
    manifest = wish.manifest(Site(), BACK)
    assert manifest_fault(manifest) == ""
    assert manifest["default_permissions"] == permissions
    assert manifest["public"] is False
    assert ("hook_attributes" in manifest) == ("default_events" in manifest) == bool(hook)
    if hook:
        assert manifest["hook_attributes"] == {"url": hook, "active": True}
        assert manifest["default_events"] == ["workflow_job"]


@pytest.mark.parametrize(
    ("given", "api", "form"),
    [
        ("https://github.com", "https://api.github.com", "https://github.com/organizations/acme"),
        ("https://github.com/", "https://api.github.com", "https://github.com/organizations/acme"),
        ("https://octo.ghe.com", "https://api.octo.ghe.com", "https://octo.ghe.com/organizations"),
        ("https://ghes.example:8443", "https://ghes.example:8443/api/v3", "https://ghes.example"),
    ],
)
def test_each_github_has_its_pages_and_its_api(given: str, api: str, form: str) -> None:
    site = Site.at(given)
    assert site.api_url == api
    url = site.form_url("acme", "s&t")
    assert url.startswith(form)
    assert url.endswith("/settings/apps/new?state=s%26t")
    assert site.form_url("", "s").endswith(f"{site.web_url}/settings/apps/new?state=s")


@pytest.mark.parametrize(
    ("page", "install"),
    [
        ("https://github.com/apps/r", "https://github.com/apps/r/installations/new"),
        ("https://evil.example/apps/r", "https://github.com/apps/slug/installations/new"),
        ("https://github.com.evil.example/r", "https://github.com/apps/slug/installations/new"),
        ("", "https://github.com/apps/slug/installations/new"),
    ],
)
def test_an_app_is_installed_at_the_github_that_it_is_of(page: str, install: str) -> None:
    assert Site().install_url(page, "slug") == install


@pytest.mark.parametrize(
    "url",
    [
        "github.com",
        "http://ghes.example",
        "https://u:pw@x.example",
        "https://x.example/a",
        "",
        "x:",
    ],
)
def test_an_address_that_is_no_github_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match="address of GitHub") as raised:
        Site.at(url)
    assert "pw" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"org": "a/b"}, "is no organisation"),
        ({"org": "-a"}, "is no organisation"),
        ({"name": " "}, "cannot be called"),
        ({"name": "x" * 35}, "1 to 34"),
        ({"name": "a\nb"}, "cannot be called"),
        ({"webhook_url": "http://ci.example/webhooks/github"}, "in clear"),
        ({"webhook_url": "https://ci.example/"}, "/webhooks/github alone"),
        ({"webhook_url": "ci.example"}, "not a URL"),
    ],
)
def test_a_wish_that_cannot_be_fulfilled_is_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        AppWish(**{"org": "acme", "name": "r", **given})


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("abc-123", Pasted("abc-123")),
        (" abc ", Pasted("abc")),
        ("http://127.0.0.1:65535/created?code=abc&state=s1", Pasted("abc", "s1")),
        ("http://127.0.0.1:65535/created?state=s1&code=abc#x", Pasted("abc", "s1")),
    ],
)
def test_a_code_is_read_by_itself_or_in_its_address(text: str, read: Pasted) -> None:
    assert read_pasted(text) == read


@pytest.mark.parametrize(
    "text", ["", "a b", "../x", "http://127.0.0.1/created?state=s", "http://[", "?code=a/b"]
)
def test_what_holds_no_code_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="no code"):
        read_pasted(text)


def test_a_new_app_shows_no_secret() -> None:
    assert "secret" not in repr(NewApp(id=1, pem="secret-key", webhook_secret="secret"))  # noqa: S106 - a canary
