"""What the manifests of our roles grant, to be held against what a process says that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from remuda.control.permissions import Need

Grant = tuple[str, str, str, str]
Role = tuple[str, str, str | None]


def granted(manifest: Path) -> list[Grant]:
    """Return each verb, group, resource and namespace of the manifest's roles, in order."""
    roles = [r for r in yaml.safe_load_all(manifest.read_text()) if r["kind"].endswith("Role")]
    return sorted(
        (verb, group, resource, role["metadata"].get("namespace", ""))
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


def wanted(needs: Iterable[Need]) -> list[Grant]:
    return sorted(
        (
            need.verb,
            need.kind.group,
            f"{need.kind.plural}/{need.subresource}" if need.subresource else need.kind.plural,
            need.namespace,
        )
        for need in needs
    )


def unbound_roles(manifest: Path, account: str) -> set[Role]:
    """Return the roles that are not bound to exactly this ServiceAccount, and bindings of roles that are not there."""
    objects = list(yaml.safe_load_all(manifest.read_text()))
    whom = [{"kind": "ServiceAccount", "name": account, "namespace": "remuda"}]
    bound = {
        (o["roleRef"]["kind"], o["roleRef"]["name"], o["metadata"].get("namespace"))
        for o in objects
        if o["kind"].endswith("Binding") and o["subjects"] == whom
    }
    roles = {
        (o["kind"], o["metadata"]["name"], o["metadata"].get("namespace"))
        for o in objects
        if o["kind"].endswith("Role")
    }
    return bound ^ roles
