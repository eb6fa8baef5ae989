from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from remuda.adapters.kube_client.connection import Connection, Credential, explicit
from remuda.adapters.kube_client.credentials import FromPlugin
from remuda.adapters.kube_client.kubeconfig import discover, in_cluster, load
from remuda.model.errors import BadInput
from remuda.ports.kube import Refused
from tests.support.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "s3cret-s3cret-s3cret"  # noqa: S105 - it must not show anywhere


def a_config(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - YAML
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443"}}],
        "users": [{"name": "u", "user": {"token": SECRET}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    }
    return config | changes


def with_user(**user: Any) -> dict[str, Any]:  # noqa: ANN401 - YAML
    return a_config(users=[{"name": "u", "user": user}])


def with_cluster(**cluster: Any) -> dict[str, Any]:  # noqa: ANN401 - YAML
    cluster = {"server": "https://10.0.0.1:6443"} | cluster
    return a_config(clusters=[{"name": "c", "cluster": cluster}])


def written(folder: Path, config: object, name: str = "config") -> Path:
    file = folder / name
    file.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
    return file


async def credential(connection: Connection) -> Credential:
    return await connection.credentials.current()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# --- What is understood -------------------------------------------------------------------------


async def test_the_current_context_is_followed_and_another_can_be_named(tmp_path: Path) -> None:
    contexts = [
        {"name": "here", "context": {"cluster": "c", "user": "u"}},
        {"name": "there", "context": {"cluster": "d", "user": "v", "namespace": "ci"}},
    ]
    clusters = [
        {"name": "c", "cluster": {"server": "https://c:1"}},
        {"name": "d", "cluster": {"server": "https://d:2", "insecure-skip-tls-verify": True}},
    ]
    users = [{"name": "u", "user": {"token": "1"}}, {"name": "v", "user": {"token": "2"}}]
    file = written(tmp_path, a_config(contexts=contexts, clusters=clusters, users=users))

    here, there = load(file), load(file, "there")
    assert (here.server, here.namespace, here.insecure) == ("https://c:1", "default", False)
    assert (there.server, there.namespace, there.insecure) == ("https://d:2", "ci", True)
    assert ((await credential(here)).token, (await credential(there)).token) == ("1", "2")


async def test_of_several_files_the_first_that_says_something_counts(tmp_path: Path) -> None:
    first = written(
        tmp_path, {"current-context": "here", "users": [{"name": "u", "user": {"token": "1"}}]}, "a"
    )
    second = written(tmp_path, a_config(**{"current-context": "nowhere"}), "b")
    third = written(tmp_path, with_cluster(server="https://elsewhere:1"), "c")
    env = {"KUBECONFIG": f"{first}:{tmp_path / 'missing'}::{second}:{third}"}

    connection = load(env=env)
    assert connection.server == "https://10.0.0.1:6443"
    assert (await credential(connection)).token == "1"  # noqa: S105 - see above


async def test_the_file_at_home_is_the_last_resort(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    written(tmp_path / ".kube", a_config())

    assert load(env={"HOME": str(tmp_path)}).server == "https://10.0.0.1:6443"


async def test_certificates_stand_in_the_file_or_beside_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    pair = authority.client("me")
    ca_pem, certificate, key = (
        f.read_bytes() for f in (authority.file, pair.certificate, pair.key)
    )
    inside = with_cluster(**{"certificate-authority-data": b64(ca_pem), "tls-server-name": "x"}) | {
        "users": with_user(**{"client-certificate-data": b64(certificate), "client-key-data": b64(key)})["users"]
    }  # fmt: skip
    beside = with_cluster(**{"certificate-authority": "pki/ca.crt"}) | {
        "users": with_user(**{"client-certificate": "pki/me.crt", "client-key": "pki/me.key"})["users"]
    }  # fmt: skip

    for name, config in (("inside", inside), ("beside", beside)):
        connection = load(written(tmp_path, config, name))
        assert connection.ca_pem == ca_pem
        assert await credential(connection) == Credential(certificate_pem=certificate, key_pem=key)
        assert connection.tls(await credential(connection)) is not None
    assert load(tmp_path / "inside").tls_server_name == "x"


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    pair = Authority(tmp_path / "pki").client("me")
    key = load_pem_private_key(pair.key.read_bytes(), None)
    pair.key.write_bytes(
        key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(SECRET.encode())
        )
    )
    config = with_user(**{"client-certificate": "pki/me.crt", "client-key": "pki/me.key"})

    with pytest.raises(BadInput, match="The client certificate cannot be used"):
        load(written(tmp_path, config))


async def test_a_client_certificate_that_is_rewritten_is_read_again(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    old, new = authority.client("old"), authority.client("new")
    config = with_user(**{"client-certificate": "old.crt", "client-key": "old.key"})
    connection = load(written(tmp_path, config))
    assert (await credential(connection)).certificate_pem == old.certificate.read_bytes()

    for mine, newer in ((old.certificate, new.certificate), (old.key, new.key)):
        newer.rename(mine)
    assert (await credential(connection)).certificate_pem == old.certificate.read_bytes()
    assert b"BEGIN CERTIFICATE" in (await credential(connection)).certificate_pem


async def test_a_token_file_counts_more_than_the_token_beside_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from the file\n")
    connection = load(written(tmp_path, with_user(token=SECRET, tokenFile="token")))

    assert (await credential(connection)).token == "from the file"  # noqa: S105 - see above
    (tmp_path / "token").write_text("")
    with pytest.raises(Refused, match="the file is empty"):
        await credential(connection)
    (tmp_path / "token").unlink()
    with pytest.raises(Refused, match="No such file"):
        await credential(connection)


def test_a_plugin_is_found_beside_the_file_or_in_the_path(tmp_path: Path) -> None:
    for command in ("./bin/plugin", "plugin"):
        user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": command}}
        connection = load(written(tmp_path, with_user(**user)))
        assert isinstance(connection.credentials, FromPlugin)


def test_empty_sections_are_no_entries(tmp_path: Path) -> None:
    config = a_config(preferences={}, extensions=None)
    config["contexts"] = [{"name": "here", "context": {"cluster": "c", "user": None}}]
    config["users"] = None

    assert load(written(tmp_path, config)).server


def test_a_pod_knows_its_cluster(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "token").write_text(SECRET)
    (tmp_path / "namespace").write_text("ci\n")
    env = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}

    connection = in_cluster(env=env, folder=tmp_path)
    assert connection.server == "https://[fd00::1]:443"
    assert connection.namespace == "ci"
    assert connection.ca_pem == authority.file.read_bytes()
    (tmp_path / "token").unlink()
    with pytest.raises(BadInput, match="token cannot be read"):
        in_cluster(env=env, folder=tmp_path)
    with pytest.raises(BadInput, match="this is not a Pod"):
        in_cluster(env={}, folder=tmp_path)


def test_discovery_prefers_what_was_asked_for(tmp_path: Path) -> None:
    file = written(tmp_path, a_config())
    in_pod = {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1", "HOME": str(tmp_path)}

    assert discover(file, env=in_pod).server == "https://10.0.0.1:6443"
    assert discover(env=in_pod | {"KUBECONFIG": str(file)}).server == "https://10.0.0.1:6443"
    with pytest.raises(BadInput, match="Pod's own credential"):  # a Pod's files are not here
        discover(env=in_pod)
    with pytest.raises(BadInput, match="There is no kubeconfig"):
        discover(env={"HOME": str(tmp_path)})


# --- What is refused ----------------------------------------------------------------------------

NO_CONTEXT = a_config(**{"current-context": ""})
LOST_CLUSTER = a_config(contexts=[{"name": "here", "context": {"cluster": "x", "user": "u"}}])
LOST_USER = a_config(contexts=[{"name": "here", "context": {"cluster": "c", "user": "x"}}])
PLUGIN = {"command": "p", "apiVersion": "client.authentication.k8s.io/v1"}


@pytest.mark.parametrize(
    ("config", "says"),
    [
        pytest.param("{a: [", "it is not YAML in line 1", id="not YAML"),
        pytest.param(f"users: [{{user: {{token: '{SECRET}]", "it is not YAML", id="a broken token line"),
        pytest.param("just text", "Expected `object`", id="no mapping"),
        pytest.param("users: 2026-99-99", "it is not YAML", id="a date that is none"),
        pytest.param("[" * 5000, "it is not YAML", id="nested beyond reason"),
        pytest.param("a: &a [*a]", "it is not YAML", id="nested in itself"),
        pytest.param(
            with_cluster(**{"certificate-authority": "a\0b"}), "embedded null", id="no path at all"
        ),
        pytest.param(with_user(tokenFile="~nobody-here/t"), "does not exist", id="nobody's home"),
        pytest.param(a_config(clusters="c"), "at `$.clusters`", id="a wrong type"),
        pytest.param(with_user(token=5), "Expected `str`, got `int`", id="a number as token"),
        pytest.param(NO_CONTEXT, "no current-context. Name one: here", id="no context"),
        pytest.param("", "there are no contexts in it", id="an empty file"),
        pytest.param(LOST_CLUSTER, "no cluster.* named 'x': there are c", id="no such cluster"),
        pytest.param(LOST_USER, "no user.* named 'x': there are u", id="no such user"),
        pytest.param(with_cluster(server=""), "it has no server", id="no server"),
        pytest.param(with_cluster(server="10.0.0.1"), "not a URL with a host", id="half an address"),
        pytest.param(with_cluster(server="https://h:99999"), "not a URL", id="a wrong port"),
        pytest.param(with_cluster(**{"proxy-url": "socks5://h:1"}), "proxy address", id="socks"),
        pytest.param(
            with_cluster(**{"certificate-authority": "no.crt"}), "no.crt: No such file", id="no CA file"
        ),
        pytest.param(
            with_cluster(**{"certificate-authority-data": "!"}), "-data is not base64", id="no base64"
        ),
        pytest.param(
            with_cluster(**{"certificate-authority-data": b64(b"x")}), "it is not PEM", id="no CA"
        ),
        pytest.param(
            with_user(**{"client-key-data": b64(SECRET.encode())}), "needs its key", id="half a pair"
        ),
        pytest.param(
            with_user(**{"client-key-data": b64(SECRET.encode()), "client-certificate-data": b64(b"x")}),
            "client certificate cannot be used",
            id="no pair",
        ),
        pytest.param(with_user(tokenFile="no"), "no does not exist", id="no token file"),
        pytest.param(
            with_user(**{"auth-provider": {"name": "gcp"}}), "Use an exec plugin", id="auth-provider"
        ),
        pytest.param(
            with_user(username="me", password=SECRET), "passwords were removed", id="a password"
        ),
        pytest.param(with_user(token=SECRET, **{"as": "you"}), "as another user", id="as another"),
        pytest.param(
            with_user(exec=PLUGIN | {"apiVersion": "v1alpha1"}), "speaks v1alpha1", id="old plugin"
        ),
        pytest.param(
            with_user(exec=PLUGIN | {"interactiveMode": "Always"}), "needs a terminal", id="terminal"
        ),
        pytest.param(with_user(exec={"apiVersion": "x"}), "field `command`", id="no command"),
    ],
)  # fmt: skip
def test_every_fault_says_what_why_and_what_to_do(
    tmp_path: Path, config: object, says: str
) -> None:
    with pytest.raises(BadInput, match=says.replace("$", r"\$")) as caught:
        load(written(tmp_path, config))
    assert SECRET not in str(caught.value)
    assert caught.value.fix


def test_a_context_that_does_not_exist_is_answered_with_those_that_do(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="named 'there': there are here"):
        load(written(tmp_path, a_config()), "there")


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file or directory"):
        load(tmp_path / "missing")
    with pytest.raises(BadInput, match="KUBECONFIG"):
        load(env={"KUBECONFIG": str(tmp_path / "missing")})


async def test_secrets_show_in_no_repr(tmp_path: Path) -> None:
    connection = load(written(tmp_path, with_user(token=SECRET)))

    assert (await credential(connection)).token == SECRET
    assert SECRET not in repr(connection) + repr(await credential(connection))
    assert SECRET not in repr(connection.credentials)


@pytest.mark.parametrize("scheme", ["ftp", "https"])
def test_a_password_in_an_address_is_refused_and_not_repeated(scheme: str) -> None:
    with pytest.raises(BadInput) as caught:
        explicit(f"{scheme}://me:{SECRET}@host")
    assert SECRET not in str(caught.value)
    proxied = Connection(server="https://host", proxy_url=f"http://me:{SECRET}@proxy:3128")
    assert SECRET not in repr(proxied)
