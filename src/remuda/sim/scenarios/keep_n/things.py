"""The nouns of the story, as ConfigMaps, and the names they go by."""

from __future__ import annotations

from remuda.kube.kinds import Kind
from remuda.kube.meta import ObjectMeta, OwnerReference, Resource

NAMESPACE = "ranch"
LEASE = "herd-controller"
HERD_LABEL = "sim.remuda.dev/herd"
HORSE_LABEL = "sim.remuda.dev/horse-of"


class ConfigMap(Resource, frozen=True):
    data: dict[str, str] = {}  # noqa: RUF012 - msgspec copies an empty mutable default for each new struct

    @property
    def brand(self) -> str:
        return self.data.get("brand", "")

    @property
    def copies(self) -> int:
        return int(self.data.get("copies", "0"))

    @property
    def rider(self) -> str:
        return self.data.get("rider", "")


CONFIG_MAP = Kind(ConfigMap, "", "v1", "ConfigMap", "configmaps")


def a_herd(name: str, *, copies: int, brand: str) -> ConfigMap:
    meta = ObjectMeta(name=name, namespace=NAMESPACE, labels={HERD_LABEL: name})
    return ConfigMap(metadata=meta, data={"copies": str(copies), "brand": brand})


def a_horse(herd: ConfigMap, name: str, *, brand: str) -> ConfigMap:
    owner = OwnerReference(
        api_version="v1", kind="ConfigMap", name=herd.name, uid=herd.uid, controller=True
    )
    meta = ObjectMeta(
        name=name,
        namespace=NAMESPACE,
        labels={HORSE_LABEL: herd.name},
        owner_references=(owner,),
    )
    return ConfigMap(metadata=meta, data={"brand": brand})
