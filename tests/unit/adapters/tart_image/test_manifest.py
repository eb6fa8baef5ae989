from __future__ import annotations

import json
from typing import Any

import pytest

from remuda.adapters.registry.client import Blob
from remuda.adapters.tart_image import manifest as manifests
from remuda.adapters.tart_image.errors import BadImage
from remuda.adapters.tart_image.manifest import DiskLayer, Origin, TartManifest

A, B, C, D = (f"sha256:{letter * 64}" for letter in "abcd")
WHOLE = TartManifest(
    config=Blob(A, 10),
    nvram=Blob(B, 20),
    disk=(DiskLayer(Blob(C, 30), 0, 512, D), DiskLayer(Blob(D, 5), 512, 100, C)),
    disk_size=612,
)


def changed(**changes: Any) -> bytes:  # noqa: ANN401 - any nonsense that JSON can hold
    body = json.loads(manifests.write(WHOLE, Blob(A, 2), "2026-01-02T03:04:05Z"))
    return json.dumps({**body, **changes}).encode()


def with_layers(change: dict[int, dict[str, Any] | None]) -> bytes:
    layers = json.loads(changed())["layers"]
    kept = [{**layer, **(change.get(n, {}) or {})} for n, layer in enumerate(layers)]
    gone = {n for n, value in change.items() if value is None}
    return changed(layers=[layer for n, layer in enumerate(kept) if n not in gone])


def said(size: object, digest: str = D) -> dict[str, Any]:
    prefix = "org.cirruslabs.tart.uncompressed-"
    return {"annotations": {f"{prefix}size": size, f"{prefix}content-digest": digest}}


def test_what_is_written_is_read_again() -> None:
    assert manifests.read("i", changed()) == WHOLE
    assert WHOLE.download_bytes == 65


def test_the_shape_is_tarts() -> None:
    raw = manifests.write(WHOLE, Blob(A, 2), "2026-01-02T03:04:05Z")
    body = json.loads(raw)
    assert list(body) == sorted(body), "keys are sorted"
    assert body["schemaVersion"] == 2
    assert body["config"]["mediaType"] == "application/vnd.oci.image.config.v1+json"
    assert [layer["mediaType"].rpartition("tart.")[2] for layer in body["layers"]] == [
        "config.v1",
        "disk.v2",
        "disk.v2",
        "nvram.v1",
    ]
    assert body["annotations"] == {
        "org.cirruslabs.tart.uncompressed-disk-size": "612",
        "org.cirruslabs.tart.upload-time": "2026-01-02T03:04:05Z",
    }
    assert body["layers"][1]["annotations"] == {
        "org.cirruslabs.tart.uncompressed-size": "512",
        "org.cirruslabs.tart.uncompressed-content-digest": D,
    }
    about = json.loads(manifests.stub(Origin("arm64", "darwin")))
    assert about["config"]["Labels"] == {"org.cirruslabs.tart.disk.format": "raw"}


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        pytest.param(b"", "cannot be read", id="nothing"),
        pytest.param(b"[" * 100_000, "cannot be read", id="very deep nonsense"),
        pytest.param(b'{"schemaVersion":2}', "cannot be read", id="no layers"),
        pytest.param(changed(layers=[]), "0 layers of type", id="an empty list of layers"),
        pytest.param(with_layers({0: None}), "0 layers", id="no config"),
        pytest.param(with_layers({3: None}), "0 layers", id="no nvram"),
        pytest.param(with_layers({1: None, 2: None}), "no disk", id="no disk"),
        pytest.param(
            with_layers({1: {"mediaType": "application/vnd.cirruslabs.tart.disk.v1"}}),
            "first format",
            id="the old disk format",
        ),
        pytest.param(with_layers({0: {"digest": "sha256:../../x"}}), "digest is", id="a path"),
        pytest.param(
            with_layers({0: {"digest": A.upper()}}), "digest is", id="a digest in capitals"
        ),
        pytest.param(with_layers({0: {"size": -1}}), "cannot be read", id="a negative size"),
        pytest.param(with_layers({0: {"size": 1 << 40}}), "config.v1 is", id="a huge config"),
        pytest.param(with_layers({3: {"size": 1 << 40}}), "nvram.v1 is", id="a huge nvram"),
        pytest.param(with_layers({1: {"annotations": {}}}), "does not say", id="no sizes"),
        pytest.param(with_layers({1: said("0")}), "does not say", id="a layer of nothing"),
        pytest.param(with_layers({1: said(512)}), "cannot be read", id="a number for a text"),
        pytest.param(with_layers({1: said("-5")}), "uncompressed-size is", id="a negative number"),
        pytest.param(with_layers({1: said("٣")}), "uncompressed-size is", id="digits of elsewhere"),
        pytest.param(with_layers({1: said("9" * 5000)}), "uncompressed-size", id="endless digits"),
        pytest.param(with_layers({1: said(str(1 << 40))}), "more than", id="a bomb of one layer"),
        pytest.param(with_layers({1: said("512", "md5:x")}), "does not say", id="another digest"),
        pytest.param(with_layers({1: {"size": 1 << 30}}), "is packed into", id="a layer that grew"),
        pytest.param(
            with_layers({1: said("511")}), "not what it says", id="sizes that do not add up"
        ),
    ],
)
def test_a_manifest_is_refused_for(raw: bytes, why: str) -> None:
    with pytest.raises(BadImage, match=why):
        manifests.read("host/image:1", raw)


def test_more_layers_than_any_disk_has_are_refused() -> None:
    layer = json.loads(changed())["layers"][1]
    with pytest.raises(BadImage, match="cannot be read"):
        manifests.read("i", changed(layers=[layer] * 9000))
