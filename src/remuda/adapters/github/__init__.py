"""GitHub: a forge over its REST API as a GitHub App, and the border for its messages."""

from remuda.adapters.github.forge import GithubForge, github_forge
from remuda.adapters.github.settings import GithubSettings, MintScope, Taking
from remuda.adapters.github.webhooks import GithubWebhooks

__all__ = [
    "GithubForge",
    "GithubSettings",
    "GithubWebhooks",
    "MintScope",
    "Taking",
    "github_forge",
]
