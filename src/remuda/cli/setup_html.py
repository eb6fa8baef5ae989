"""The pages of ``remuda setup github``: small, without scripts, and without anything from elsewhere. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.adapters.github.manifest import AppWish, Site
    from remuda.model.errors import RemudaError

STEPS: Final = ("Make the App", "Install it", "Done")
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2329; --dim: #5b6670; --line: #dfe3e7; --back: #f5f6f8; --card: #fff;
  --deep: #1a6b4c; --deeper: #14553c; --bad: #a4262c }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --dim: #9aa5ae; --line: #333b43; --back: #14181c;
  --card: #1c2228; --deep: #2b8a63; --deeper: #34a376; --bad: #ff8a80 } }
* { box-sizing: border-box }
body { margin: 0; padding: 6vh 1rem; background: var(--back); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif }
main { max-width: 38rem; margin: 0 auto; padding: 2rem 2.25rem 2.25rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 14px; box-shadow: 0 1px 3px rgb(0 0 0 / 8%) }
h1 { margin: 0 0 .75rem; font-size: 1.45rem; line-height: 1.25 }
p { margin: .6rem 0 }
ol { display: flex; gap: .5rem; margin: 0 0 1.75rem; padding: 0; list-style: none; font-size: .82rem;
  color: var(--dim) }
ol li { flex: 1; padding-top: .5rem; border-top: 3px solid var(--line) }
ol li.now, ol li.past { border-color: var(--deep) }
ol li.now { color: var(--ink); font-weight: 600 }
dl { margin: 1.25rem 0; border: 1px solid var(--line); border-radius: 10px; overflow: hidden }
dl div { display: flex; gap: 1rem; padding: .55rem .9rem }
dl div + div { border-top: 1px solid var(--line) }
dt { flex: 0 0 9.5rem; color: var(--dim) }
dd { margin: 0; overflow-wrap: anywhere }
button, a.button { display: inline-block; margin: .5rem 0 .25rem; padding: .7rem 1.3rem; border: 0; border-radius: 9px;
  background: var(--deep); color: #fff; font: inherit; font-weight: 600; text-decoration: none; cursor: pointer }
button:hover, a.button:hover { background: var(--deeper) }
button:focus-visible, a:focus-visible { outline: 3px solid var(--deep); outline-offset: 3px }
small, .dim { color: var(--dim) }
code { padding: .1em .35em; border-radius: 5px; background: var(--back); font-size: .92em }
h1.bad { color: var(--bad) }
details { margin-top: 1.25rem } summary { cursor: pointer; color: var(--dim) }
pre { margin: .75rem 0 0; padding: .9rem; overflow-x: auto; border-radius: 10px; background: var(--back);
  font-size: .82rem; line-height: 1.45 }
"""
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_MEANING: Final = {
    "organization_self_hosted_runners": "register and remove the organisation's runners",
    "administration": "register and remove runners at the repositories",
    "actions": "see jobs and runs",
    "metadata": "see which repositories there are",
}


def headers(site: Site) -> dict[str, str]:
    """Return what every page is served with: kept by nobody, framed by nobody, with nothing from elsewhere."""
    # A browser holds a form's redirects against form-action too, and a company's log-in may be anywhere.
    form = f"form-action {site.web_url} https: 'self'"
    allowed = f"default-src 'none'; style-src 'sha256-{_HASH}'; {form}"
    return {
        "Cache-Control": "no-store",
        "Content-Security-Policy": f"{allowed}; base-uri 'none'; frame-ancestors 'none'",
        "Referrer-Policy": "strict-origin",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Cross-Origin-Opener-Policy": "same-origin",
    }


@dataclass(frozen=True, slots=True)
class Page:
    """One page. ``body`` is HTML; everything that a stranger wrote in it is escaped."""

    title: str
    body: str
    step: int | None = None
    refresh_s: int | None = None
    bad: bool = False

    def html(self) -> str:
        again = f'<meta http-equiv="refresh" content="{self.refresh_s}">' if self.refresh_s else ""
        heading = f"<h1{' class=bad' if self.bad else ''}>{escape(self.title)}</h1>"
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"{again}<title>{escape(self.title)} · Remuda</title><style>{_STYLE}</style></head>"
            f"<body><main>{self._steps()}{heading}{self.body}</main></body></html>\n"
        )

    def _steps(self) -> str:
        if self.step is None:
            return ""
        states = ("past" if n < self.step else "now" if n == self.step else "" for n in range(3))
        items = (
            f'<li class="{state}"{" aria-current=step" if state == "now" else ""}>{n}. {name}</li>'
            for n, (name, state) in enumerate(zip(STEPS, states, strict=True), start=1)
        )
        return f"<ol>{''.join(items)}</ol>"


def form_page(form_url: str, manifest: Mapping[str, object], wish: AppWish, site: Site) -> Page:
    """Return the page whose one button takes the manifest to GitHub."""
    host = urlsplit(site.web_url).netloc
    owner = f"the organisation {wish.org}" if wish.org else "your own account"
    jobs = f"sent to {wish.webhook_url}" if wish.webhook_url else "asked for every few seconds"
    rows = [
        ("At", host),
        ("For", owner),
        ("Name", f"{wish.name} (you can change it there)"),
        ("News of jobs", jobs),
        *(_permission(name, level) for name, level in wish.permissions.items()),
    ]
    body = (
        f"<p>A GitHub App is how Remuda registers its runners. The button opens {escape(host)} with everything filled"
        " in; look at it there and confirm. Its key comes back to this machine and to nobody else.</p>"
        f"{_table(rows)}"
        f'<form method="post" action="{escape(form_url)}">'
        f'<input type="hidden" name="manifest" value="{escape(json.dumps(manifest))}">'
        f'<button type="submit">Continue at {escape(host)}</button></form>'
        "<details><summary>What exactly is sent</summary>"
        f"<pre>{escape(json.dumps(manifest, indent=2))}</pre></details>"
    )
    return Page("Connect Remuda to GitHub", body, step=0)


def install_page(name: str, install_url: str, account: str) -> Page:
    """Return the page that waits for the installation, and looks again by itself."""
    who = account or "your account"
    body = (
        f"<p>The App <strong>{escape(name)}</strong> is made, and its key is kept on this machine. Now let it see the"
        f" repositories of {escape(who)} whose jobs should run here.</p>"
        f'<a class="button" href="{escape(install_url)}" target="_blank" rel="noopener">'
        f"Install it for {escape(who)}</a>"
        "<p><small>It opens in another tab. Come back here when it is done: this page looks again by itself."
        "</small></p>"
    )
    return Page("Install the App", body, step=1, refresh_s=3)


def done_page(name: str, accounts: Sequence[str], next_steps: Sequence[str]) -> Page:
    served = ", ".join(accounts) or "nobody yet"
    lines = "".join(f"<p><code>{escape(line)}</code></p>" for line in next_steps)
    body = (
        f"<p>Jobs of <strong>{escape(served)}</strong> reach this fleet through the App"
        f" <strong>{escape(name)}</strong>.</p>"
        f'<p class="dim">You can close this page. In the terminal:</p>{lines}'
    )
    return Page("GitHub is connected", body, step=2)


def error_page(error: RemudaError, back: str = "") -> Page:
    """Say what a command would say. ``back`` is where to begin again."""
    again = f'<p><a class="button" href="{escape(back)}">Begin again</a></p>' if back else ""
    rows = [("Why", error.why), ("What to do", error.fix)]
    return Page(error.what, f"{_table(rows)}{again}", bad=True)


def _permission(name: str, level: str) -> tuple[str, str]:
    words = {"organization_self_hosted_runners": "Self-hosted runners"}
    access = "read and write" if level == "write" else "read"
    return words.get(name, name.capitalize()), f"{access}: {_MEANING[name]}"


def _table(rows: Sequence[tuple[str, str]]) -> str:
    each = (f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in rows)
    return f"<dl>{''.join(each)}</dl>"
