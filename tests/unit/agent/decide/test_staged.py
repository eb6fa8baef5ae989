"""What a Node's annotation may say, and what is made of anything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agent.decide.staged import IMAGES_MAX, TEXT_MAX_CHARS, staged

DIGEST = "registry.example:5000/mac/xcode@sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "images", "bad"),
    [
        pytest.param("", (), 0, id="nothing is staged"),
        pytest.param("  \n ", (), 0, id="nor by blanks"),
        pytest.param(DIGEST, (DIGEST,), 0, id="one image"),
        pytest.param(f" {DIGEST}  b:1\n", (DIGEST, "b:1"), 0, id="two with blanks between"),
        pytest.param("a:1,b:1", ("a:1", "b:1"), 0, id="two with a comma between"),
        pytest.param(f'["{DIGEST}", "b:1"]', (DIGEST, "b:1"), 0, id="a JSON list"),
        pytest.param("[]", (), 0, id="an empty list"),
        pytest.param("a:1 a:1", ("a:1",), 0, id="the same twice is once"),
        pytest.param("a:1 --insecure", ("a:1",), 1, id="an option is no image"),
        pytest.param("a:1 ../../etc b;rm", ("a:1",), 2, id="nor is a path or a command"),
        pytest.param(
            '["a:1", 7, null, ["b"], "c d", ""]', ("a:1",), 5, id="nor is what is no text"
        ),
        pytest.param('["a:1"', (), 1, id="half a list"),
        pytest.param('{"a": 1}', (), 1, id="no list"),
        pytest.param("a" * 600, (), 1, id="no reference is that long"),
        pytest.param("a " * TEXT_MAX_CHARS, (), 1, id="no list is that long"),
        pytest.param("[" * 9000, (), 1, id="no list is that deep"),
    ],
)
def test_an_annotation_is_read(text: str, images: tuple[str, ...], bad: int) -> None:
    found = staged(text)
    assert (found.images, len(found.bad)) == (images, bad)


def test_no_more_images_than_a_host_holds() -> None:
    found = staged(" ".join(f"a:{n}" for n in range(100)))
    assert found.images == tuple(f"a:{n}" for n in range(IMAGES_MAX))
    assert len(found.bad) == IMAGES_MAX
    assert "too many" in found.bad[0]


@given(st.text(max_size=200))
def test_no_text_makes_it_fail_or_name_what_could_be_an_option(text: str) -> None:
    found = staged(text)
    assert len(found.images) <= IMAGES_MAX
    assert all(image.isascii() and image[0].isalnum() for image in found.images)
