"""What a ServiceAccount token proves, and when it stops to."""

from __future__ import annotations

import base64
import json
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import jwt
import pytest

from remuda.standalone.errors import StatusError
from remuda.standalone.tokens import Tokens, new_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.standalone.objects import Obj

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
KEY = new_key(b"a" * 32)
ISSUER = "https://kubernetes.default.svc"


@dataclass
class StoppedClock:
    time: datetime = NOON

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()

    async def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class CountingIds:
    def __init__(self) -> None:
        self._numbers = count(1)

    def uid(self) -> str:
        return f"uid-{next(self._numbers)}"

    def suffix(self, length: int = 5) -> str:
        return str(next(self._numbers)).zfill(length)

    def secret(self, length_bytes: int = 32) -> bytes:
        return bytes(length_bytes)

    def fraction(self) -> float:
        return 0.5


@dataclass
class World:
    """The objects that tokens name, and a clock."""

    clock: StoppedClock = field(default_factory=StoppedClock)
    objects: dict[tuple[str, str, str], Obj] = field(default_factory=dict)

    def add(self, kind: str, name: str, uid: str, **spec: object) -> Obj:
        namespace = "" if kind == "Node" else "ci"
        obj: Obj = {
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "spec": spec,
        }
        self.objects[kind, namespace, name] = obj
        return obj

    def lookup(self, kind: str, namespace: str, name: str) -> Obj | None:
        return self.objects.get((kind, namespace, name))

    def tokens(self, key: bytes = KEY, issuer: str = ISSUER) -> Tokens:
        return Tokens(key, issuer, self.clock, CountingIds())


def a_world() -> World:
    world = World()
    world.add("ServiceAccount", "runner", "sa-1")
    world.add("Pod", "runner", "pod-1", serviceAccountName="runner", nodeName="mini")
    world.add("Node", "mini", "node-1")
    return world


def a_request(**spec: object) -> Obj:
    return {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec}


def bound_to_pod(uid: str = "pod-1") -> Obj:
    return {"kind": "Pod", "apiVersion": "v1", "name": "runner", "uid": uid}


def ask(world: World, **spec: object) -> str:
    answer = world.tokens().request("ci", "runner", a_request(**spec), world.lookup)
    return str(answer["status"]["token"])


def claims_of(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    claims: dict[str, Any] = json.loads(
        base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
    )
    return claims


def test_a_token_says_who_it_is_for_in_the_words_of_kubernetes() -> None:
    world = a_world()
    claims = claims_of(ask(world, audiences=["remuda-dispatch"], boundObjectRef=bound_to_pod()))

    noon = int(NOON.timestamp())
    assert claims == {
        "aud": ["remuda-dispatch"],
        "exp": noon + 3600,
        "iat": noon,
        "nbf": noon,
        "iss": ISSUER,
        "jti": "uid-1",
        "sub": "system:serviceaccount:ci:runner",
        "kubernetes.io": {
            "namespace": "ci",
            "serviceaccount": {"name": "runner", "uid": "sa-1"},
            "pod": {"name": "runner", "uid": "pod-1"},
            "node": {"name": "mini", "uid": "node-1"},
        },
    }


def test_a_request_is_answered_with_its_defaults_and_its_end() -> None:
    answer = a_world().tokens().request("ci", "runner", a_request(), a_world().lookup)

    assert answer["spec"] == {
        "audiences": [ISSUER],
        "expirationSeconds": 3600,
        "boundObjectRef": None,
    }
    assert answer["status"]["expirationTimestamp"] == "2026-11-15T13:00:00Z"
    assert answer["metadata"]["uid"] == "sa-1"


@pytest.mark.parametrize(
    ("spec", "code", "text"),
    [
        pytest.param(
            {"expirationSeconds": 599},
            422,
            "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
            id="nine minutes are too short",
        ),
        pytest.param(
            {"expirationSeconds": 0},
            422,
            "Invalid value: 0: may not",
            id="an explicit zero is not the default",
        ),
        pytest.param(
            {"expirationSeconds": (1 << 32) + 1},
            422,
            "may not specify a duration larger than 2^32 seconds",
            id="a century is too long",
        ),
        pytest.param(
            {"boundObjectRef": bound_to_pod() | {"name": "gone"}},
            404,
            'pods "gone" not found',
            id="a Pod that does not exist cannot hold a token",
        ),
        pytest.param(
            {"boundObjectRef": bound_to_pod("pod-0")},
            409,
            "the UID in the bound object reference (pod-0) does not match the UID in record",
            id="a Pod of the same name with another UID is another Pod",
        ),
        pytest.param(
            {"boundObjectRef": {"kind": "Foo", "apiVersion": "a/v1", "name": "x"}},
            400,
            "cannot bind token to object of type a/v1, Kind=Foo",
            id="only Pods hold tokens here",
        ),
    ],
)
def test_refused_requests(spec: dict[str, Any], code: int, text: str) -> None:
    with pytest.raises(StatusError) as refused:
        ask(a_world(), **spec)

    assert (refused.value.code, text in refused.value.message) == (code, True)


def test_a_pod_of_another_account_cannot_hold_the_token() -> None:
    world = a_world()
    world.add("Pod", "runner", "pod-1", serviceAccountName="somebody-else")
    with pytest.raises(StatusError, match="different serviceaccount name") as refused:
        ask(world, boundObjectRef=bound_to_pod())
    assert refused.value.code == 400


def test_an_account_that_does_not_exist_gets_no_token() -> None:
    with pytest.raises(StatusError, match='serviceaccounts "nobody" not found'):
        a_world().tokens().request("ci", "nobody", a_request(), a_world().lookup)


def test_a_good_token_is_reviewed_with_its_user_pod_and_shared_audiences() -> None:
    world = a_world()
    token = ask(world, audiences=["remuda-dispatch", "other"], boundObjectRef=bound_to_pod())

    status = world.tokens().review(token, ["third", "remuda-dispatch"], world.lookup)

    assert status == {
        "authenticated": True,
        "audiences": ["remuda-dispatch"],
        "user": {
            "username": "system:serviceaccount:ci:runner",
            "uid": "sa-1",
            "groups": [
                "system:serviceaccounts",
                "system:serviceaccounts:ci",
                "system:authenticated",
            ],
            "extra": {
                "authentication.kubernetes.io/credential-id": ["JTI=uid-1"],
                "authentication.kubernetes.io/node-name": ["mini"],
                "authentication.kubernetes.io/node-uid": ["node-1"],
                "authentication.kubernetes.io/pod-name": ["runner"],
                "authentication.kubernetes.io/pod-uid": ["pod-1"],
            },
        },
    }


def pod_gone(world: World) -> None:
    del world.objects["Pod", "ci", "runner"]


def pod_replaced(world: World) -> None:
    world.add("Pod", "runner", "pod-2", serviceAccountName="runner")


def account_gone(world: World) -> None:
    del world.objects["ServiceAccount", "ci", "runner"]


def account_replaced(world: World) -> None:
    world.add("ServiceAccount", "runner", "sa-2")


def pod_due_since(seconds: int) -> Callable[[World], None]:
    def change(world: World) -> None:
        pod = deepcopy(world.objects["Pod", "ci", "runner"])
        due = NOON - timedelta(seconds=seconds)
        pod["metadata"]["deletionTimestamp"] = due.strftime("%Y-%m-%dT%H:%M:%SZ")
        world.objects["Pod", "ci", "runner"] = pod

    return change


def time_passes(seconds: int) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.clock.time += timedelta(seconds=seconds)

    return change


def nothing(_world: World) -> None:
    pass


@pytest.mark.parametrize(
    ("happens", "audience", "error"),
    [
        pytest.param(nothing, "rd", "", id="nothing happened: it is good"),
        pytest.param(
            nothing,
            "x",
            '[invalid bearer token, token audiences ["rd"] is invalid for the target audiences ["x"]]',
            id="a token for another audience proves nothing",
        ),
        pytest.param(
            time_passes(3660), "rd", "", id="a minute after its end clocks may still differ"
        ),
        pytest.param(
            time_passes(3661),
            "rd",
            "[invalid bearer token, service account token has expired]",
            id="a minute and a second after its end it has expired",
        ),
        pytest.param(
            time_passes(-61),
            "rd",
            "[invalid bearer token, service account token is not valid yet]",
            id="a token from the future is not valid yet",
        ),
        pytest.param(
            pod_gone,
            "rd",
            "[invalid bearer token, service account token has been invalidated]",
            id="its Pod is gone: it is void",
        ),
        pytest.param(
            pod_replaced,
            "rd",
            "[invalid bearer token, pod UID (pod-2) does not match service account pod ref claim (pod-1)]",
            id="another Pod took the name: it is void",
        ),
        pytest.param(
            account_gone,
            "rd",
            '[invalid bearer token, serviceaccounts "runner" not found]',
            id="its account is gone: it is void",
        ),
        pytest.param(
            account_replaced,
            "rd",
            "[invalid bearer token, service account UID (sa-2) does not match claim (sa-1)]",
            id="another account took the name: it is void",
        ),
        pytest.param(
            pod_due_since(60),
            "rd",
            "",
            id="a Pod that ends may still use it until a minute after its deadline",
        ),
        pytest.param(
            pod_due_since(61),
            "rd",
            "[invalid bearer token, service account token has been invalidated]",
            id="a Pod stuck in deletion loses it a minute after its deadline",
        ),
    ],
)
def test_review_after(happens: Callable[[World], None], audience: str, error: str) -> None:
    world = a_world()
    token = ask(world, audiences=["rd"], boundObjectRef=bound_to_pod())
    happens(world)

    status = world.tokens().review(token, [audience], world.lookup)

    assert status.get("authenticated", False) is (error == "")
    assert status.get("error", "") == error


def test_without_audiences_a_review_asks_for_the_api_servers_own() -> None:
    world = a_world()
    assert world.tokens().review(ask(world), [], world.lookup)["audiences"] == [ISSUER]
    foreign = ask(world, audiences=["rd"])
    assert "authenticated" not in world.tokens().review(foreign, [], world.lookup)


def unsigned(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, "", algorithm="none")


def signed_with_public_text(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, "a public key is no secret, but long enough", algorithm="HS256")


def of_another_key(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, new_key(b"b" * 32), algorithm="ES256")


def of_another_issuer(claims: dict[str, Any]) -> str:
    return jwt.encode(claims | {"iss": "https://elsewhere"}, KEY, algorithm="ES256")


def not_an_object(_claims: dict[str, Any]) -> str:
    return jwt.api_jws.encode(b"[]", KEY, algorithm="ES256")


@pytest.mark.parametrize(
    "forge",
    [
        pytest.param(unsigned, id="alg none is refused"),
        pytest.param(signed_with_public_text, id="a symmetric signature is refused"),
        pytest.param(of_another_key, id="another key is refused"),
        pytest.param(of_another_issuer, id="another issuer is refused"),
        pytest.param(not_an_object, id="claims that are not an object are refused"),
        pytest.param(lambda _: "", id="nothing is refused"),
        pytest.param(lambda _: "a.b.c", id="noise is refused"),
        pytest.param(lambda _: "\udcff.\u00e4.x", id="bytes that are no text are refused"),
    ],
)
def test_forged_tokens(forge: Callable[[dict[str, Any]], str]) -> None:
    world = a_world()
    token = forge(claims_of(ask(world)))

    status = world.tokens().review(token, [ISSUER], world.lookup)

    assert status == {"user": {}, "error": "invalid bearer token"}


def test_a_bent_signature_is_refused_and_the_straight_one_is_not() -> None:
    world = a_world()
    token = ask(world)
    head, payload, signature = token.split(".")
    bent = ".".join([head, payload, ("A" if signature[0] != "A" else "B") + signature[1:]])

    assert "authenticated" in world.tokens().review(token, [], world.lookup)
    assert "authenticated" not in world.tokens().review(bent, [], world.lookup)


def test_the_same_seed_gives_the_same_token() -> None:
    assert ask(a_world()) == ask(a_world())


def test_any_jwt_library_can_check_a_token_with_the_public_key() -> None:
    world = a_world()
    token = ask(world, audiences=["rd"])
    checked = jwt.decode(
        token,
        KEY,
        algorithms=["ES256"],
        audience="rd",
        options={"verify_exp": False, "verify_nbf": False, "verify_iat": False},
    )
    assert checked["sub"] == "system:serviceaccount:ci:runner"
