"""What opens above the screen: an explanation, a question, the help. Thin: each shows a text and takes a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from remuda.cli.top.decide.lines import wrapped

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

_WIDTH_MAX: Final = 100
_FRAME: Final = 6
"""What the border, the space within and a scroll bar take of the width."""

HELP = """\
Tab →     the next pane; Shift-Tab and ← the one before
↑ ↓       the row; also j and k, PgUp and PgDn, Home and End
e Enter   why the chosen thing is as it is, and what to do
/         only rows that have some words; Esc shows all again
s         sort the pane another way
p         pause the rollout of the row's pool, or let it go on
r         look again now
q         quit; also Ctrl-C

RUNNERS   █ busy  ▓ warm  ▒ starting  · missing  ░ leaving
ROLLED    how many of the runners wanted are new; away is how many
          are missing now, beside how many may be at once"""


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
        room = min(self.app.size.width * 9 // 10, _WIDTH_MAX) - _FRAME
        for place in self.query("#text").results(Static):
            place.update(Content("\n".join(wrapped(self._text, room))))

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
