"""One block of ours in pf.conf after any history, and every other byte as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.hosts.decide.pf_conf import BLOCK, calls, calls_apple, history, with_block
from tests.support.pf.grammar import parse

APPLE = """\
#
# Default PF configuration file.
#
# See pf.conf(5) for syntax.
#
scrub-anchor "com.apple/*"
nat-anchor "com.apple/*"
rdr-anchor "com.apple/*"
dummynet-anchor "com.apple/*"
anchor "com.apple/*"
load anchor "com.apple" from "/etc/pf.anchors/com.apple"
"""
LEGACY = """\
# Remuda: what guests may reach
anchor "remuda.runners"
load anchor "remuda.runners" from "/etc/pf.anchors/remuda.runners"
"""
FOREIGN = (
    *APPLE.splitlines(keepends=True),
    "pass in proto tcp \\\n  from any to any port 80\n",
    'anchor "remuda.other"\n',
    'anchor "com.acme/remuda.runners"\n',
    "# we do not speak of remuda here\n",
    "\n",
    "\r\n",
    "block in \x85 \udcff\n",
)
OURS = (
    BLOCK,
    LEGACY,
    "# BEGIN remuda.runners\n",
    "# END remuda.runners\n",
    'anchor "remuda.runners"\n',
    "  anchor remuda.runners  all\r\n",
    'anchor "remuda.runners/*"\n',
    'nat-anchor "remuda.runners"\n',
    'load anchor "remuda.runners" from "/somewhere/else"\n',
    'load anchor "remuda.runners" \\\n  from "/etc/pf.anchors/remuda.runners"\n',
    "# remuda\n",
)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(APPLE, id="fresh"),
        pytest.param(APPLE + LEGACY, id="legacy"),
        pytest.param(LEGACY + APPLE, id="legacy, above Apple's"),
        pytest.param(APPLE + BLOCK, id="converged"),
        pytest.param(APPLE + BLOCK + BLOCK, id="doubled"),
        pytest.param(APPLE + LEGACY + BLOCK, id="legacy and marked"),
        pytest.param(APPLE + BLOCK + LEGACY, id="marked and legacy"),
        pytest.param("# BEGIN remuda.runners\n" + APPLE, id="a begin without an end"),
        pytest.param(
            "# BEGIN remuda.runners\n" + APPLE + BLOCK, id="a begin without an end, and a block"
        ),
        pytest.param(
            "# BEGIN remuda.runners\n" + APPLE + "# END remuda.runners\n", id="around Apple's lines"
        ),
        pytest.param(APPLE.rstrip("\n"), id="no end of the last line"),
    ],
)
def test_any_history_ends_in_one_block(text: str) -> None:
    assert with_block(text) == APPLE + BLOCK


def test_a_marker_that_was_cut_short_costs_no_line() -> None:
    """It is a comment like any other then, and stays."""
    assert APPLE.partition("\n")[2] in with_block(BLOCK[:-10] + APPLE)


@given(st.lists(st.sampled_from([*FOREIGN, *OURS]), max_size=30))
def test_any_mixture_keeps_foreign_lines_in_order_and_has_one_block(pieces: list[str]) -> None:
    once = with_block("".join(pieces))
    assert once == "".join(piece for piece in pieces if piece in FOREIGN) + BLOCK
    assert with_block(once) == once


@given(
    st.text(
        alphabet=st.sampled_from('ab "#\\\n\rremuda.runners anchor BEGIN END load from'),
        max_size=120,
    )
)
def test_it_is_the_same_the_second_time_whatever_the_text(text: str) -> None:
    once = with_block(text)
    assert once.endswith(BLOCK)
    assert with_block(once) == once


@given(st.text(max_size=60))
def test_text_without_a_word_of_ours_is_untouched(text: str) -> None:
    if "remuda" not in text.lower():
        assert with_block(text).startswith(text)


def test_the_block_comes_where_pf_wants_anchors_of_filters() -> None:
    files = {"/etc/pf.anchors/com.apple": "", "/etc/pf.anchors/remuda.runners": ""}
    assert list(parse(with_block(APPLE), files=files).loaded) == ["com.apple", "remuda.runners"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (APPLE, "there is none"),
        (APPLE + LEGACY, "without markers"),
        (APPLE + BLOCK + BLOCK, "there are 2"),
        (APPLE + LEGACY + BLOCK, "beside it"),
    ],
)
def test_the_reason_says_what_was_there(text: str, said: str) -> None:
    assert said in history(text)


def test_live_rules_say_what_they_call() -> None:
    shown = 'scrub-anchor "com.apple/*" all fragment reassemble\nanchor "com.apple/*" all\n'
    assert calls_apple(shown)
    assert not calls("remuda.runners", shown)
    assert calls("remuda.runners", shown + 'anchor "remuda.runners" all\n')
    assert not calls_apple('nat-anchor "com.apple/*" all\n')
