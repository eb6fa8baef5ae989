"""
A GitHub App as GitHub's manifest describes it, and where on a GitHub it is made. Pure.

The permissions are what dispatch needs and nothing more: whoever has the App's key can do what they allow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode, urlsplit

from remuda.adapters.github.settings import DOTCOM_API, url_fault
from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping

DOTCOM: Final = "https://github.com"
NAME_MAX: Final = 34
"""GitHub's own bound for the name of an App."""
_RESIDENT: Final = ".ghe.com"
"""GitHubs with data residency have their API on a name of its own, as github.com has."""
_LOGIN: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,37}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Site:
    """One GitHub: where its pages are, and its API."""

    web_url: str = DOTCOM

    def __post_init__(self) -> None:
        fault = url_fault(self.web_url)
        if not fault and urlsplit(self.web_url).path:
            fault = "it has a path"
        if fault:
            raise BadInput(
                f"The address of GitHub, {self.web_url.rpartition('@')[2]!r}, cannot be used",
                why=fault,
                fix="Give the address of its start page, such as https://ghes.example, or leave it out for github.com",
            )

    @classmethod
    def at(cls, text: str) -> Site:
        return cls(text.rstrip("/"))

    @property
    def api_url(self) -> str:
        if self.web_url == DOTCOM:
            return DOTCOM_API
        scheme, _, rest = self.web_url.partition("://")
        if rest.endswith(_RESIDENT):
            return f"{scheme}://api.{rest}"
        return f"{self.web_url}/api/v3"

    def form_url(self, org: str, state: str) -> str:
        """Return where a manifest is posted to: an organisation's page, or that of whoever is logged in."""
        owner = f"/organizations/{quote(org, safe='')}" if org else ""
        return f"{self.web_url}{owner}/settings/apps/new?{urlencode({'state': state})}"

    def settings_url(self, org: str, slug: str) -> str:
        """Return where the owner of an App changes it, makes keys for it and deletes it."""
        owner = f"/organizations/{quote(org, safe='')}" if org else ""
        return f"{self.web_url}{owner}/settings/apps/{quote(slug, safe='')}"

    def install_url(self, page: str, slug: str) -> str:
        """Return where an App is installed. ``page`` is the App's own, as GitHub told it."""
        mine = page.startswith(f"{self.web_url}/") and page.isascii() and page.isprintable()
        place = page if mine else f"{self.web_url}/apps/{quote(slug, safe='')}"
        return f"{place}/installations/new"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppWish:
    """The App that is wanted. Without ``org`` it is the person's own."""

    org: str
    name: str
    webhook_url: str = ""
    """Where GitHub can reach us; empty: it cannot, and is asked instead."""

    def __post_init__(self) -> None:
        if self.org and not _LOGIN.fullmatch(self.org):
            raise BadInput(
                f"{self.org!r} is no organisation",
                why="a login holds letters, digits and single hyphens only",
                fix="Give the name as it stands in the address of its page",
            )
        if not 0 < len(self.name.strip()) <= NAME_MAX or not self.name.isprintable():
            raise BadInput(
                f"The App cannot be called {self.name!r}",
                why=f"GitHub takes 1 to {NAME_MAX} characters",
                fix="Choose a shorter name; no other App at this GitHub may have it",
            )
        if self.webhook_url and (fault := _webhook_fault(self.webhook_url)):
            raise BadInput(
                f"The webhook address {self.webhook_url!r} cannot be used",
                why=fault,
                fix="Give one that GitHub can reach, https://HOST/webhooks/github, or none: jobs are asked for then",
            )

    @property
    def permissions(self) -> Mapping[str, str]:
        # An organisation's runners have a permission of their own; at a user's repositories only administrators may.
        own = "organization_self_hosted_runners" if self.org else "administration"
        return {own: "write", "actions": "read", "metadata": "read"}

    def manifest(self, site: Site, redirect_url: str) -> dict[str, object]:
        """Return what GitHub's form takes. Without a webhook none is spoken of: even an inactive one needs a URL."""
        hook = {
            "hook_attributes": {"url": self.webhook_url, "active": True},
            "default_events": ["workflow_job"],
        }
        return {
            "name": self.name,
            "url": f"{site.web_url}/{self.org}" if self.org else site.web_url,
            "description": "Single-use runners for GitHub Actions, by Remuda",
            "redirect_url": redirect_url,
            "public": False,
            "default_permissions": dict(self.permissions),
            **(hook if self.webhook_url else {}),
        }


def _webhook_fault(url: str) -> str:
    if url.startswith("http://"):
        return "GitHub would send its messages in clear"
    if fault := url_fault(url):
        return fault
    listens = urlsplit(url).path.endswith("/webhooks/github")
    return "" if listens else "dispatch listens at /webhooks/github alone"
