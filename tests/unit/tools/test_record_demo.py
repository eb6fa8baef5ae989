"""A recording of a terminal, drawn: every line, its colours, and when it appears."""

from __future__ import annotations

import re
import sys
from xml.etree import ElementTree as ET

from tools.record_demo import SPEED, Line, drawn, record

_SVG = "{http://www.w3.org/2000/svg}"


def test_every_line_is_drawn_with_its_colours() -> None:
    lines = [
        Line(0.0, "\x1b[2m   0.0s\x1b[0m \x1b[36m$ remuda up <here> & there\x1b[0m"),
        Line(8.0, "plain  with  spaces"),
        Line(40.0, "\x1b[32m\x1b[1mdemo: 20 jobs ok\x1b[0m"),
    ]
    root = ET.fromstring(drawn(lines, "make demo"))  # noqa: S314 - our own drawing
    texts = {text.get("class"): text for text in root.iter(f"{_SVG}text") if text.get("class")}
    said = ["".join(texts[f"l{n}"].itertext()) for n in range(3)]
    assert said == [
        "   0.0s $ remuda up <here> & there",
        "plain  with  spaces",
        "demo: 20 jobs ok",
    ]
    looks = [[span.get("fill") for span in texts[f"l{n}"]] for n in range(3)]
    assert len({colour for line in looks for colour in line}) == 4
    assert [span.get("font-weight") for span in texts["l2"]] == ["bold"]


def test_a_line_appears_in_its_turn_and_all_are_there_where_nothing_plays() -> None:
    picture = drawn([Line(0.0, "a"), Line(10.0 * SPEED, "b")], "a title")
    shares = [float(share) for share in re.findall(r"\{0%,([\d.]+)%\{opacity:0\}", picture)]
    assert shares == [0.0, 50.0]
    assert "opacity=" not in picture


def test_what_a_command_prints_on_its_terminal_is_recorded() -> None:
    program = "import sys; print('on a terminal:', sys.stdout.isatty()); print('two'); sys.exit(3)"
    lines, code = record([sys.executable, "-c", program])
    assert code == 3
    assert [line.text for line in lines] == ["on a terminal: True", "two"]
    assert 0 <= lines[0].at_s <= lines[1].at_s
