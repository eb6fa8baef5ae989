"""What opens above the screen: an explanation, a question, the help. Thin: each shows a text and takes a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

HELP = """\
Tab, → / Shift-Tab, ←     the next pane / the one before
↑ ↓, j k, PgUp PgDn       the row
Home, End                 the first row, the last one
e, Enter                  explain the chosen thing: why it is so, and what to do
/                         show only rows with some words; Esc shows all again
s                         sort the pane another way
p                         pause the rollout of the chosen row's pool, or let it go on
r                         look again now
?                         this
q, Ctrl-C                 quit

Bars: █ busy  ▓ warm  ▒ starting  · missing  ░ leaving
ROLLED: runners of the new template of those wanted; away: how many the roll
takes away now, beside how many it may take away at once."""


class Panel(ModalScreen[None]):
    """A text above the screen, which any of the closing keys closes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,q,e,enter,question_mark", "dismiss", "Close"),
        ("j", "scroll(1)", "Down"),
        ("k", "scroll(-1)", "Up"),
    ]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="panel") as panel:
            panel.border_title = Content(self._title)
            panel.border_subtitle = Content("Esc closes")
            yield Static(Content(self._text), id="text")

    def say(self, text: str) -> None:
        """Show another text."""
        self._text = text
        self._show()

    def on_mount(self) -> None:
        self._show()  # an answer may come before there is a place for it

    def _show(self) -> None:
        for place in self.query("#text").results(Static):
            place.update(Content(self._text))

    def action_scroll(self, step: int) -> None:
        self.query_one("#panel", VerticalScroll).scroll_relative(y=step, animate=False)


class Question(ModalScreen[bool]):
    """A question that is answered with y or n. Only y is yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("y", "answer(True)", "Yes"),
        ("n,escape,q,enter", "answer(False)", "No"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="panel") as panel:
            panel.border_title = Content("Are you sure?")
            panel.border_subtitle = Content("y: yes   n, Esc: no")
            yield Static(Content(self._text), id="text")

    def action_answer(self, is_yes: bool) -> None:  # noqa: FBT001 - textual passes it by place
        self.dismiss(is_yes)
