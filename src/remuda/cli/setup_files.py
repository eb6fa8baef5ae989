"""
What is known of a GitHub App in the data folder: ``github/``, for its owner alone.

    settings.env      what ``remuda up`` reads, and ``remuda server`` with --github; written last, so it is never half
    app-NUMBER.pem    the App's key
    webhook-secret    if GitHub sends messages
    app.json          what the App is called and where its pages are
    pending.json      an App that is being made at GitHub; register.html, if that is done by hand
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from remuda.adapters.github.app_key import AppKey
from remuda.adapters.github.settings import (
    ACCOUNTS,
    API_URL,
    APP_ID,
    DOTCOM_API,
    INTAKE,
    PRIVATE_KEY_FILE,
    REPOSITORIES,
    SCOPE,
    WEBHOOK_SECRET_FILE,
    GithubSettings,
    MintScope,
    Taking,
)
from remuda.adapters.github.settings_file import read_file
from remuda.adapters.system import SystemClock
from remuda.cli.exits import Declined
from remuda.cli.tree.folder import prepare, usable, write_whole
from remuda.model.errors import BadInput

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.adapters.github.conversion import NewApp
    from remuda.cli.tree.folder import Folder

_ROOM_BYTES: Final = 256 * 1024
"""Several times what the files of an App take, each of them whole blocks of a disk."""
_SECRET: Final = "webhook-secret"  # noqa: S105 - a file's name


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """An App that a person is making at GitHub, and what was wanted of it."""

    web_url: str
    state: str
    webhook_url: str = ""
    repositories: tuple[str, ...] = ()


class AppCard(msgspec.Struct, frozen=True, kw_only=True):
    """What an App is called and where its pages are. Nothing secret."""

    id: int
    name: str
    account: str
    page: str
    install_url: str


@dataclass(frozen=True, slots=True)
class GithubFiles:
    """Names of what is in the folder, and how it is written."""

    folder: Folder

    @property
    def root(self) -> Path:
        return self.folder.github

    @property
    def pending_file(self) -> Path:
        return self.root / "pending.json"

    @property
    def form_file(self) -> Path:
        return self.root / "register.html"

    @property
    def card_file(self) -> Path:
        return self.root / "app.json"

    def make(self, *, may_replace: bool) -> None:
        """Make the folder, or see that it can be written. Raises Declined if an App is there already."""
        if self.folder.github_settings.exists() and not may_replace:
            card = self.card()
            named = "an App" if card is None else f"the App {card.name}"
            raise Declined(
                "GitHub is set up already",
                why=f"{named} stands in {self.folder.github_settings}",
                fix="Look at it with remuda setup github --check; to make another in its place add --replace",
            )
        prepare(self.folder)
        with usable(self.folder.root):
            self.root.mkdir(mode=0o700, exist_ok=True)
            self.root.chmod(0o700)
            write_whole(self.root / ".writable", b"")
            (self.root / ".writable").unlink()

    @property
    def _room(self) -> Path:
        return self.root / ".room.new"

    def reserve(self) -> None:
        """
        Take the room that an App needs on the disk, durably, before GitHub tells its key the only time.

        Raises BadInput where the disk has no room or cannot be written. ``keep`` uses that room.
        """
        with usable(self.folder.root):
            write_whole(self._room, os.urandom(_ROOM_BYTES))  # zeros take no room on every disk

    def release(self) -> None:
        """Give the room back."""
        with suppress(OSError):
            self._room.unlink(missing_ok=True)

    # --- An App that is being made by hand ---

    def keep_pending(self, pending: Pending, form: str = "") -> None:
        """Keep what a code will be for; and the page that leads to it, for who has no browser here."""
        with usable(self.folder.root):
            write_whole(self.pending_file, msgspec.json.encode(pending))
            if form:
                write_whole(self.form_file, form.encode())

    def pending(self) -> Pending | None:
        try:
            return msgspec.json.decode(self.pending_file.read_bytes(), type=Pending)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            raise BadInput(
                f"{self.pending_file} cannot be read",
                why="it is not what remuda setup github --print writes",
                fix="Begin again with remuda setup github --print",
            ) from None

    # --- An App that is ours ---

    def keep(self, app: NewApp, wish: Pending, card: AppCard, api_url: str) -> None:
        """Write all that is needed to act as the App. Raises BadInput if GitHub's key is none, and for the disk."""
        AppKey(str(app.id), app.pem, SystemClock())
        key = self.root / f"app-{app.id}.pem"
        lines = {
            APP_ID: str(app.id),
            PRIVATE_KEY_FILE: key.name,
            INTAKE: Taking.WEBHOOK if wish.webhook_url else Taking.POLLING,
            API_URL: "" if api_url == DOTCOM_API else api_url,
            ACCOUNTS: app.account,
            REPOSITORIES: ",".join(wish.repositories),
            SCOPE: MintScope.REPOSITORY if app.is_users else "",
            WEBHOOK_SECRET_FILE: _SECRET if app.webhook_secret else "",
        }
        text = [
            f"# The GitHub App {card.name}, written by remuda setup github. remuda up reads it; remuda server reads it",
            "# with --github. More variables may be added: see the page about GitHub.",
            *(f"{name}={value}" for name, value in lines.items() if value),
        ]
        self.release()
        with usable(self.folder.root):
            write_whole(key, app.pem.encode())
            if app.webhook_secret:
                write_whole(self.root / _SECRET, f"{app.webhook_secret}\n".encode())
            write_whole(self.card_file, msgspec.json.format(msgspec.json.encode(card)) + b"\n")
            write_whole(self.folder.github_settings, "\n".join([*text, ""]).encode())
            self._tidy(key)

    def _tidy(self, key: Path) -> None:
        for left in (self.pending_file, self.form_file, *self.root.glob("app-*.pem")):
            if left != key:
                left.unlink(missing_ok=True)

    def card(self) -> AppCard | None:
        try:
            return msgspec.json.decode(self.card_file.read_bytes(), type=AppCard)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def settings(self) -> GithubSettings:
        """Return what was written, as the server reads it."""
        found = GithubSettings.from_env(read_file(self.folder.github_settings))
        if found is None:
            raise BadInput(
                f"No App stands in {self.folder.github_settings}",
                why="the file is empty",
                fix="Write it anew with remuda setup github --replace",
            )
        return found
