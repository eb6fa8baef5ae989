"""What a tree knows of GitHub: whether it is connected, and how it hears of jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.adapters.github import GithubSettings
from remuda.adapters.github.settings_file import with_file
from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.cli.tree.folder import Folder

FILE: Final = "REMUDA_GITHUB_FILE"


def github_words(folder: Folder, env: Mapping[str, str]) -> str:
    """Say how the server is connected with GitHub, by the settings that it is given; nothing: it is not."""
    try:
        file = folder.github_settings
        if not file.is_file():
            file = Path(env.get(FILE, ""))
        settings = GithubSettings.from_env(with_file(env, file) if file.is_file() else env)
    except BadInput as error:
        return f"not connected: {error.what} ({error.why})"
    except OSError as error:  # they may be another user's
        return f"not connected: its settings cannot be read ({error.filename}: {error.strerror})"
    if settings is None:
        return ""
    ways = [
        *(["asked for jobs every few seconds"] if settings.polls else []),
        *(["sends messages to /webhooks/github"] if settings.takes_messages else []),
    ]
    served = f" for {', '.join(settings.accounts)}" if settings.accounts else ""
    return f"{settings.host}, App {settings.app_id}{served}: {' and '.join(ways)}"
