from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.standalone.kinds import ScalePaths
from remuda.standalone.schema import SchemaFault, StructuralSchema

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())
PROBE = StructuralSchema(RECORDED["schema"])


def a_probe(case: dict[str, Any], spec: str = "spec") -> dict[str, Any]:
    probe = {"apiVersion": "test.dev/v1", "kind": "Probe", "metadata": {"name": case["name"]}}
    return probe | ({"spec": case[spec]} if spec in case else {})


@pytest.mark.parametrize("case", [pytest.param(c, id=c["id"]) for c in RECORDED["cases"]])
def test_answers_are_the_real_servers(case: dict[str, Any]) -> None:
    obj = PROBE.default(PROBE.prune(a_probe(case)))
    old = PROBE.default(a_probe(case, "old")) if "old" in case else None

    causes = PROBE.validate(obj, old)

    # The real server walks properties in no fixed order.
    found = sorted([cause.field, cause.reason, cause.message] for cause in causes)
    assert found == sorted(case.get("refused", []))
    if "stored" in case:
        assert obj["spec"] == case["stored"]


def test_pruning_and_defaulting_do_not_touch_what_came_in() -> None:
    obj = {"metadata": {"name": "p"}, "spec": {"nope": 1, "objs": [{"a": 1, "q": 2}], "uniq": {}}}
    before = json.dumps(obj)

    PROBE.default(PROBE.prune(obj))

    assert json.dumps(obj) == before


def test_what_needs_no_change_is_not_copied() -> None:
    obj = PROBE.default(PROBE.prune({"metadata": {"name": "p"}, "spec": {"objs": [{"a": 1}]}}))

    assert PROBE.prune(obj) is obj
    assert PROBE.default(obj) is obj


def test_metadata_is_neither_pruned_nor_defaulted() -> None:
    obj = {
        "apiVersion": "v1",
        "kind": "Probe",
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "junk": 1,
    }

    assert PROBE.prune(obj) == {"apiVersion": "v1", "kind": "Probe", "metadata": obj["metadata"]}


def test_a_default_is_never_shared_between_objects() -> None:
    schema = StructuralSchema(
        an_object(
            spec={
                "type": "object",
                "default": {},
                "properties": {
                    "a": {"type": "array", "default": [1], "items": {"type": "integer"}}
                },
            }
        )
    )
    first, second = schema.default({"metadata": {}}), schema.default({"metadata": {}})

    first["spec"]["a"].append(2)

    assert second["spec"]["a"] == [1]


# --- Schemas that are refused ----------------------------------------------------------------------------------------


def an_object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def ruled(rule: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    spec = an_object(a={"type": "integer"}, when={"type": "string", "format": "date-time"})
    return an_object(spec=spec | {"x-kubernetes-validations": [{"rule": rule, **more}]})


RULE = "openAPIV3Schema.properties[spec].x-kubernetes-validations[0]"
SPEC = "openAPIV3Schema.properties[spec]"


OLD_ONLY = {"type": "integer", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
BIG_ONLY = [{"rule": "self > 5", "message": "m"}]


@pytest.mark.parametrize(
    ("schema", "field", "message"),
    [
        pytest.param({"type": "string"}, "openAPIV3Schema.type",
                     "must be object at the root", id="a root that is no object"),
        pytest.param(an_object(spec={}), f"{SPEC}.type",
                     "must not be empty", id="a field without a type"),
        pytest.param(an_object(spec={"type": "text"}), f"{SPEC}.type",
                     'Unsupported value: "text"', id="a type that does not exist"),
        pytest.param(an_object(spec={"type": "array"}), f"{SPEC}.items",
                     "must be specified", id="a list of nothing"),
        pytest.param(an_object(spec={"$ref": "x", "type": "object"}), f"{SPEC}.$ref",
                     "not supported", id="a reference"),
        pytest.param(an_object(spec={"type": "array", "x-kubernetes-list-type": "map", "items": an_object()}),
                     f"{SPEC}.x-kubernetes-list-map-keys",
                     "must not be empty", id="a keyed list without keys"),
        pytest.param(an_object(spec={"type": "string", "pattern": "("}), f"{SPEC}.pattern",
                     "must be a valid regular expression", id="a pattern that does not parse"),
        pytest.param(an_object(spec={"type": "integer", "default": "x"}), f"{SPEC}.default",
                     "must be of type integer", id="a default of the wrong type"),
        pytest.param(an_object(spec={"type": "object", "default": {"q": 1}}), f"{SPEC}.default",
                     "must not have unknown fields", id="a default that would be pruned"),
        pytest.param(an_object(spec={"type": "integer", "default": 1, "x-kubernetes-validations": BIG_ONLY}),
                     f"{SPEC}.default",
                     "Invalid value: 1: m", id="a default that breaks a rule"),
        pytest.param(ruled(""), f"{RULE}.rule",
                     "rule is not specified", id="an empty rule"),
        pytest.param(ruled("self.a +"), f"{RULE}.rule",
                     "Syntax error", id="a rule that does not parse"),
        pytest.param(ruled("nope(self.a)"), f"{RULE}.rule",
                     "undeclared reference to 'nope'", id="an unknown function"),
        pytest.param(ruled("quantity('1').isLessThan(quantity('2'))"), f"{RULE}.rule",
                     "undeclared reference to 'quantity'", id="a function that only the real server has"),
        pytest.param(ruled("other > 1"), f"{RULE}.rule",
                     "undeclared reference to 'other'", id="an unknown variable"),
        pytest.param(ruled("self.nope > 1"), f"{RULE}.rule",
                     "undefined field 'nope'", id="an undeclared field"),
        pytest.param(ruled("self.a + 1"), f"{RULE}.rule",
                     "must evaluate to a bool", id="a rule that is no question"),
        pytest.param(ruled("self.a > 1", reason="Bogus"), f"{RULE}.reason",
                     'Unsupported value: "Bogus"', id="an unknown reason"),
        pytest.param(ruled("self.a > 1", fieldPath=".zz"), f"{RULE}.fieldPath",
                     "must be a valid path", id="a path to nowhere"),
        pytest.param(ruled("self.a > 1", messageExpression="1 + 1"), f"{RULE}.messageExpression",
                     "must evaluate to a string", id="a message that is no text"),
        pytest.param(ruled("self.when.getFullYear() > 2000"), f"{RULE}.rule",
                     "no rules over times", id="a rule over a time"),
        pytest.param(an_object(spec={"type": "array", "items": OLD_ONLY}),
                     f"{SPEC}.items.x-kubernetes-validations[0].rule",
                     "uncorrelatable portion", id="a transition rule where items have no key"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_kept_is_refused(
    schema: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(SchemaFault) as refusal:
        StructuralSchema(schema)

    assert refusal.value.cause.field == field
    assert message in refusal.value.cause.message


@pytest.mark.parametrize(
    ("replicas", "messages"),
    [
        pytest.param(0, [], id="none"),
        pytest.param(
            -1, ["Invalid value: -1: should be a non-negative integer"], id="fewer than none"
        ),
        pytest.param(
            2**31,
            ["Invalid value: 2147483648: should be less than or equal to 2147483647"],
            id="too many to count",
        ),
        pytest.param(
            "x",
            ["Invalid value: 0: .spec.n accessor error: x is of the type string, expected int64"],
            id="no number at all",
        ),
    ],
)
def test_what_the_scale_subresource_shows_is_a_count(replicas: object, messages: list[str]) -> None:
    spec = an_object(n={"type": "integer"})
    schema = StructuralSchema(an_object(spec=spec), scale=ScalePaths(".spec.n", ".status.n"))

    causes = schema.validate({"metadata": {}, "spec": {"n": replicas}})

    assert [c.message for c in causes if c.field == ".spec.n"] == messages


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param("self.a > 1 || 'self.nope' == ''", id="a field named inside a string"),
        pytest.param("has(self.a) && oldSelf.a == self.a", id="old and new"),
        pytest.param("[self.a].all(x, x > 0)", id="a list of values"),
        pytest.param("self.?a.hasValue()", id="an optional field"),
    ],
)
def test_a_rule_that_can_be_kept_is_taken(rule: str) -> None:
    StructuralSchema(ruled(rule))


def test_true_is_not_an_unchanged_1() -> None:
    schema = StructuralSchema(an_object(spec={"type": "integer"}))

    causes = schema.validate({"metadata": {}, "spec": True}, {"metadata": {}, "spec": 1})

    assert [cause.reason for cause in causes] == ["FieldValueTypeInvalid"]


def test_a_value_that_does_not_change_answers_to_transition_rules_only() -> None:
    rules = [
        {"rule": "self > 5", "message": "small"},
        {"rule": "self > oldSelf", "message": "not more"},
    ]
    schema = StructuralSchema(
        an_object(spec={"type": "integer", "x-kubernetes-validations": rules})
    )
    one: dict[str, Any] = {"metadata": {}, "spec": 1}
    two: dict[str, Any] = {"metadata": {}, "spec": 2}

    assert [c.message for c in schema.validate(one, one)] == ["Invalid value: 1: not more"]
    assert [c.message for c in schema.validate(two, one)] == ["Invalid value: 2: small"]


@pytest.mark.parametrize(
    ("name", "in_cel"),
    [
        pytest.param("namespace", "__namespace__", id="a reserved word"),
        pytest.param("a-b", "a__dash__b", id="a dash"),
        pytest.param("a.b/c", "a__dot__b__slash__c", id="a dot and a slash"),
        pytest.param("a__b", "a__underscores__b", id="two underscores"),
        pytest.param("plain_1", "plain_1", id="a plain name"),
    ],
)
def test_rules_reach_fields_whose_names_cel_does_not_take(name: str, in_cel: str) -> None:
    rules = [{"rule": f"self.{in_cel} > 5", "message": "small"}]
    spec = an_object(**{name: {"type": "integer"}}) | {"x-kubernetes-validations": rules}
    schema = StructuralSchema(an_object(spec=spec))

    assert schema.validate({"metadata": {}, "spec": {name: 6}}) == ()
    assert [c.message for c in schema.validate({"metadata": {}, "spec": {name: 5}})] == [
        "Invalid value: small"
    ]


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        pytest.param("^a$", "a\n", False, id="the end is the end, not the last line"),
        pytest.param(r"^\d+$", "٣", False, id="digits are ASCII"),
        pytest.param("b", "abc", True, id="a pattern may match anywhere"),
    ],
)
def test_patterns_are_re2(pattern: str, text: str, fits: bool) -> None:  # noqa: FBT001 - a table's column
    schema = StructuralSchema(an_object(spec={"type": "string", "pattern": pattern}))

    assert (schema.validate({"metadata": {}, "spec": text}) == ()) is fits


# --- Properties ------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from(
    [*RECORDED["schema"]["properties"]["spec"]["properties"], "a", "b", "k", "x", "unknown"]
)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=6)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=4,
)
SPECS = st.dictionaries(KEYS, JSON, max_size=4)


def probes(spec: object) -> dict[str, Any]:
    return {"apiVersion": "test.dev/v1", "kind": "Probe", "metadata": {"name": "p"}, "spec": spec}


@given(SPECS)
def test_pruning_twice_is_pruning_once(spec: dict[str, Any]) -> None:
    once = PROBE.prune(probes(spec))

    assert PROBE.prune(once) == once


@given(SPECS)
def test_defaulting_twice_is_defaulting_once(spec: dict[str, Any]) -> None:
    once = PROBE.default(PROBE.prune(probes(spec)))

    assert PROBE.default(once) == once


@given(SPECS, JSON)
def test_any_object_gets_an_answer(spec: dict[str, Any], old: object) -> None:
    new = PROBE.default(PROBE.prune(probes(spec)))

    PROBE.validate(new)
    PROBE.validate(new, PROBE.default(PROBE.prune(probes(old))))


@given(SPECS)
def test_what_does_not_change_is_never_refused(spec: dict[str, Any]) -> None:
    obj = PROBE.default(PROBE.prune(probes(spec)))
    same = json.loads(json.dumps(obj))

    assert [c for c in PROBE.validate(same, obj) if c.reason != "FieldValueDuplicate"] == []
