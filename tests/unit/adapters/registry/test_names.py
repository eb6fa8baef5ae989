from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.adapters.registry.names import ImageName
from remuda.model.errors import BadInput

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("text", "host", "repository", "reference"),
    [
        pytest.param("ghcr.io/a/b:1", "ghcr.io", "a/b", "1", id="a tag"),
        pytest.param("ghcr.io/a/b", "ghcr.io", "a/b", "latest", id="no tag is latest"),
        pytest.param("localhost:5000/a", "localhost:5000", "a", "latest", id="a port is no tag"),
        pytest.param(f"h/a@{DIGEST}", "h", "a", DIGEST, id="a digest"),
        pytest.param(f"h/a:t@{DIGEST}", "h", "a", DIGEST, id="a digest beats a tag"),
        pytest.param("[::1]:5000/a__b.c-d:T", "[::1]:5000", "a__b.c-d", "T", id="odd but allowed"),
    ],
)
def test_parse(text: str, host: str, repository: str, reference: str) -> None:
    name = ImageName.parse(text)
    assert (name.host, name.repository, name.reference) == (host, repository, reference)
    assert ImageName.parse(str(name)) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "/a",
        "h/",
        "h/../b",
        "h/a/../../etc",
        "h/a/.",
        "h/A",
        "h//a",
        "h/a:..",
        "h/a:b/c",
        "h/a@sha256:00",
        f"h/a@{DIGEST}0",
        "h/a:t\n",
        "h\n/a",
        "h@evil/a",
        "h?x/a",
        "-h/a",
        "h/a b",
        "h/" + "a" * 600,
        "h/a%2e%2e/b",
        "user:pw@h/a",
    ],
)
def test_a_name_that_could_be_something_else_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        ImageName.parse(text)


@given(st.text(max_size=60))
def test_no_text_becomes_a_path(text: str) -> None:
    try:
        name = ImageName.parse(f"host/{text}")
    except BadInput:
        return
    assert ".." not in name.repository.split("/")
    assert "/" not in name.reference
    assert name.reference not in {".", ".."}
