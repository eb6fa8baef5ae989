from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remuda.kube.pod_security import violations
from tests.support.restricted import ALLOWED, FORBIDDEN, Row

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=20,
)
FIELDS = st.sampled_from(
    ["securityContext", "containers", "initContainers", "volumes", "hostNetwork", "name", "ports",
     "capabilities", "drop", "lifecycle", "sysctls", "seccompProfile", "seLinuxOptions", "type", "httpGet", "host"]
)  # fmt: skip
NEARLY_A_POD = st.recursive(
    JSON,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=5),
    max_leaves=20,
)


@pytest.mark.parametrize("row", ALLOWED, ids=lambda row: row.says)
def test_what_the_standard_allows_is_allowed(row: Row) -> None:
    assert violations(row.spec, row.annotations) == ()


@pytest.mark.parametrize("row", FORBIDDEN, ids=lambda row: row.says)
def test_what_the_standard_forbids_is_named_by_its_field(row: Row) -> None:
    assert sorted(
        text.partition(": ")[0] for text in violations(row.spec, row.annotations)
    ) == sorted(row.fields)


@example(
    {
        "securityContext": {
            "sysctls": [{"name": {}}],
            "seccompProfile": {"type": []},
            "seLinuxOptions": {"type": {}},
        }
    }
)
@given(st.dictionaries(FIELDS, NEARLY_A_POD))
def test_any_shape_is_answered(spec: dict[str, Any]) -> None:
    assert isinstance(violations(spec), tuple)
