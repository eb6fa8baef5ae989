"""The permissions that dispatch checks for, and those of its manifest."""

from __future__ import annotations

from pathlib import Path

from remuda.dispatch.permissions import rights
from remuda.dispatch.settings import DispatchSettings
from tests.support.rights import granted, unbound_roles, wanted

MANIFEST = Path(__file__).resolve().parents[3] / "docs/howto/server-rbac.yaml"


def test_the_manifest_grants_what_dispatch_needs_and_nothing_more() -> None:
    assert granted(MANIFEST) == wanted(rights(DispatchSettings(namespace="remuda")).needs)


def test_every_role_of_the_manifest_is_bound_to_the_service_account() -> None:
    assert unbound_roles(MANIFEST, "remuda-server") == set()
