"""The RunnerPool resource: what a person wants of a warm pool, and what the operator says about it."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec resolves annotations at run time
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from msgspec import UNSET, UnsetType

from remuda.kube.fields import DNS_LABEL, DNS_SUBDOMAIN, MEMORY, QUANTITY, Rule, Section, described
from remuda.kube.kinds import Kind
from remuda.kube.meta import Condition, Part, Resource

REPLICAS_MAX = 10_000
DAY_S = 86_400
CRON = r"^\S+ \S+ \S+ \S+ \S+$"
TIME_ZONE = r"^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}$"
RUNNER_LABEL = r"^[^\s,]([^,\r\n\t]*[^\s,])?$"


class OperatingSystem(StrEnum):
    """What a pool's runners run."""

    LINUX = "linux"
    DARWIN = "darwin"


class Forks(StrEnum):
    """Whether pull requests from forks may run here."""

    DENY = "deny"
    ALLOW = "allow"


class RunnerResources(Section, frozen=True, kw_only=True):
    cpu: Annotated[
        int | str,
        described(
            "CPUs of each runner: its Pod's request and limit, and the size of its VM. A whole number or a quantity"
            " such as 500m.",
            minimum=1,
            maxLength=20,
            pattern=QUANTITY,
        ),
    ] = 4
    memory: Annotated[
        str,
        described(
            "Memory of each runner: its Pod's request and limit, and the size of its VM. With a unit, such as 8Gi.",
            maxLength=20,
            pattern=MEMORY,
        ),
    ] = "8Gi"


class Stage(Section, frozen=True, kw_only=True):
    enabled: Annotated[
        bool,
        described("Fetch a new image onto the hosts before runners are retired for it."),
    ] = True
    max_concurrent: Annotated[
        int,
        described("How many hosts may fetch the image at once.", minimum=1, maximum=1000),
    ] = 2


class Rollout(Section, frozen=True, kw_only=True):
    max_concurrent_percent: Annotated[
        int,
        described(
            "How many runners, in percent of replicas, may be missing, starting or marked for replacement at any"
            " moment of a roll. At least one runner is always allowed.",
            minimum=1,
            maximum=100,
        ),
    ] = 5
    paused: Annotated[
        bool,
        described(
            "Mark no further runner for replacement. Those already marked are still replaced."
        ),
    ] = False
    progress_deadline_seconds: Annotated[
        int,
        described(
            "How long a roll may wait for a replacement to become warm. After that the pool is Degraded and nobody else"
            " is retired until one does.",
            minimum=60,
            maximum=DAY_S,
        ),
    ] = 600
    stage: Annotated[
        Stage,
        described("The fetch gate: brings a new image to the hosts ahead of the roll."),
    ] = Stage()


class Schedule(Section, frozen=True, kw_only=True):
    name: Annotated[
        str,
        described("A name for this schedule, unique in the pool.", maxLength=63, pattern=DNS_LABEL),
    ]
    cron: Annotated[
        str,
        described(
            "When the schedule begins: minute, hour, day of month, month, day of week, each separated by one space,"
            " such as 0 8 * * 1-5.",
            maxLength=100,
            pattern=CRON,
        ),
    ]
    duration_seconds: Annotated[
        int,
        described("How long the schedule lasts each time.", minimum=60, maximum=7 * DAY_S),
    ]
    min_warm: Annotated[
        int,
        described(
            "The minWarm in force while the schedule lasts.", minimum=0, maximum=REPLICAS_MAX
        ),
    ]
    time_zone: Annotated[
        str,
        described(
            "The IANA time zone in which cron is read, such as Europe/Berlin.",
            maxLength=64,
            pattern=TIME_ZONE,
        ),
    ] = "UTC"


class Autoscaling(Section, frozen=True, kw_only=True):
    enabled: Annotated[
        bool,
        described("Let the autoscaler own spec.replicas. While it is off, a person does."),
    ] = False
    min_warm: Annotated[
        int,
        described(
            "How many idle, warm runners to keep above what jobs need. 0 means none: the first job then waits for a"
            " boot.",
            minimum=0,
            maximum=REPLICAS_MAX,
        ),
    ] = 1
    max_replicas: Annotated[
        int | UnsetType,
        described(
            "The most runners this pool may have, busy ones included. Required when autoscaling is enabled.",
            minimum=1,
            maximum=REPLICAS_MAX,
        ),
    ] = UNSET
    scale_down_cooldown_seconds: Annotated[
        int,
        described(
            "How long to wait after a scale-down, or after demand last rose, before scaling down again. 0 means no"
            " wait.",
            minimum=0,
            maximum=DAY_S,
        ),
    ] = 300
    schedules: Annotated[
        tuple[Annotated[Schedule, described("One recurring time with its own minWarm.")], ...],
        described(
            "Recurring times with another minWarm, such as office hours. Where several overlap, the largest wins.",
            maxItems=32,
            list_type="map",
            list_map_keys=["name"],
        ),
    ] = ()

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!self.enabled || has(self.maxReplicas)",
            message="maxReplicas is required when autoscaling is enabled: without it a burst of jobs could take every"
            " host. Set spec.autoscaling.maxReplicas, or set enabled to false.",
            field_path=".maxReplicas",
            reason="FieldValueRequired",
        ),
        Rule(
            cel="!has(self.maxReplicas) || self.minWarm <= self.maxReplicas",
            message="minWarm is above maxReplicas, so the pool could never be as warm as asked. Lower minWarm or raise"
            " maxReplicas.",
            field_path=".minWarm",
        ),
        Rule(
            cel="!has(self.maxReplicas) || self.schedules.all(s, s.minWarm <= self.maxReplicas)",
            message="a schedule's minWarm is above maxReplicas, so the pool could never be as warm as asked. Lower that"
            " minWarm or raise maxReplicas.",
            field_path=".schedules",
        ),
    )


class Provisioning(Section, frozen=True, kw_only=True):
    max_concurrent: Annotated[
        int,
        described(
            "How many runners of the fleet may be starting at once. Where pools share a fleet, the lowest wins.",
            minimum=1,
            maximum=1000,
        ),
    ] = 4
    start_timeout_seconds: Annotated[
        int,
        described(
            "How long a runner may take to become warm, or a Pod to be scheduled, before it is replaced. 0 switches"
            " the deadline off.",
            minimum=0,
            maximum=DAY_S,
        ),
    ] = 300


class PodSecurity(StrEnum):
    """How closely a pool's Pods are held to the Pod Security Standards."""

    RESTRICTED = "restricted"
    UNRESTRICTED = "unrestricted"


class Docker(Section, frozen=True, kw_only=True):
    enabled: Annotated[
        bool,
        described(
            "Run a Docker daemon beside the runner. It is privileged, so it is allowed only in Pods that are VMs of"
            " their own: those of a VM runtime class, such as kata-qemu."
        ),
    ] = False
    image: Annotated[
        str,
        described("The image of the Docker daemon.", minLength=1, maxLength=512, pattern=r"^\S+$"),
    ] = "docker:dind"


class RunnerPoolSpec(Section, frozen=True, kw_only=True):
    os: Annotated[
        OperatingSystem,
        described(
            "What the runners run: where they are scheduled and what one unit of capacity is. Cannot change.",
            rules=(
                Rule(
                    cel="self == oldSelf",
                    message="os cannot change: every runner, image and host of this pool belongs to one operating"
                    " system. Create another pool and delete this one.",
                    reason="FieldValueForbidden",
                ),
            ),
        ),
    ] = OperatingSystem.LINUX
    image: Annotated[
        str,
        described(
            "The runner image. Name it by digest (…@sha256:…) so that every runner is the same.",
            minLength=1,
            maxLength=512,
            pattern=r"^\S+$",
        ),
    ]
    fleet: Annotated[
        str,
        described(
            "Which hosts the runners run on: the Nodes labelled remuda.dev/fleet with this value.",
            maxLength=63,
            pattern=DNS_LABEL,
        ),
    ]
    labels: Annotated[
        tuple[
            Annotated[
                str,
                described(
                    "One runs-on label, without commas.",
                    minLength=1,
                    maxLength=128,
                    pattern=RUNNER_LABEL,
                ),
            ],
            ...,
        ],
        described(
            "The runs-on labels that this pool serves. No other pool of the namespace may have the same set.",
            minItems=1,
            maxItems=32,
            list_type="set",
            rules=(
                Rule(
                    cel="self.all(x, self.exists_one(y, x.lowerAscii() == y.lowerAscii()))",
                    message="two labels differ only in upper and lower case, which GitHub takes for the same label."
                    " Remove one of them.",
                ),
            ),
        ),
    ]
    replicas: Annotated[
        int,
        described(
            "How many runners there should be, busy ones included. With autoscaling on, the autoscaler writes it.",
            minimum=0,
            maximum=REPLICAS_MAX,
            format="int32",
        ),
    ] = 1
    resources: Annotated[
        RunnerResources,
        described("The size of each runner."),
    ] = RunnerResources()
    runtime_class_name: Annotated[
        str | UnsetType,
        described(
            "The RuntimeClass of Linux runners that run as Pods on ordinary kubelets, such as kata-qemu.",
            minLength=1,
            maxLength=253,
            pattern=DNS_SUBDOMAIN,
        ),
    ] = UNSET
    pod_security: Annotated[
        PodSecurity,
        described(
            "restricted: the Pods keep to the Pod Security Standard of that name, and a template that breaks it is"
            " refused. unrestricted: the template may ask for anything."
        ),
    ] = PodSecurity.RESTRICTED
    docker: Annotated[
        Docker,
        described("A Docker daemon for the jobs of Linux runners that run as Pods."),
    ] = Docker()
    rollout: Annotated[
        Rollout,
        described("How fast runners are replaced after the image or the template changed."),
    ] = Rollout()
    autoscaling: Annotated[
        Autoscaling,
        described("Whether and how the number of runners follows the jobs that wait."),
    ] = Autoscaling()
    provisioning: Annotated[
        Provisioning,
        described("How many runners may start at once, and how long a start may take."),
    ] = Provisioning()
    idle_timeout_seconds: Annotated[
        int,
        described(
            "How long a runner that took a job config waits to be handed a job before it ends itself. 0 switches this"
            " off.",
            minimum=0,
            maximum=DAY_S,
        ),
    ] = 300
    forks: Annotated[
        Forks,
        described(
            "Whether jobs of pull requests from forks are dispatched to this pool. Their code is written by strangers."
        ),
    ] = Forks.DENY
    template: Annotated[
        dict[str, Any] | UnsetType,
        described(
            "A partial Pod template (metadata and spec) that is merged into each runner's Pod: tolerations, affinity,"
            " env, annotations."
        ),
    ] = UNSET

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.os != 'darwin' || !has(self.runtimeClassName)",
            message="runtimeClassName is for Linux Pods on ordinary kubelets; macOS runners are VMs that the agent"
            " starts. Remove runtimeClassName, or set os to linux.",
            field_path=".runtimeClassName",
            reason="FieldValueForbidden",
        ),
        Rule(
            cel="!self.docker.enabled || has(self.runtimeClassName)",
            message="docker needs a runtimeClassName: its daemon is privileged, and without a VM around the Pod it"
            " would own the host. Set runtimeClassName to a VM runtime class such as kata-qemu, or switch docker off.",
            field_path=".docker.enabled",
            reason="FieldValueForbidden",
        ),
        Rule(
            cel="!self.docker.enabled || self.podSecurity == 'unrestricted'",
            message="docker runs a privileged container, which podSecurity restricted forbids. Set podSecurity to"
            " unrestricted, or switch docker off.",
            field_path=".docker.enabled",
            reason="FieldValueForbidden",
        ),
    )


PROVEN_CHARS_MAX = 64 * 1024
"""A template that takes more is not remembered: a status is written often and watched by many."""


class ProvenTemplate(Part, frozen=True, kw_only=True):
    hash: Annotated[
        str,
        described("The hash of that template, as its runners carry it.", maxLength=63),
    ]
    image: Annotated[
        str,
        described("The image of that template, for people.", maxLength=512),
    ]
    spec: Annotated[
        str,
        described(
            "What of the spec made the runners' Pods, as JSON. A text, because a template may hold nulls, and a merge"
            " patch would take those for removals.",
            maxLength=PROVEN_CHARS_MAX,
        ),
    ]


class RunnerPoolStatus(Part, frozen=True, kw_only=True):
    """Counts are UNSET until the operator has written them once: a 0 is written, never skipped."""

    observed_generation: Annotated[
        int | UnsetType,
        described("The generation of the spec that this status is about.", format="int64"),
    ] = UNSET
    template_hash: Annotated[
        str,
        described("The hash of the Pod template that new runners are made from."),
    ] = ""
    selector: Annotated[
        str,
        described("The label selector of this pool's Pods, for the scale subresource."),
    ] = ""
    replicas: Annotated[
        int | UnsetType,
        described("Runners that exist and are not being deleted.", format="int32"),
    ] = UNSET
    warm: Annotated[
        int | UnsetType,
        described("Idle runners whose guest reported ready."),
    ] = UNSET
    busy: Annotated[
        int | UnsetType,
        described("Runners that hold a job."),
    ] = UNSET
    starting: Annotated[
        int | UnsetType,
        described("Runners that are not warm yet."),
    ] = UNSET
    stale: Annotated[
        int | UnsetType,
        described("Runners made from an older template."),
    ] = UNSET
    rolling: Annotated[
        int | UnsetType,
        described(
            "Runners that count against the roll cap: missing, starting on the current template, or marked."
        ),
    ] = UNSET
    roll_cap: Annotated[
        int | UnsetType,
        described("How many runners the roll may take away at once."),
    ] = UNSET
    roll_waiting_since: Annotated[
        datetime | None,
        described(
            "Since when the roll has waited for a replacement to become warm. Unset while it waits for none."
        ),
    ] = None
    proven_template: Annotated[
        ProvenTemplate | None,
        described(
            "The last template whose runners became warm. While a newer one is on trial, missing runners beyond the"
            " roll's cap are made from it."
        ),
    ] = None
    last_scale_down_at: Annotated[
        datetime | None,
        described("When the autoscaler last lowered spec.replicas."),
    ] = None
    conditions: Annotated[
        tuple[Condition, ...],
        described(
            "Ready, Rolling, Draining, Degraded and LabelsConflict, each with a reason and a sentence.",
            list_type="map",
            list_map_keys=["type"],
        ),
    ] = ()


class RunnerPool(Resource, frozen=True, kw_only=True):
    """A warm pool of single-use runners that all look alike."""

    spec: Annotated[RunnerPoolSpec, described("What the pool should be.")]
    status: Annotated[
        RunnerPoolStatus,
        described("What the operator observed. Written by the operator only."),
    ] = RunnerPoolStatus()

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="size(self.metadata.name) <= 52",
            message="the pool's name is longer than 52 characters: runners are named after their pool, with a suffix,"
            " and a host name has room for 63. Choose a shorter name.",
        ),
    )


RUNNER_POOL = Kind(RunnerPool, "remuda.dev", "v1alpha1", "RunnerPool", "runnerpools")
