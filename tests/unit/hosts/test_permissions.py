"""The permissions that the host operator checks for, and those of the manifest."""

from __future__ import annotations

from pathlib import Path

import yaml

from remuda.hosts.permissions import rights
from remuda.hosts.settings import HostSettings
from remuda.kube.certificates import NODE_SIGNER
from tests.support.rights import granted, unbound_roles, wanted

MANIFEST = Path(__file__).resolve().parents[3] / "docs/howto/hosts-rbac.yaml"
SETTINGS = HostSettings(namespace="remuda", identity="one")
APPROVE = ("approve", "certificates.k8s.io", "signers", "")
"""Given for one name only, so the API server cannot be asked for it in general."""


def test_the_manifest_grants_what_the_operator_needs_and_nothing_more() -> None:
    assert granted(MANIFEST) == sorted([*wanted(rights(SETTINGS).needs), APPROVE])


def test_it_may_approve_credentials_of_nodes_only() -> None:
    rules = [
        rule
        for role in yaml.safe_load_all(MANIFEST.read_text())
        for rule in role.get("rules", ())
        if rule["resources"] == ["signers"]
    ]

    assert [rule["resourceNames"] for rule in rules] == [[NODE_SIGNER]]


def test_every_role_of_the_manifest_is_bound_to_the_service_account() -> None:
    assert unbound_roles(MANIFEST, "remuda-hosts") == set()


def test_without_the_clusters_signer_no_right_to_it_is_asked_for() -> None:
    asked = {need.kind.plural for need in rights(SETTINGS, signs=False).needs}

    assert "certificatesigningrequests" not in asked
