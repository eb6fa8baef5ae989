"""
Record a command on a terminal of its own and draw it as an SVG that plays by itself.

    python tools/record_demo.py                         # make demo, into docs/pictures/demo.svg
    python tools/record_demo.py --out x.svg remuda pools

Each line appears when it was printed, only faster. What plays no animation shows the last picture. The command's exit
code is ours, and nothing is drawn of one that failed.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

ROOT: Final = Path(__file__).resolve().parent.parent
OUT: Final = ROOT / "docs/pictures/demo.svg"
COLUMNS, ROWS = 112, 60
SPEED: Final = 4.0
HOLD_S: Final = 10.0
"""How long the last picture stays before it begins again."""
_CHAR, _LINE, _PAD, _BAR = 8.5, 18, 16, 34
_COLOURS: Final = {
    31: "#ff7b72",
    32: "#7ee787",
    33: "#e3b341",
    34: "#79c0ff",
    35: "#d2a8ff",
    36: "#76e3ea",
}
_PLAIN, _DIM = "#e6edf3", "#8b949e"
_SGR: Final = re.compile(r"\x1b\[([0-9;]*)m")


@dataclass(frozen=True, slots=True)
class Line:
    """What was printed, with its colours as the terminal gets them, and when."""

    at_s: float
    text: str


# --- Drawing: pure ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Pen:
    """How the next letters look."""

    colour: str = _PLAIN
    bold: bool = False

    def take(self, codes: str) -> None:
        for code in (int(part or 0) for part in codes.split(";")):
            if code == 0:
                self.colour, self.bold = _PLAIN, False
            elif code == 1:
                self.bold = True
            elif code == 2:  # noqa: PLR2004 - the code of dim letters
                self.colour = _DIM
            else:
                self.colour = _COLOURS.get(code, self.colour)


def drawn(lines: list[Line], title: str) -> str:
    """Return the recording as an SVG."""
    end_s = max((line.at_s for line in lines), default=0.0) / SPEED
    total_s = end_s + HOLD_S
    widest = max((len(_SGR.sub("", line.text)) for line in lines), default=0)
    width = round(2 * _PAD + _CHAR * max(widest, 40))
    height = _BAR + 2 * _PAD + _LINE * len(lines)
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" {_size(width, height)} role="img">',
            f"<title>{escape(title)}</title>",
            _style(lines, total_s),
            f'<rect width="{width}" height="{height}" rx="10" fill="#0d1117"/>',
            *(
                f'<circle cx="{_PAD + 6 + 20 * n}" cy="18" r="6" fill="{colour}"/>'
                for n, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
            ),
            f'<text x="{width / 2:.0f}" y="23" text-anchor="middle" fill="{_DIM}">{escape(title)}</text>',
            *(_line(number, line) for number, line in enumerate(lines)),
            "</svg>",
            "",
        )
    )


def _size(width: int, height: int) -> str:
    return f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'


def _style(lines: list[Line], total_s: float) -> str:
    """Let each line be hidden until its time. A viewer that plays nothing, or wants no motion, sees all of them."""
    rules = [
        "text{font:14px/1.3 ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}",
        "@media (prefers-reduced-motion:no-preference){",
    ]
    for number, line in enumerate(lines):
        share = 100 * (line.at_s / SPEED) / total_s
        rules.append(
            f"@keyframes k{number}{{0%,{share:.2f}%{{opacity:0}}{share + 0.01:.2f}%,100%{{opacity:1}}}}"
        )
        rules.append(f".l{number}{{animation:k{number} {total_s:.1f}s step-end infinite}}")
    return "<style>" + "\n".join([*rules, "}"]) + "</style>"


def _line(number: int, line: Line) -> str:
    pen, at, spans = _Pen(), 0, []
    for found in _SGR.finditer(line.text):
        spans.append(_span(line.text[at : found.start()], pen))
        pen.take(found.group(1))
        at = found.end()
    spans.append(_span(line.text[at:], pen))
    y = _BAR + _PAD + _LINE * number + 8
    return (
        f'<text class="l{number}" x="{_PAD}" y="{y}" xml:space="preserve">{"".join(spans)}</text>'
    )


def _span(text: str, pen: _Pen) -> str:
    if not text:
        return ""
    weight = ' font-weight="bold"' if pen.bold else ""
    return f'<tspan fill="{pen.colour}"{weight}>{escape(text)}</tspan>'


# --- Recording --------------------------------------------------------------------------------------------------------


def record(command: list[str]) -> tuple[list[Line], int]:
    """Run a command on a terminal; return its lines with their times, and its exit code."""
    terminal, its_end = pty.openpty()
    fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    began = time.monotonic()  # noqa: TID251 - a recording is of real time
    process = subprocess.Popen(  # noqa: S603 - what we were told to record
        command,
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
        env={**env, "TERM": "xterm-256color"},
        cwd=ROOT,
        start_new_session=True,
    )
    os.close(its_end)
    lines: list[Line] = []
    rest = b""
    while piece := _read(terminal):
        os.write(sys.stdout.fileno(), piece)
        *whole, rest = (rest + piece).split(b"\n")
        at_s = time.monotonic() - began  # noqa: TID251 - likewise
        lines += [Line(at_s, text.decode(errors="replace").rstrip("\r")) for text in whole]
    os.close(terminal)
    return lines, process.wait()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that nobody writes any more
        return b""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT, help="the file to write")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="make demo if nothing is said")
    told = parser.parse_args()
    command = told.command or ["make", "demo"]
    lines, code = record(command)
    if code == 0:
        told.out.parent.mkdir(parents=True, exist_ok=True)
        told.out.write_text(drawn(lines, " ".join(told.command) or "make demo"))
    sys.exit(code)


if __name__ == "__main__":
    main()
