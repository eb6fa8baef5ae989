"""GitHub's JSON as GitHub spells it, in full: the contract tests hold every answer against GitHub's own schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

Json = dict[str, object]

SITE: Final = "https://github.example"
_USER_LINKS: Final = (
    *("avatar", "events", "followers", "following", "gists", "html", "organizations"),
    *("received_events", "repos", "starred", "subscriptions"),
)
_REPOSITORY_LINKS: Final = (
    *("archive", "assignees", "blobs", "branches", "collaborators", "comments", "commits"),
    *("compare", "contents", "contributors", "deployments", "downloads", "events", "forks"),
    *("git_commits", "git_refs", "git_tags", "hooks", "html", "issue_comment", "issue_events"),
    *("issues", "keys", "labels", "languages", "merges", "milestones", "notifications", "pulls"),
    *("releases", "stargazers", "statuses", "subscribers", "subscription", "tags", "teams"),
    *("trees", "clone", "git", "ssh", "svn"),
)
WHEN: Final = "2026-03-01T12:00:00Z"


def user(login: str, kind: str) -> Json:
    place = f"{SITE}/{login}"
    return {
        "login": login,
        "id": sum(login.encode()),
        "node_id": f"U_{login}",
        "type": kind,
        "site_admin": False,
        "gravatar_id": "",
        "url": place,
        **{f"{link}_url": f"{place}/{link}" for link in _USER_LINKS},
    }


def repository(number: int, full_name: str, *, owner: Json, archived: bool = False) -> Json:
    place = f"{SITE}/{full_name}"
    links = {f"{link}_url": f"{place}/{link}" for link in _REPOSITORY_LINKS}
    counts = ("forks", "forks_count", "open_issues", "open_issues_count", "size")
    flags = ("has_downloads", "has_issues", "has_projects", "has_wiki", "has_pages")
    return {
        **links,
        **dict.fromkeys((*counts, "stargazers_count", "watchers", "watchers_count"), 0),
        **dict.fromkeys((*flags, "private", "fork", "disabled"), False),
        **dict.fromkeys(("description", "homepage", "language", "mirror_url", "license")),
        **dict.fromkeys(("pushed_at", "created_at", "updated_at"), WHEN),
        "id": number,
        "node_id": f"R_{number}",
        "name": full_name.partition("/")[2],
        "full_name": full_name,
        "owner": owner,
        "url": place,
        "default_branch": "main",
        "archived": archived,
    }


def installation(number: int, account: Json, *, suspended: bool) -> Json:
    return {
        "id": number,
        "account": account,
        "app_id": 7,
        "app_slug": "remuda",
        "target_id": account["id"],
        "target_type": account["type"],
        "repository_selection": "all",
        "access_tokens_url": f"{SITE}/app/installations/{number}/access_tokens",
        "repositories_url": f"{SITE}/installation/repositories",
        "html_url": f"{SITE}/settings/installations/{number}",
        "permissions": {"actions": "read", "metadata": "read"},
        "events": ["workflow_job"],
        "single_file_name": None,
        "created_at": WHEN,
        "updated_at": WHEN,
        "suspended_by": None,
        "suspended_at": WHEN if suspended else None,
    }


def new_app(number: int, name: str, *, owner: Json, page: str, secrets: Json) -> Json:
    """Return an App as GitHub gives it for a manifest's code. ``secrets`` are its key and its secrets."""
    return {
        "id": number,
        "slug": name.lower().replace(" ", "-"),
        "node_id": f"A_{number}",
        "owner": owner,
        "name": name,
        "description": None,
        "external_url": SITE,
        "html_url": page,
        "created_at": WHEN,
        "updated_at": WHEN,
        "permissions": {"actions": "read", "metadata": "read"},
        "events": [],
        "client_id": "Iv1.0123456789abcdef",
        "client_secret": "client-secret-canary-7781",
        **secrets,
    }


def run(number: int, repo: Json, head: Json | None, *, status: str) -> Json:
    place = f"{SITE}/{repo['full_name']}/actions/runs/{number}"
    links = ("jobs", "logs", "check_suite", "cancel", "rerun", "artifacts", "workflow", "html")
    return {
        **{f"{link}_url": f"{place}/{link}" for link in links},
        "id": number,
        "node_id": f"WFR_{number}",
        "url": place,
        "head_branch": "main",
        "head_sha": "0" * 40,
        "run_number": 1,
        "display_title": "A run",
        "event": "push",
        "status": status,
        "conclusion": None,
        "path": ".github/workflows/ci.yml",
        "workflow_id": 3,
        "created_at": WHEN,
        "updated_at": WHEN,
        "head_commit": None,
        "repository": repo,
        "head_repository": head,
        "pull_requests": [],
    }


def job(number: int, run_id: int, labels: Sequence[str], fields: Json) -> Json:
    place = f"{SITE}/actions/jobs/{number}"
    return {
        "id": number,
        "run_id": run_id,
        "run_url": f"{SITE}/actions/runs/{run_id}",
        "run_attempt": 1,
        "node_id": f"CR_{number}",
        "head_sha": "0" * 40,
        "head_branch": "main",
        "url": place,
        "html_url": place,
        "check_run_url": f"{SITE}/check-runs/{number}",
        "status": "queued",
        "conclusion": None,
        "created_at": WHEN,
        "started_at": WHEN,
        "completed_at": None,
        "name": "test",
        "workflow_name": "CI",
        "labels": list(labels),
        "steps": [],
        "runner_id": None,
        "runner_name": None,
        "runner_group_id": None,
        "runner_group_name": None,
        **fields,
    }


def runner(
    number: int, name: str, labels: Sequence[str], *, busy: bool, online: bool = False
) -> Json:
    return {
        "id": number,
        "runner_group_id": 1,
        "name": name,
        "os": "unknown",
        "status": "online" if online else "offline",
        "busy": busy,
        "labels": [{"name": label, "type": "custom"} for label in labels],
        "ephemeral": True,
    }


def group(number: int, name: str) -> Json:
    return {
        "id": number,
        "name": name,
        "visibility": "all",
        "default": number == 1,
        "runners_url": f"{SITE}/groups/{number}/runners",
        "inherited": False,
        "allows_public_repositories": True,
    }


def delivery(number: int, guid: str, at: str, status_code: int, event: str) -> Json:
    return {
        "id": number,
        "guid": guid,
        "delivered_at": at,
        "redelivery": False,
        "duration": 0.1,
        "status": "OK" if status_code == 200 else "failed to connect",
        "status_code": status_code,
        "event": event,
        "action": "queued" if event == "workflow_job" else None,
        "installation_id": 1,
        "repository_id": 1,
        "throttled_at": None,
    }


def refusal(message: str) -> Json:
    return {"message": message, "documentation_url": "https://docs.github.example/rest"}
