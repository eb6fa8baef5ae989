"""A client that we did not write (lightkube) says the same of both servers: our client could be wrong as ours is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from lightkube import ApiError, AsyncClient, KubeConfig
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.authentication_v1 import TokenRequestSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Pod, ServiceAccountToken
from lightkube.types import CascadeType, PatchType

from tests.support.eventually import within
from tests.support.manifests import a_config_map, a_pod, a_pool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.backends import HttpBackend, RealBackend
    from tests.support.raw import Raw
    from tests.support.space import Space

pytestmark = pytest.mark.parametrize("backend", ["http", "real"], indirect=True)

RunnerPool = create_namespaced_resource("remuda.dev", "v1alpha1", "RunnerPool", "runnerpools")


def name_of(item: ConfigMap) -> str | None:
    return item.metadata.name if item.metadata else None


@pytest_asyncio.fixture(loop_scope="session")
async def oracle(backend: HttpBackend | RealBackend) -> AsyncIterator[AsyncClient]:
    client = AsyncClient(config=KubeConfig.from_file(str(backend.kubeconfig)))
    yield client
    await client.close()


async def test_it_reads_what_we_wrote(oracle: AsyncClient, raw: Raw, space: Space) -> None:
    (await raw.post(space.path("configmaps"), a_config_map("mare", {"colour": "bay"}))).ok()

    mare = await oracle.get(ConfigMap, "mare", namespace=space.name)

    assert mare.data == {"colour": "bay"}


async def test_it_writes_what_we_read(oracle: AsyncClient, raw: Raw, space: Space) -> None:
    mare = ConfigMap(metadata=ObjectMeta(name="mare", namespace=space.name), data={"turn": "0"})
    created = await oracle.create(mare)
    created.data = {"turn": "1"}
    replaced = await oracle.replace(created)
    patched = await oracle.patch(
        ConfigMap, "mare", {"data": {"more": "2"}}, namespace=space.name, patch_type=PatchType.MERGE
    )

    assert (await raw.get(space.path("configmaps", "mare"))).body["data"] == patched.data
    assert patched.data == {"turn": "1", "more": "2"}
    with pytest.raises(ApiError) as refused:
        await oracle.replace(replaced)
    assert refused.value.status.code == 409
    assert refused.value.status.reason == "Conflict"


async def test_it_watches(oracle: AsyncClient, raw: Raw, space: Space) -> None:
    (await raw.post(space.path("configmaps"), a_config_map("mare"))).ok()
    watch = oracle.watch(ConfigMap, namespace=space.name)

    first = await within(anext(aiter(watch)))
    (await raw.delete(space.path("configmaps", "mare"))).ok()
    second = await within(anext(aiter(watch)))

    assert (first[0], name_of(first[1])) == ("ADDED", "mare")
    assert (second[0], name_of(second[1])) == ("DELETED", "mare")


async def test_it_lists_in_pages(oracle: AsyncClient, raw: Raw, space: Space) -> None:
    for number in range(7):
        name, labels = f"m{number}", {"odd": str(number % 2)}
        (await raw.post(space.path("configmaps"), a_config_map(name, labels=labels))).ok()

    found = [
        name_of(item)
        async for item in oracle.list(
            ConfigMap, namespace=space.name, labels={"odd": "1"}, chunk_size=2
        )
    ]

    assert found == ["m1", "m3", "m5"]


async def test_it_uses_subresources(oracle: AsyncClient, raw: Raw, space: Space) -> None:
    (await raw.post(space.path("serviceaccounts"), {"metadata": {"name": "mare"}})).ok()
    (await raw.post(space.path("pods"), a_pod("mare"))).ok()
    (await raw.post(space.path("runnerpools"), a_pool("mac"))).ok()

    pool = await oracle.get(RunnerPool, "mac", namespace=space.name)
    token = await oracle.create(
        ServiceAccountToken(
            metadata=ObjectMeta(), spec=TokenRequestSpec(audiences=["remuda-dispatch"])
        ),
        "mare",
        namespace=space.name,
    )
    await oracle.delete(Pod, "mare", namespace=space.name, cascade=CascadeType.FOREGROUND)

    assert pool.spec["replicas"] == 1
    assert token.status is not None
    assert (token.status.token or "").count(".") == 2
