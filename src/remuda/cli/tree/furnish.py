"""
Puts into a control plane what a fleet of one machine needs, if it is not there: kinds, identities, a pool, a token.

Each step is safe to repeat, and leaves alone what a person may have changed.
"""

from __future__ import annotations

import json
import os
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from remuda.adapters.kube_client import HttpWire, KubeClient, kubeconfig
from remuda.adapters.postgres.api_tokens import PostgresApiTokens
from remuda.adapters.postgres.embedded import running_dsn
from remuda.adapters.postgres.home import Home, check_data
from remuda.adapters.postgres.pool import DatabaseSettings, open_database
from remuda.cli.tree.decide.pool import pool_manifest
from remuda.cli.tree.folder import usable, write_whole
from remuda.cli.tree.parts import CONTROL_PLANE, NAMESPACE
from remuda.dispatch import tokens
from remuda.kube import crd
from remuda.kube.core import SERVICE_ACCOUNT, ServiceAccount
from remuda.kube.kinds import Kind
from remuda.kube.meta import ObjectMeta, Resource
from remuda.kube.names import AUDIENCE
from remuda.kube.patches import MergePatch
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.model.errors import RemudaError
from remuda.ports.api_tokens import Role
from remuda.ports.kube import AlreadyExists, Manifest, NotFound
from remuda.standalone.journal import LOCK_NAME
from remuda.standalone.pki import load_or_create, write_kubeconfig, write_node_kubeconfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from remuda.cli.tree.decide.pool import PoolWish
    from remuda.cli.tree.folder import Folder
    from remuda.cli.tree.parts import Layout
    from remuda.ports.clock import Clock
    from remuda.ports.ids import Ids
    from remuda.ports.kube import Kube

ACCOUNT: Final = "remuda-controller"
TOKEN_LIFE_S: Final = 24 * 3600
"""Of the operator's token. It is replaced every hour; a machine that slept for a day gets another at once."""
KUBECONFIG: Final = "kubeconfig"
_POOL_TRIES: Final = 40
_POOL_PAUSE_S: Final = 0.25


class _Definition(Resource, frozen=True):
    """A CustomResourceDefinition, of which nothing is read."""


_DEFINITION: Final = Kind(
    _Definition,
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
)


class NoDatabase(RemudaError):
    """Dispatch is up, and its database is not to be found."""


@asynccontextmanager
async def administrator(folder: Folder) -> AsyncIterator[Kube]:
    """Talk to the control plane as its administrator, for as long as the block lasts."""
    wire = HttpWire(kubeconfig.load(folder.home.kubeconfig))
    try:
        yield KubeClient(wire)
    finally:
        await wire.close()


def check_database(folder: Folder, env: Mapping[str, str]) -> None:
    """Refuse a database that cannot be used before anything starts. EmbeddedRefused says what is wrong with it."""
    if DatabaseSettings.from_env(env) is None:
        check_data(Home(folder.postgres))


def make_identities(layout: Layout, clock: Clock, ids: Ids) -> None:
    """
    Make the authority and what is signed by it, as the control plane would: so nobody has to wait for that one.

    Call it only while no control plane runs. BadInput if what is there cannot be used.
    """
    folder = layout.folder
    folder.control_plane.mkdir(mode=0o700, exist_ok=True)
    (folder.control_plane / LOCK_NAME).touch(
        mode=0o600
    )  # first: by that it knows its own directory
    pki = load_or_create(folder.pki, clock, ids)
    write_kubeconfig(folder.control_plane / KUBECONFIG, layout.url(CONTROL_PLANE), pki)
    show_kubeconfig(layout)


def show_kubeconfig(layout: Layout) -> None:
    """Let the kubeconfig be found in the data folder itself: a link, so that it is never an old one."""
    link = layout.folder.home.kubeconfig
    target = layout.folder.control_plane.relative_to(layout.folder.root) / KUBECONFIG
    if not link.is_symlink() or link.readlink() != target:
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def give_node_identity(layout: Layout, clock: Clock) -> None:
    """Write the agent's kubeconfig."""
    folder, node = layout.folder, layout.kept.node
    write_node_kubeconfig(
        folder.node_kubeconfig, layout.url(CONTROL_PLANE), folder.pki, node, clock
    )


async def give_controller_token(kube: Kube, layout: Layout) -> None:
    """Write the token that the operator shows to dispatch."""
    account = ServiceAccount(metadata=ObjectMeta(name=ACCOUNT, namespace=NAMESPACE))
    with suppress(AlreadyExists):
        await kube.create(SERVICE_ACCOUNT, account)
    token = await kube.request_token(
        ACCOUNT, namespace=NAMESPACE, audience=AUDIENCE, expiration_s=TOKEN_LIFE_S
    )
    with usable(layout.folder.root):
        write_whole(layout.folder.controller_token, token.text.encode())


async def apply_kinds(kube: Kube) -> None:
    """Make our kinds known, in the version of this program."""
    for manifest in crd.manifests():
        try:
            await kube.create(_DEFINITION, Manifest(_json(manifest)))
        except AlreadyExists:
            name = str(manifest["metadata"]["name"])
            await kube.patch(_DEFINITION, name, MergePatch({"spec": manifest["spec"]}))


async def make_pool(kube: Kube, wish: PoolWish, clock: Clock) -> bool:
    """Make the default pool unless there is one of that name; True: it was made. One that is there is a person's."""
    manifest = Manifest(_json(pool_manifest(wish)), wish.namespace)
    for left in reversed(range(_POOL_TRIES)):
        try:
            await kube.create(RUNNER_POOL, manifest)
        except AlreadyExists:
            return False
        except NotFound:  # a kind is served a moment after it was made known
            if not left:
                raise
            await clock.sleep(_POOL_PAUSE_S)
        else:
            return True
    raise AssertionError("the last try either returns or raises")


async def pool_keeps(kube: Kube, wish: PoolWish, image: str) -> str:
    """Say, of a pool that was there, that it is not of the image that the person named; nothing: it is."""
    pool = await kube.get(RUNNER_POOL, wish.name, namespace=wish.namespace)
    if image in {"", pool.spec.image}:
        return ""
    return (
        f"The pool {wish.name} was there already and keeps its image {pool.spec.image}: --image {image} is for a pool"
        " that is made. To change it, edit the image of the pool"
    )


async def ensure_api_token(layout: Layout, clock: Clock, ids: Ids) -> None:
    """See that the token file holds a token that dispatch knows; else make one that may do everything."""
    settings = DatabaseSettings.from_env(os.environ) or _embedded(layout)
    file = layout.folder.home.token_file
    async with open_database(settings) as database:
        kept = PostgresApiTokens(database, clock)
        with usable(layout.folder.root):
            text = file.read_text(errors="replace").strip() if file.is_file() else ""
        if text and await kept.find(tokens.digest_of(text)) is not None:
            return
        name = f"remuda-up-{ids.suffix(8)}"
        made = await tokens.create(kept, name, Role.OPERATE, ids=ids, clock=clock)
        with usable(layout.folder.root):
            write_whole(file, made.text.encode())


def _embedded(layout: Layout) -> DatabaseSettings:
    url = running_dsn(layout.folder.postgres)
    if url is None:
        raise NoDatabase(
            "The token of the API was not made",
            why=f"no PostgreSQL answers in {layout.folder.postgres}",
            fix=f"See the log of the server, {layout.folder.log('server')}",
        )
    return DatabaseSettings(url=url, connections_min=1, connections_max=1)


def _json(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest).encode()
