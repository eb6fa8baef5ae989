from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.selectors import parse_fields, parse_labels

MARE = {"colour": "grey", "age": "7", "remuda.dev/pool": "mac", "empty": ""}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        pytest.param("", True, id="nothing selects everything"),
        pytest.param("   ", True, id="blanks are nothing"),
        pytest.param("colour=grey", True, id="one equals"),
        pytest.param("colour==grey", True, id="two equals mean the same"),
        pytest.param("colour=bay", False, id="another value"),
        pytest.param("colour!=bay", True, id="not another value"),
        pytest.param("colour!=grey", False, id="not its own value"),
        pytest.param("wings!=white", True, id="an absent label differs from every value"),
        pytest.param("wings=white", False, id="an absent label equals none"),
        pytest.param("colour in (bay,grey)", True, id="in a set"),
        pytest.param("colour in (bay)", False, id="not in a set"),
        pytest.param("colour notin (bay, black)", True, id="outside a set"),
        pytest.param("colour notin (grey)", False, id="not outside a set"),
        pytest.param("wings notin (white)", True, id="an absent label is outside every set"),
        pytest.param("colour", True, id="present"),
        pytest.param("wings", False, id="not present"),
        pytest.param("!wings", True, id="absent"),
        pytest.param("! colour", False, id="not absent"),
        pytest.param("empty", True, id="an empty value is present"),
        pytest.param("empty=", True, id="the empty value"),
        pytest.param("colour=", False, id="not the empty value"),
        pytest.param("empty in ()", True, id="an empty set holds the empty value"),
        pytest.param("empty in (,x)", True, id="a set with a hole holds the empty value"),
        pytest.param("age>6", True, id="a greater number"),
        pytest.param("age<7", False, id="not a smaller number"),
        pytest.param("colour>1", False, id="what is no number is not greater"),
        pytest.param("wings>1", False, id="what is absent is not greater"),
        pytest.param("remuda.dev/pool=mac,!remuda.dev/drain,age in (7)", True, id="all of many"),
        pytest.param("remuda.dev/pool=mac,wings", False, id="not all of many"),
        pytest.param(" colour = grey , age = 7 ", True, id="blanks around everything"),
        pytest.param("in in (in)", False, id="a word may be a key, an operator and a value"),
    ],
)
def test_label_selectors(selector: str, *, matches: bool) -> None:
    assert parse_labels(selector).matches(MARE) is matches


@pytest.mark.parametrize(
    ("selector", "says"),
    [
        pytest.param("a=b=c", "found '=', expected: ',' or 'end of string'", id="two values"),
        pytest.param("a in x", "found 'x' expected: '('", id="a set without brackets"),
        pytest.param("a in (x", "expected: ',' or ')'", id="a set that does not end"),
        pytest.param("a=b,", "expected: identifier after ','", id="a comma at the end"),
        pytest.param(
            ",a", "expected: !, identifier, or 'end of string'", id="a comma at the start"
        ),
        pytest.param("a b", "expected: in, notin, =, ==, !=, gt, lt", id="an unknown operator"),
        pytest.param("=b", "expected: identifier", id="no key"),
        pytest.param("-a", "name part must consist of", id="a malformed key"),
        pytest.param("A.B/c=1", "name part must consist of", id="a malformed prefix"),
        pytest.param("a=-b", "a valid label must be", id="a malformed value"),
        pytest.param("a in (-b)", "a valid label must be", id="a malformed value in a set"),
        pytest.param("a=" + "x" * 64, "a valid label must be", id="a value that is too long"),
        pytest.param("a>b", "the value must be an integer", id="a bound that is no number"),
    ],
)
def test_label_selectors_that_make_no_sense(selector: str, says: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the text is checked below, brackets and all
        parse_labels(selector)

    assert says in str(refused.value)


WORDS = st.from_regex(r"[a-z0-9]([-a-z0-9_.]{0,8}[a-z0-9])?", fullmatch=True)


@given(st.dictionaries(WORDS, WORDS, max_size=4), WORDS, st.sets(WORDS, min_size=1, max_size=3))
def test_every_selector_and_its_opposite_share_the_world(
    labels: dict[str, str], key: str, values: set[str]
) -> None:
    listed = ",".join(sorted(values))

    assert parse_labels(f"{key} in ({listed})").matches(labels) is not parse_labels(
        f"{key} notin ({listed})"
    ).matches(labels)
    assert parse_labels(key).matches(labels) is not parse_labels(f"!{key}").matches(labels)


POD = {
    "metadata": {"name": "mare", "namespace": "herd"},
    "spec": {"nodeName": "", "restartPolicy": "Never"},
    "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "::1"}]},
}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        pytest.param("", True, id="nothing selects everything"),
        pytest.param("metadata.name=mare", True, id="a name"),
        pytest.param("metadata.name==foal", False, id="another name"),
        pytest.param("metadata.namespace!=herd", False, id="not in its own namespace"),
        pytest.param("spec.nodeName=", True, id="not yet bound"),
        pytest.param("status.phase!=Failed,spec.nodeName=", True, id="both"),
        pytest.param("status.phase!=Running,spec.nodeName=", False, id="not both"),
        pytest.param("spec.serviceAccountName=", True, id="an absent field is empty"),
        pytest.param("spec.hostNetwork=false", True, id="an absent yes or no is no"),
        pytest.param(r"status.podIPs=10.0.0.1\,::1", True, id="a comma in a value is escaped"),
    ],
)
def test_field_selectors_of_pods(selector: str, *, matches: bool) -> None:
    assert parse_fields(selector, group="", kind="Pod").matches(POD) is matches


@pytest.mark.parametrize(
    ("kind", "selector", "obj", "matches"),
    [
        pytest.param(
            "Node", "spec.unschedulable=true", {"spec": {"unschedulable": True}}, True, id="cordoned"
        ),
        pytest.param("Node", "spec.unschedulable=false", {}, True, id="not cordoned"),
        pytest.param(
            "Event", "involvedObject.name=a,reason!=B", {"involvedObject": {"name": "a"}}, True,
            id="an Event about something",
        ),
        pytest.param(
            "Event", "source=kubelet", {"source": {"component": "kubelet"}}, True,
            id="an Event's old source",
        ),
        pytest.param(
            "Event", "source=agent", {"reportingComponent": "agent"}, True, id="an Event's new source"
        ),
        pytest.param("Secret", "type=Opaque", {"type": "Opaque"}, True, id="a Secret's type"),
        pytest.param("Namespace", "status.phase=Active", {}, False, id="a Namespace's phase"),
    ],
)  # fmt: skip
def test_field_selectors_of_other_kinds(
    kind: str, selector: str, obj: dict[str, object], *, matches: bool
) -> None:
    assert parse_fields(selector, group="", kind=kind).matches(obj) is matches


@pytest.mark.parametrize(
    ("kind", "selector", "says"),
    [
        pytest.param("Pod", "spec.image=x", "field label not supported: spec.image", id="of a Pod"),
        pytest.param(
            "Node", "metadata.namespace=x", "not supported: metadata.namespace", id="of a Node"
        ),
        pytest.param(
            "ConfigMap", "data.x=1", '"data.x" is not a known field selector', id="of a plain kind"
        ),
        pytest.param(
            "Pod", "abc", "invalid selector: 'abc'; can't understand 'abc'", id="no operator"
        ),
    ],
)
def test_field_selectors_that_are_refused(kind: str, selector: str, says: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the text is checked below
        parse_fields(selector, group="", kind=kind)

    assert says in str(refused.value)


def test_a_crd_may_offer_fields_of_its_own() -> None:
    selectable = frozenset({"spec.image"})

    chosen = parse_fields(
        "spec.image=a", group="remuda.dev", kind="RunnerPool", selectable=selectable
    )

    assert chosen.matches({"spec": {"image": "a"}})
    assert not chosen.matches({"spec": {"image": "b"}})
    with pytest.raises(ValueError, match=r"field label not supported: spec\.os"):
        parse_fields("spec.os=linux", group="remuda.dev", kind="RunnerPool", selectable=selectable)
