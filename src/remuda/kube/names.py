"""The names that cross borders: labels, annotations, finalizers, conditions and resources of our own. Pure text."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

# --- on Pods and ServiceAccounts --------------------------------------------------------------------------------------

RUNNER: Final = "remuda.dev/runner"
"""Label, ``true`` on every Pod and ServiceAccount that the operator makes."""
POOL: Final = "remuda.dev/pool"
"""Label: the pool that a runner belongs to."""
TEMPLATE: Final = "remuda.dev/template"
"""Label: the hash of the Pod template that a runner was made from."""
OWNER: Final = "remuda.dev/owner"
"""Label: the tenant whose job the runner holds. Written by dispatch before it mints; its presence means busy."""
CLAIM: Final = "remuda.dev/claim"
"""Annotation, written with the owner: which claim it is for, so that a late un-stamp takes away nobody else's."""
MARK: Final = "remuda.dev/drain-eligible"
"""Label: the template hash that a roll replaces this runner for. Dispatch answers its next poll with 410."""
MARKED_AT: Final = "remuda.dev/drain-marked-at"
"""Annotation: when the mark was made, written together with it."""
DRAIN: Final = "remuda.dev/drain"
"""Label, ``true``: a person wants this runner to take no job."""
JOB_DELIVERED: Final = "remuda.dev/JobDelivered"
"""Pod condition: the agent handed the job to the guest."""
POLLER: Final = "poller"
"""The init container that waits for a job where no agent does."""
RUNNER_CONTAINER: Final = "runner"

# --- on RunnerPools ---------------------------------------------------------------------------------------------------

POOL_DRAIN: Final = "remuda.dev/pool-drain"
"""Finalizer: holds a deleted pool while its busy runners finish."""

# --- on Nodes ---------------------------------------------------------------------------------------------------------

FLEET: Final = "remuda.dev/fleet"
RUNTIME: Final = "remuda.dev/runtime"
VM_HOST_TAINT: Final = "remuda.dev/vm-host"
VM: Final = "remuda.dev/vm"
"""Extended resource: how many VMs a host may run. Each VM Pod asks for one."""
STARTS_FAILING: Final = "remuda.dev/StartsFailing"
"""Node condition: runners do not start on this host although they do on others; new ones avoid it."""
STAGE: Final = "remuda.dev/stage"
"""Annotation: the images that the host shall fetch although no Pod asks for them yet. Written by the operator."""

VM_CLEANUP: Final = "remuda.dev/vm-cleanup"
"""Pod finalizer of the agent: holds the Pod until its VM is gone."""

AUDIENCE: Final = "remuda-dispatch"
"""Of the tokens that runners show to dispatch."""


def image_digest(image: str) -> str:
    """Return a short name of an image's reference, fit for label keys, files and VMs."""
    return sha256(image.encode()).hexdigest()[:16]


def image_label(image: str) -> str:
    """Return the Node label that says that a host holds this image."""
    return f"remuda.dev/image-{image_digest(image)}"


# --- on Hosts and their Nodes -----------------------------------------------------------------------------------------

HOST_RELEASE: Final = "remuda.dev/host-release"
"""Finalizer: holds a deleted Host until it is drained and its Mac has gone back."""
PAUSED: Final = "remuda.dev/paused"
"""Annotation, ``true`` on a Host: a person works on it. Nothing is done to it until it is deleted."""
RETRY: Final = "remuda.dev/retry"
"""Annotation on a Host: a person has looked. Its failures are forgotten, and the annotation is taken away."""
HOST_KEY: Final = "remuda.dev/accept-host-key"
"""Annotation on a Host: the SSH host key that a person found to be the right one, as ``SHA256:…``. It is pinned."""
HOST_DRAIN: Final = "remuda.dev/host-drain"
"""Annotation on a Node: since when the host operator keeps it from taking Pods. Without it, a cordon is a person's."""
