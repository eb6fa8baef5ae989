"""What a pool's template can do to a runner's Pod, what it cannot, and how it is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.kube.core import Pod
from remuda.kube.pod_merge import DEPTH_MAX, TEMPLATE_BYTES_MAX
from remuda.kube.pod_security import violations
from remuda.kube.runner_pod import (
    Placement,
    TemplateRefused,
    runner_pod,
    runner_template,
    template_hash,
)
from remuda.kube.runner_shapes import TOKEN_VOLUME
from remuda.model.errors import Retry
from tests.support.runner_pods import (
    DOCKER,
    IMAGE,
    KATA,
    SETTINGS,
    a_runner_pool,
    container,
    env,
    pod_of,
    the_example,
    with_template,
)

Json = dict[str, Any]
FREE: Json = {"podSecurity": "unrestricted"}
OURS = {"remuda.dev/fleet": "barn", "kubernetes.io/os": "linux"}
GOOD: Json = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def of_spec(**spec: object) -> Json:
    return {"spec": spec}


def of_runner(**fields: object) -> Json:
    return of_spec(containers=[{"name": "runner", **fields}])


def of_init(name: str, **fields: object) -> Json:
    return of_spec(initContainers=[{"name": name, **fields}])


# --- what a template can do -------------------------------------------------------------------------------------------


def test_labels_and_annotations_are_added() -> None:
    metadata = {
        "labels": {"team": "ios", "app.kubernetes.io/name": "runner"},
        "annotations": {"note": "a", "karpenter.sh/do-not-disrupt": "false"},
    }

    found = pod_of(with_template({"metadata": metadata}))["metadata"]

    assert metadata["labels"].items() < found["labels"].items()
    assert metadata["annotations"].items() < found["annotations"].items()
    assert found["labels"]["remuda.dev/runner"] == "true"


def test_tolerations_are_added_to_ours_once() -> None:
    plain = pod_of(a_runner_pool())["spec"]["tolerations"]
    extra = {"key": "team", "operator": "Exists"}

    found = pod_of(with_template(of_spec(tolerations=[extra, plain[0]])))["spec"]["tolerations"]

    assert found == [*plain, extra]


@pytest.mark.parametrize(
    ("tolerations", "ignores"),
    [
        pytest.param([], False, id="ours are for silent hosts, and let nobody in"),
        pytest.param([{"operator": "Exists"}], True, id="all taints"),
        pytest.param([{"operator": "Exists", "effect": "NoSchedule"}], True, id="all that keep runners out"),
        pytest.param([{"operator": "Exists", "effect": "NoExecute"}], False, id="all that end runners"),
        pytest.param([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}], True, id="cordons"),
        pytest.param([{"key": "example.test/gpu", "operator": "Exists"}], False, id="a taint of their own"),
    ],
)  # fmt: skip
def test_who_ignores_cordons(tolerations: list[Json], ignores: bool) -> None:  # noqa: FBT001 - a column
    pool = with_template(of_spec(tolerations=tolerations))

    assert runner_template(pool, SETTINGS).ignores_cordons is ignores


def test_the_node_selector_is_added_to_ours() -> None:
    found = pod_of(with_template(of_spec(nodeSelector={"disk": "fast"})))["spec"]["nodeSelector"]

    assert found == {**OURS, "disk": "fast"}


def test_wishes_about_nodes_are_added_to_ours() -> None:
    mine = {"weight": 1, "preference": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}
    apart = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
    affinity = {"nodeAffinity": {PREFERRED: [mine]}, "podAntiAffinity": apart}

    found = pod_of(with_template(of_spec(affinity=affinity)))["spec"]["affinity"]

    assert found["podAntiAffinity"] == apart
    assert found["nodeAffinity"][PREFERRED][1:] == [mine]
    assert found["nodeAffinity"][PREFERRED][0]["weight"] == 100


def test_variables_are_added_and_replaced_by_name() -> None:
    secret = {"secretKeyRef": {"name": "s", "key": "k"}}
    variables = [
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": secret},
        {"name": "DOCKER_HOST", "value": "tcp://mine"},
    ]

    runner = container(pod_of(with_template(of_runner(env=variables), **DOCKER)))

    assert [v for v in runner["env"] if v["name"] == "B"] == [{"name": "B", "valueFrom": secret}]
    assert [v["value"] for v in runner["env"] if v["name"] == "DOCKER_HOST"] == ["tcp://mine"]
    assert {"name": "A", "value": "1"} in runner["env"]
    assert {"name": "REMUDA_WORK", "value": "/work"} in runner["env"]


def test_the_runner_may_have_other_resources_and_commands() -> None:
    resources = {"limits": {"ephemeral-storage": "20Gi", "nvidia.com/gpu": 1}}

    runner = container(
        pod_of(with_template(of_runner(resources=resources, command=["sh"], tty=True)))
    )

    assert runner["resources"]["limits"] == {
        "cpu": "4",
        "memory": "8Gi",
        "remuda.dev/vm": "1",
        "ephemeral-storage": "20Gi",
        "nvidia.com/gpu": "1",
    }
    assert (runner["command"], runner["tty"], runner["image"]) == (["sh"], True, IMAGE)


def test_the_poller_may_have_variables_and_mounts_of_its_own() -> None:
    template = of_spec(
        volumes=[{"name": "ca", "configMap": {"name": "ca"}}],
        initContainers=[
            {
                "name": "poller",
                "env": [{"name": "HTTPS_PROXY", "value": "http://proxy"}],
                "volumeMounts": [{"name": "ca", "mountPath": "/ca", "readOnly": True}],
            }
        ],
    )

    poller = container(pod_of(with_template(template, **KATA)), "poller")

    assert env(poller)["HTTPS_PROXY"] == "http://proxy"
    assert [m["name"] for m in poller["volumeMounts"]] == [TOKEN_VOLUME, "mailbox", "ca"]


def test_sidecars_and_init_containers_come_before_the_poller_takes_a_job() -> None:
    template = of_spec(
        initContainers=[{"name": "cache", "image": "c", "securityContext": GOOD}],
        containers=[{"name": "metrics", "image": "m", "securityContext": GOOD}],
    )

    spec = pod_of(with_template(template, **KATA))["spec"]

    assert [c["name"] for c in spec["initContainers"]] == ["cache", "poller"]
    assert [c["name"] for c in spec["containers"]] == ["runner", "metrics"]


def test_a_volume_replaces_ours_where_it_may() -> None:
    disk = {"name": "work", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}

    volumes = pod_of(with_template(of_spec(volumes=[disk]), **KATA))["spec"]["volumes"]

    assert [v for v in volumes if v["name"] == "work"] == [disk]


def test_null_takes_a_field_away() -> None:
    notes = {"annotations": {"karpenter.sh/do-not-disrupt": None}, "labels": {"a": None}}
    template = {"metadata": notes, **of_spec(affinity=None, enableServiceLinks=None)}

    pod = pod_of(with_template(template))

    assert "karpenter.sh/do-not-disrupt" not in pod["metadata"]["annotations"]
    assert "a" not in pod["metadata"]["labels"]
    assert not {"affinity", "enableServiceLinks"} & pod["spec"].keys()


def test_a_key_that_is_named_like_a_list_is_only_a_key() -> None:
    words = {"env": "prod", "containers": "many", "tolerations": "none"}

    pod = pod_of(
        with_template(
            {"metadata": {"labels": words, "annotations": words}, **of_spec(nodeSelector=words)}
        )
    )

    assert words.items() < pod["metadata"]["labels"].items()
    assert words.items() < pod["metadata"]["annotations"].items()
    assert words.items() < pod["spec"]["nodeSelector"].items()


def test_the_user_of_all_containers_may_be_another_within_the_standard() -> None:
    context = {"runAsUser": 2000, "fsGroup": 2000}

    pod = pod_of(with_template(of_spec(securityContext=context), **KATA))

    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    for name in ("poller", "runner"):
        effective = {**pod["spec"]["securityContext"], **container(pod, name)["securityContext"]}
        assert (effective["runAsUser"], effective["fsGroup"]) == (2000, 2000)


def test_an_unrestricted_pool_may_ask_for_anything() -> None:
    template = of_spec(hostNetwork=True, volumes=[{"name": "v", "hostPath": {"path": "/"}}])

    spec = pod_of(with_template(template, **FREE))["spec"]

    assert spec["hostNetwork"] is True


def test_the_example_of_the_docs_does_what_it_says() -> None:
    pod = pod_of(with_template(the_example()))

    assert pod["metadata"]["labels"]["team"] == "ios"
    assert pod["spec"]["nodeSelector"] == {**OURS, "disk": "fast"}
    assert pod["spec"]["tolerations"][-1]["value"] == "ios"
    assert env(container(pod))["HTTPS_PROXY"] == "http://proxy.example:3128"


def test_fields_that_we_do_not_know_are_kept() -> None:
    spec = pod_of(with_template(of_spec(dnsConfig={"nameservers": ["192.0.2.1"]})))["spec"]

    assert spec["dnsConfig"] == {"nameservers": ["192.0.2.1"]}


def test_a_merge_changes_neither_the_pool_nor_another_pools_pod() -> None:
    before = runner_pod(a_runner_pool(**KATA), "mac-1", SETTINGS)
    pool = with_template(of_runner(resources={"limits": {"gpu": 1}}, env=[]), **KATA)
    template = msgspec.json.encode(pool.spec.template)

    runner_pod(pool, "mac-1", SETTINGS)

    assert msgspec.json.encode(pool.spec.template) == template
    assert runner_pod(a_runner_pool(**KATA), "mac-1", SETTINGS) == before


# --- what a template cannot do ----------------------------------------------------------------------------------------

TOKEN: Json = {"serviceAccountToken": {"audience": "remuda-dispatch", "path": "t"}}
MOUNT: Json = {"name": TOKEN_VOLUME, "mountPath": "/token"}


@pytest.mark.parametrize(
    ("template", "pool", "path"),
    [
        # who it is
        pytest.param({"metadata": {"name": "x"}}, {}, "metadata.name", id="its name"),
        pytest.param({"metadata": {"namespace": "x"}}, {}, "metadata.namespace", id="its namespace"),
        pytest.param({"metadata": {"finalizers": ["a/b"]}}, {}, "metadata.finalizers", id="a finalizer"),
        pytest.param({"metadata": {"ownerReferences": []}}, {}, "metadata.ownerReferences", id="an owner"),
        pytest.param({"metadata": {"labels": {"remuda.dev/pool": "x"}}},
            {}, "metadata.labels[remuda.dev/pool]", id="its pool"),
        pytest.param({"metadata": {"labels": {"remuda.dev/owner": "x"}}},
            {}, "metadata.labels[remuda.dev/owner]", id="a tenant"),
        pytest.param({"metadata": {"annotations": {"x.remuda.dev/y": "x"}}},
            {}, "metadata.annotations[x.remuda.dev/y]", id="a note of ours"),
        pytest.param(of_spec(serviceAccountName="admin"), {}, "spec.serviceAccountName", id="its account"),
        pytest.param(of_spec(serviceAccountName=None, serviceAccount="admin"),
            {}, "spec.serviceAccount", id="its account, the old way"),
        pytest.param(of_spec(automountServiceAccountToken=True),
            {}, "spec.automountServiceAccountToken", id="a token mounted"),
        pytest.param(of_spec(automountServiceAccountToken=None),
            {}, "spec.automountServiceAccountToken", id="a token mounted by null"),
        # that it runs once, and to its end
        pytest.param(of_spec(restartPolicy="Always"), FREE, "spec.restartPolicy", id="restarts"),
        pytest.param(of_spec(activeDeadlineSeconds=60), FREE, "spec.activeDeadlineSeconds", id="a deadline"),
        pytest.param(of_runner(restartPolicy="Always"),
            FREE, "spec.containers[runner].restartPolicy", id="restarts of its container"),
        pytest.param(of_runner(livenessProbe={"exec": {"command": ["x"]}}),
            {}, "spec.containers[runner].livenessProbe", id="a probe that kills"),
        # where it runs
        pytest.param(of_spec(nodeName="mac-7"), FREE, "spec.nodeName", id="its host"),
        pytest.param(of_spec(runtimeClassName="runc"), KATA, "spec.runtimeClassName", id="its runtime"),
        pytest.param(of_spec(runtimeClassName=None), KATA, "spec.runtimeClassName", id="its runtime by null"),
        pytest.param(of_spec(nodeSelector={"remuda.dev/fleet": "x"}),
            {}, "spec.nodeSelector[remuda.dev/fleet]", id="its fleet"),
        pytest.param(of_spec(nodeSelector=None), FREE, "spec.nodeSelector[remuda.dev/fleet]", id="its fleet by null"),
        pytest.param(of_spec(tolerations=None), {}, "spec.tolerations", id="its tolerations by null"),
        # what it is
        pytest.param(of_runner(image="x"), {}, "spec.containers[runner].image", id="its image"),
        pytest.param(of_runner(resources={"limits": {"cpu": "1"}}),
            {}, "spec.containers[runner].resources.limits.cpu", id="its CPUs"),
        pytest.param(of_runner(resources={"requests": {"memory": "1"}}),
            {}, "spec.containers[runner].resources.requests.memory", id="its memory"),
        pytest.param(of_runner(resources={"limits": {"remuda.dev/vm": 0}}),
            {}, "spec.containers[runner].resources.limits.remuda.dev/vm", id="its VM"),
        pytest.param(of_runner(resources=None),
            {}, "spec.containers[runner].resources.requests.cpu", id="its size by null"),
        pytest.param(of_spec(resources={"limits": {"cpu": 1}}), {}, "spec.resources", id="the size of the Pod"),
        pytest.param(of_runner(env=[{"name": "REMUDA_MAILBOX", "value": "/x"}]),
            KATA, "spec.containers[runner].env", id="a variable of ours"),
        pytest.param(of_runner(env=[{"name": "REMUDA_DISPATCH_URL", "value": "x"}]),
            {}, "spec.containers[runner].env", id="an address of ours"),
        pytest.param(of_runner(env=None), {}, "spec.containers[runner].env", id="all variables"),
        pytest.param(of_spec(containers=None), {}, "spec.containers", id="all containers"),
        pytest.param(of_spec(containers=[{"name": "more", "image": "x"}]),
            FREE, "spec.containers[more]", id="a second container of a VM"),
        pytest.param(of_init("setup", image="x"), FREE, "spec.initContainers[setup]", id="an init container of a VM"),
        pytest.param(of_init("poller", image="x"),
            FREE, "spec.initContainers[poller]", id="a poller where the agent polls"),
        pytest.param(of_init("runner", image="x"),
            {**KATA, **FREE}, "spec.initContainers[runner]", id="a second runner"),
        pytest.param(of_init("dind", image="x"),
            {**KATA, **FREE}, "spec.initContainers[dind]", id="a daemon that nobody allowed"),
        pytest.param(of_init("poller", command=["sleep"]),
            KATA, "spec.initContainers[poller].command", id="what the poller does"),
        pytest.param(of_init("poller", env=[{"name": "REMUDA_TOKEN_FILE", "value": "x"}]),
            KATA, "spec.initContainers[poller].env", id="which token the poller shows"),
        pytest.param(of_init("dind", restartPolicy=None),
            DOCKER, "spec.initContainers[dind].restartPolicy", id="that the daemon is a sidecar"),
        # the credential
        pytest.param(of_runner(volumeMounts=[MOUNT]),
            KATA, "spec.containers[runner].volumeMounts[/token]", id="the token into the runner"),
        pytest.param(of_runner(volumeMounts=[MOUNT]),
            {}, "spec.containers[runner].volumeMounts[/token]", id="the token into the VM"),
        pytest.param(of_spec(containers=[{"name": "s", "image": "x", "volumeMounts": [MOUNT]}]),
            {**KATA, **FREE}, "spec.containers[s].volumeMounts[/token]", id="the token into a sidecar"),
        pytest.param(of_spec(volumes=[{"name": "mine", "projected": {"sources": [TOKEN]}}]),
            KATA, "spec.volumes[mine]", id="a token like it"),
        pytest.param(of_spec(volumes=[{"name": TOKEN_VOLUME, "emptyDir": {}}]),
            KATA, f"spec.volumes[{TOKEN_VOLUME}]", id="another volume of its name"),
        pytest.param(of_spec(volumes=[{"name": "mailbox", "emptyDir": {"medium": "Memory"}}]),
            KATA, "spec.volumes[mailbox]", id="another mailbox"),
        pytest.param(of_runner(volumeMounts=[{"name": "work", "mountPath": "/run/remuda/mailbox"}]),
            KATA, "spec.containers[runner].volumeMounts[/run/remuda/mailbox]", id="something over the mailbox"),
        # what is no template
        pytest.param({"kind": "Pod"}, {}, "kind", id="a whole Pod"),
        pytest.param({"spec": {"$patch": "delete"}}, {}, "spec", id="a directive of kubectl"),
        pytest.param({"spec": []}, {}, "spec", id="a list for the spec"),
        pytest.param({"spec": False}, {}, "spec", id="no, for the spec"),
        pytest.param({"metadata": "x"}, {}, "metadata", id="text for the metadata"),
        pytest.param({"metadata": {"labels": ["a"]}}, {}, "metadata.labels", id="a list of labels"),
        pytest.param({"metadata": {"labels": {"a": 1}}}, {}, "metadata.labels[a]", id="a number as a label"),
        pytest.param(of_spec(containers={"name": "runner"}), {}, "spec.containers", id="a map for containers"),
        pytest.param(of_spec(containers=["runner"]), {}, "spec.containers[0]", id="a container that is only a name"),
        pytest.param(of_spec(containers=[{"image": "x"}]),
            {}, "spec.containers[0].name", id="a container without a name"),
        pytest.param(of_spec(tolerations="x"), {}, "spec.tolerations", id="text for tolerations"),
        pytest.param(of_spec(tolerations=["x"]), {}, "spec.tolerations[3]", id="a toleration that is text"),
        pytest.param(of_spec(nodeSelector=["x"]), {}, "spec.nodeSelector", id="a list of selectors"),
        pytest.param(of_spec(nodeSelector={"a": 1}), {}, "spec.nodeSelector[...]", id="a number in a selector"),
        pytest.param(of_spec(volumes=[1]), {}, "spec.volumes[0]", id="a volume that is a number"),
        pytest.param(of_runner(env={"A": "1"}), {}, "spec.containers[runner].env", id="variables as a map"),
        pytest.param(of_runner(env=[{"name": "A", "value": 1}]),
            {}, "spec.containers[0].env[2].value", id="a number in a variable"),
        pytest.param(of_runner(resources={"limits": ["x"]}),
            {}, "spec.containers[runner].resources.limits", id="a list of limits"),
        pytest.param(of_runner(securityContext="none"),
            {}, "spec.containers[runner].securityContext", id="text for a context"),
        pytest.param(of_spec(initContainers=None), KATA, "spec.initContainers", id="no poller"),
    ],
)  # fmt: skip
def test_refused_by_its_path(template: Json, pool: Json, path: str) -> None:
    with pytest.raises(TemplateRefused) as refusal:
        template_hash(with_template(template, **pool), SETTINGS)

    assert refusal.value.what == f"spec.template.{path}"
    assert refusal.value.retry is Retry.NEVER
    assert refusal.value.why
    assert refusal.value.fix


@pytest.mark.parametrize(
    "template",
    [
        pytest.param(of_spec(hostNetwork=True), id="the host's network"),
        pytest.param(of_spec(securityContext={"runAsUser": 0}), id="root"),
        pytest.param(of_spec(securityContext=None, **of_runner(securityContext=None)["spec"]), id="nothing said"),
        pytest.param(of_runner(securityContext={"privileged": True}), id="privileged"),
        pytest.param(of_spec(volumes=[{"name": "v", "hostPath": {"path": "/"}}]), id="a folder of the host"),
    ],
)  # fmt: skip
def test_a_restricted_pool_is_told_what_the_standard_forbids(template: Json) -> None:
    with pytest.raises(TemplateRefused, match="podSecurity restricted forbids"):
        template_hash(with_template(template), SETTINGS)

    assert template_hash(with_template(template, **FREE), SETTINGS)


def test_a_template_may_say_again_what_holds_anyway() -> None:
    said = of_spec(restartPolicy="Never", automountServiceAccountToken=False, nodeSelector=OURS)

    assert template_hash(with_template(said), SETTINGS) == template_hash(a_runner_pool(), SETTINGS)


def test_a_huge_template_is_refused() -> None:
    big = {"metadata": {"annotations": {"a": "x" * TEMPLATE_BYTES_MAX}}}

    with pytest.raises(TemplateRefused, match="larger than"):
        template_hash(with_template(big), SETTINGS)


@pytest.mark.parametrize("depth", [DEPTH_MAX + 1, 100_000], ids=["a little", "far"])
@pytest.mark.parametrize("kind", [list, dict])
def test_a_template_nested_too_deep_is_refused(kind: type, depth: int) -> None:
    value: Any = "x"
    for _ in range(depth):
        value = [value] if kind is list else {"a": value}
    # Such a value cannot be converted, so the pool gets it as it is.
    pool = a_runner_pool()
    spec = msgspec.structs.replace(pool.spec, template={"spec": {"x": value}})

    with pytest.raises(TemplateRefused, match="nested deeper"):
        template_hash(msgspec.structs.replace(pool, spec=spec), SETTINGS)


# --- whatever a template holds ----------------------------------------------------------------------------------------

NAMES = st.sampled_from(
    ["runner", "poller", "dind", "work", "mailbox", TOKEN_VOLUME, "more", "REMUDA_POOL", ""]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=6)
    | NAMES
)
KEYS = st.sampled_from(
    ["metadata", "spec", "labels", "annotations", "containers", "initContainers", "volumes", "env",
     "volumeMounts", "name", "mountPath", "tolerations", "affinity", "nodeAffinity", PREFERRED,
     "nodeSelector", "resources", "limits", "requests", "cpu", "securityContext", "capabilities",
     "projected", "sources", "serviceAccountToken", "audience", "emptyDir", "image", "restartPolicy",
     "nodeName", "remuda.dev/pool", "$patch", "serviceAccountName", "value", "x"]
)  # fmt: skip
ANY_JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=25,
)


PATHS = st.sampled_from(["/work", "/run/remuda/mailbox", "/a", "/var/run/secrets/remuda.dev"])
MOUNTS = st.fixed_dictionaries({"name": NAMES, "mountPath": PATHS})
VARIABLES = st.fixed_dictionaries({"name": NAMES}, optional={"value": st.text(max_size=3)})
TEXTS = st.dictionaries(st.sampled_from(["a", "env", "x.test/y"]), st.text("ab", max_size=3))
CONTEXTS = st.just(GOOD) | st.just({**GOOD, "runAsUser": 7}) | st.dictionaries(KEYS, ANY_JSON)
CONTAINERS = st.fixed_dictionaries(
    {"name": NAMES.filter(bool)},
    optional={
        "volumeMounts": st.lists(MOUNTS, max_size=2),
        "env": st.lists(VARIABLES, max_size=2),
        "securityContext": CONTEXTS,
        "command": st.just(["sh"]),
        "x": ANY_JSON,
    },
)
VOLUMES = st.fixed_dictionaries({"name": NAMES.filter(bool), "emptyDir": st.just({})})
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "containers": st.lists(CONTAINERS, max_size=2),
        "initContainers": st.lists(CONTAINERS, max_size=2),
        "volumes": st.lists(VOLUMES, max_size=2),
        "securityContext": CONTEXTS,
        "nodeSelector": TEXTS,
        "dnsPolicy": st.just("Default"),
        "affinity": ANY_JSON,
        "x": ANY_JSON,
    },
)
METADATA = st.fixed_dictionaries({}, optional={"labels": TEXTS, "annotations": TEXTS})
TEMPLATES = st.fixed_dictionaries({}, optional={"metadata": METADATA, "spec": SPECS})
KINDS = st.sampled_from([{}, KATA, {**KATA, **FREE}, FREE, DOCKER])


@settings(max_examples=300)
@given(ANY_JSON | TEMPLATES, KINDS)
def test_any_template_is_refused_or_gives_a_runner(template: object, kind: Json) -> None:
    pool = a_runner_pool(**kind)
    given_ = msgspec.structs.replace(pool.spec, template=template)
    try:
        made = runner_template(msgspec.structs.replace(pool, spec=given_), SETTINGS)
    except TemplateRefused:
        return  # the one thing that may happen instead

    _is_a_runner(msgspec.json.decode(made.pod("mac-1", Placement(("a",), "b"))), kind)


def _made(template: Json) -> Json | None:
    try:
        made = runner_template(with_template(template, **KATA), SETTINGS)
    except TemplateRefused:
        return None
    pod: Json = msgspec.json.decode(made.pod("mac-1"))
    assert pod["metadata"]["labels"].pop("remuda.dev/template") == made.hash
    return {"hash": made.hash, "pod": pod}


@settings(max_examples=200)
@given(TEMPLATES, TEMPLATES)
def test_two_templates_have_one_hash_if_and_only_if_they_make_one_pod(
    one: Json, other: Json
) -> None:
    first, second = _made(one), _made(other)

    if first is not None and second is not None:
        assert (first["hash"] == second["hash"]) == (first["pod"] == second["pod"])


def _is_a_runner(pod: Json, kind: Json) -> None:
    spec = pod["spec"]
    assert msgspec.convert(pod, Pod).name == spec["serviceAccountName"] == "mac-1"
    assert pod["metadata"]["labels"]["remuda.dev/pool"] == "mac"
    assert (spec["restartPolicy"], spec["automountServiceAccountToken"]) == ("Never", False)
    assert "nodeName" not in spec
    assert spec.get("runtimeClassName") == kind.get("runtimeClassName")
    assert container(pod)["image"] == IMAGE
    assert OURS.items() <= spec["nodeSelector"].items()
    if "runtimeClassName" in kind:
        assert spec["initContainers"][-1]["name"] == "poller"
    for found in [*spec.get("initContainers", []), *spec["containers"]]:
        held = {mount["name"] for mount in found.get("volumeMounts", [])}
        assert (TOKEN_VOLUME in held) == (found["name"] == "poller")
    if kind.get("podSecurity") != "unrestricted":
        assert violations(spec) == ()
