"""The Host resource: a machine that runs runner VMs (or builds their images), and how far its bootstrap is."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec resolves annotations at run time
from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import UNSET, UnsetType

from remuda.kube.fields import DNS_LABEL, DNS_SUBDOMAIN, MEMORY, QUANTITY, Rule, Section, described
from remuda.kube.kinds import Kind
from remuda.kube.meta import Condition, Part, Resource
from remuda.kube.runner_pool import RUNNER_LABEL

NAME_MAX = 63


class Role(StrEnum):
    """What a host is for."""

    RUNNER = "runner"
    BUILDER = "builder"


class SecretRef(Section, frozen=True, kw_only=True):
    name: Annotated[
        str,
        described(
            "The Secret's name, in the Host's own namespace.",
            minLength=1,
            maxLength=253,
            pattern=DNS_SUBDOMAIN,
        ),
    ]
    key: Annotated[
        str,
        described(
            "The key inside the Secret.", minLength=1, maxLength=253, pattern=r"^[-._a-zA-Z0-9]+$"
        ),
    ]


class StaticProvider(Section, frozen=True, kw_only=True):
    address: Annotated[
        str,
        described(
            "Where SSH reaches the host: an IP address or a DNS name.", minLength=1, maxLength=253
        ),
    ]
    port: Annotated[int, described("The SSH port.", minimum=1, maximum=65535)] = 22


class ScalewayProvider(Section, frozen=True, kw_only=True):
    zone: Annotated[
        str,
        described(
            "The Scaleway zone, such as fr-par-1.",
            maxLength=NAME_MAX,
            pattern=r"^[a-z]+-[a-z]+-[0-9]+$",
        ),
    ]
    type: Annotated[
        str,
        described(
            "The server type, such as M2-M.", minLength=1, maxLength=NAME_MAX, pattern=r"^\S+$"
        ),
    ]
    os: Annotated[
        str,
        described(
            "The macOS release family that the Mac has, such as Sequoia. A Mac that goes back is installed with the"
            " newest image of it.",
            minLength=1,
            maxLength=128,
            pattern=r"^([A-Za-z]+|[0-9]+)$",
        ),
    ]
    adopt_prefix: Annotated[
        str | UnsetType,
        described(
            "Take a Mac whose name begins with this: that is the pool of Macs that were ordered and serve nobody, and"
            " where they go back to. Nothing is ever ordered or cancelled. Left out, no Mac is taken.",
            minLength=1,
            maxLength=NAME_MAX,
        ),
    ] = UNSET


class Provider(Section, frozen=True, kw_only=True):
    static: Annotated[
        StaticProvider | UnsetType,
        described("A machine that exists already and is only prepared."),
    ] = UNSET
    scaleway: Annotated[
        ScalewayProvider | UnsetType,
        described(
            "A Mac mini rented from Scaleway (Apple silicon as a service): one that was ordered before, taken from the"
            " pool and returned to it."
        ),
    ] = UNSET

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="[has(self.static), has(self.scaleway)].filter(given, given).size() == 1",
            message="a host comes from exactly one provider. Set either static or scaleway.",
        ),
        Rule(
            cel="has(self.static) == has(oldSelf.static)",
            message="the provider cannot change: this machine would be forgotten, not moved. Delete the Host and create"
            " another.",
            reason="FieldValueForbidden",
        ),
    )


class Ssh(Section, frozen=True, kw_only=True):
    user: Annotated[
        str,
        described(
            "The account to log in with.", minLength=1, maxLength=32, pattern=r"^[a-z_][-a-z0-9_]*$"
        ),
    ]
    key_secret_ref: Annotated[
        SecretRef | UnsetType,
        described("The private key to log in with."),
    ] = UNSET
    password_secret_ref: Annotated[
        SecretRef | UnsetType,
        described(
            "The account's password: for sudo, for the first login, and for the Mac's automatic login."
        ),
    ] = UNSET

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.keySecretRef) || has(self.passwordSecretRef)",
            message="there is nothing to log in with. Set keySecretRef, passwordSecretRef, or both.",
            reason="FieldValueRequired",
        ),
    )


class HostCapacity(Section, frozen=True, kw_only=True):
    cpu: Annotated[
        int | str | UnsetType,
        described(
            "CPUs that runners may use. Left out, the agent offers what it finds.",
            minimum=1,
            maxLength=20,
            pattern=QUANTITY,
        ),
    ] = UNSET
    memory: Annotated[
        str | UnsetType,
        described(
            "Memory that runners may use, with a unit, such as 14Gi. Left out, the agent offers what it finds.",
            maxLength=20,
            pattern=MEMORY,
        ),
    ] = UNSET
    vms: Annotated[
        int,
        described(
            "VMs that may run at once. The macOS licence allows two on one Mac.",
            minimum=0,
            maximum=256,
        ),
    ] = 2


class Builder(Section, frozen=True, kw_only=True):
    github_org: Annotated[
        str,
        described(
            "The GitHub organisation whose image builds run here.",
            maxLength=39,
            pattern=r"^[A-Za-z0-9](-?[A-Za-z0-9])*$",
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
        described("The runs-on labels of the builder.", minItems=1, maxItems=32, list_type="set"),
    ]
    runner_version: Annotated[
        str,
        described(
            "The version of GitHub's runner to install, such as 2.330.0.",
            pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$",
        ),
    ]
    app_secret_ref: Annotated[
        SecretRef,
        described(
            "The GitHub App as which the builder is registered: a Secret with the App's private key (PEM) under the key"
            " that is named here, and beside it, under app-id and installation-id, the App's id and the number of its"
            " installation in the organisation. It needs the organisation permission 'Self-hosted runners: write'."
        ),
    ]


class HostSpec(Section, frozen=True, kw_only=True):
    provider: Annotated[
        Provider, described("Where the machine comes from: exactly one of static and scaleway.")
    ]
    ssh: Annotated[Ssh, described("How the host operator logs in.")]
    fleet: Annotated[
        str,
        described(
            "The capacity domain of this host; its Node gets the label remuda.dev/fleet with this value.",
            maxLength=NAME_MAX,
            pattern=DNS_LABEL,
        ),
    ]
    role: Annotated[Role, described("Whether the host runs jobs or builds runner images.")] = (
        Role.RUNNER
    )
    capacity: Annotated[HostCapacity, described("What the host offers to runners.")] = (
        HostCapacity()
    )
    builder: Annotated[
        Builder | UnsetType,
        described("How an image builder is set up. Required for the role builder, and only there."),
    ] = UNSET

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.role != 'builder' || has(self.builder)",
            message="a host of the role builder needs to know what it builds for. Set spec.builder, or set role to"
            " runner.",
            field_path=".builder",
            reason="FieldValueRequired",
        ),
        Rule(
            cel="self.role == 'builder' || !has(self.builder)",
            message="spec.builder has no effect on a runner host. Remove it, or set role to builder.",
            field_path=".builder",
            reason="FieldValueForbidden",
        ),
    )


class HostStatus(Part, frozen=True, kw_only=True):
    phase: Annotated[
        str, described("How far the host is, in one word: Ready, or what it waits for.")
    ] = ""
    address: Annotated[str, described("The address in use.")] = ""
    host_key_fingerprint: Annotated[
        str,
        described("The SSH host key that was seen first. Another key is refused."),
    ] = ""
    machine_id: Annotated[
        str, described("The provider's id of the Mac that was taken. Empty for a static host.")
    ] = ""
    config_hash: Annotated[
        str,
        described("The configuration that was applied in full, and found in place afterwards."),
    ] = ""
    observed_generation: Annotated[
        int,
        described(
            "The generation of the spec that was found in place. At another one, all of the host is looked at again;"
            " 0 means that a person asked for that.",
            format="int64",
        ),
    ] = 0
    converged_at: Annotated[
        datetime | None, described("When that was found in place, at the last change.")
    ] = None
    identity_renew_at: Annotated[
        datetime | None, described("When the agent's credential on the host is to be replaced.")
    ] = None
    failed_config_hash: Annotated[
        str,
        described(
            "The configuration that could not be applied. After the last attempt it is tried again only now and then,"
            " or when it changes."
        ),
    ] = ""
    failed_at: Annotated[datetime | None, described("When that failed last.")] = None
    reached_config_hash: Annotated[
        str,
        described(
            "The configuration with which the host was last logged in to. What fails before a login is no fault of a"
            " configuration, and halts no roll."
        ),
    ] = ""
    rebooted: Annotated[
        bool, described("Whether a reboot was tried since the host was last as it should be.")
    ] = False
    attempts: Annotated[
        int | UnsetType,
        described("How often the current configuration was tried without success."),
    ] = UNSET
    conditions: Annotated[
        tuple[Condition, ...],
        described("Each with a reason and a sentence.", list_type="map", list_map_keys=["type"]),
    ] = ()


class Host(Resource, frozen=True, kw_only=True):
    """A machine that runs runner VMs, or builds their images."""

    spec: Annotated[HostSpec, described("What the host should be.")]
    status: Annotated[
        HostStatus,
        described("What the host operator observed. Written by the operator only."),
    ] = HostStatus()

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="size(self.metadata.name) <= 63",
            message="the host's name is longer than 63 characters, and its Node carries it as a label. Choose a shorter"
            " name.",
        ),
    )


HOST = Kind(Host, "remuda.dev", "v1alpha1", "Host", "hosts")
