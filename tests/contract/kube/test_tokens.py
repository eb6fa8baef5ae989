"""Who is who: ServiceAccount tokens, their reviews, and what a token that is no longer good answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import jwt
import pytest

from remuda.adapters.system import SystemClock
from remuda.kube.core import POD, SECRET
from remuda.kube.runner_pool import RUNNER_POOL
from remuda.ports.kube import BoundPod, Conflict, Invalid, NotFound, Query, Refused
from tests.support.backends import RealBackend, client
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.manifests import a_pod
from tests.support.raw import Raw

if TYPE_CHECKING:
    from remuda.ports.kube import Kube
    from tests.support.backends import Backend
    from tests.support.raw import Answer, Json
    from tests.support.space import Space

AUDIENCE = "remuda-dispatch"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


async def a_runner(raw: Raw, space: Space) -> BoundPod:
    """Create a Pod with a ServiceAccount of its own, as the operator does."""
    account = await raw.post(space.path("serviceaccounts"), {"metadata": {"name": "mare"}})
    if account.status != 409:
        account.ok()
    pod = await raw.post(space.path("pods"), a_pod("mare", serviceAccountName="mare"))
    pod.ok()
    return BoundPod("mare", pod.uid)


async def a_token(kube: Kube, space: Space, pod: BoundPod | None, audience: str = AUDIENCE) -> str:
    token = await kube.request_token(
        "mare", namespace=space.name, audience=audience, expiration_s=600, pod=pod
    )
    return token.text


async def review(raw: Raw, token: str, *audiences: str) -> Json:
    spec = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
    answer: Answer = await raw.post(REVIEWS, {"spec": spec})
    return answer.ok()["status"]


async def test_a_bound_token_says_whose_it_is(kube: Kube, raw: Raw, space: Space) -> None:
    pod = await a_runner(raw, space)
    before = SystemClock().now()

    token = await kube.request_token(
        "mare", namespace=space.name, audience=AUDIENCE, expiration_s=600, pod=pod
    )
    subject = await kube.review_token(token.text, audience=AUDIENCE)

    assert timedelta(seconds=590) < token.expires_at - before < timedelta(seconds=610)
    assert subject is not None
    assert subject.username == f"system:serviceaccount:{space.name}:mare"
    account = (await raw.get(space.path("serviceaccounts", "mare"))).uid
    assert subject.uid == account
    assert subject.groups == (
        "system:serviceaccounts",
        f"system:serviceaccounts:{space.name}",
        "system:authenticated",
    )
    assert subject.audiences == (AUDIENCE,)
    assert (subject.pod_name, subject.pod_uid) == (pod.name, pod.uid)


async def test_the_claims_of_a_token(kube: Kube, raw: Raw, space: Space) -> None:
    pod = await a_runner(raw, space)

    token = await a_token(kube, space, pod)

    claims = jwt.decode(token, options={"verify_signature": False})
    assert jwt.get_unverified_header(token)["alg"] == "ES256"
    assert claims["aud"] == [AUDIENCE]
    assert claims["sub"] == f"system:serviceaccount:{space.name}:mare"
    assert claims["exp"] - claims["iat"] == 600
    assert claims["nbf"] == claims["iat"]
    assert claims["jti"]
    account = (await raw.get(space.path("serviceaccounts", "mare"))).uid
    assert claims["kubernetes.io"] == {
        "namespace": space.name,
        "pod": {"name": "mare", "uid": pod.uid},
        "serviceaccount": {"name": "mare", "uid": account},
    }


async def test_a_token_for_another_audience_is_not_good(kube: Kube, raw: Raw, space: Space) -> None:
    token = await a_token(kube, space, await a_runner(raw, space), audience="elsewhere")

    assert await kube.review_token(token, audience=AUDIENCE) is None
    status = await review(raw, token, AUDIENCE)
    assert "authenticated" not in status
    assert status["user"] == {}
    assert status["error"] == (
        '[invalid bearer token, token audiences ["elsewhere"] is invalid for the target audiences '
        f'["{AUDIENCE}"]]'
    )


async def test_a_review_answers_with_the_audiences_that_fit(
    kube: Kube, raw: Raw, space: Space
) -> None:
    token = await a_token(kube, space, await a_runner(raw, space))

    status = await review(raw, token, "elsewhere", AUDIENCE)

    assert status["authenticated"] is True
    assert status["audiences"] == [AUDIENCE]


async def test_a_review_without_audiences_means_the_servers_own(
    kube: Kube, raw: Raw, space: Space
) -> None:
    bound_elsewhere = await a_token(kube, space, await a_runner(raw, space))
    path = space.path("serviceaccounts", "mare", "token")
    own = (await raw.post(path, {"spec": {}})).ok()

    assert "authenticated" not in await review(raw, bound_elsewhere)
    status = await review(raw, own["status"]["token"])
    assert status["authenticated"] is True
    assert status["audiences"] == own["spec"]["audiences"]
    assert own["spec"]["expirationSeconds"] == 3600


def lag_s(backend: Backend) -> float:
    """How late a server may see what it has just acknowledged: a real one reads a cache, ours must know at once."""
    return DEADLINE_S if isinstance(backend, RealBackend) else 0.0


async def is_refused(kube: Kube, token: str) -> bool:
    return await kube.review_token(token, audience=AUDIENCE) is None


async def test_a_token_dies_with_its_pod(
    kube: Kube, raw: Raw, space: Space, backend: Backend
) -> None:
    token = await a_token(kube, space, await a_runner(raw, space))

    await kube.delete(POD, "mare", namespace=space.name)

    await eventually(lambda: is_refused(kube, token), within_s=lag_s(backend))
    status = await review(raw, token, AUDIENCE)
    assert status["error"] == ("[invalid bearer token, service account token has been invalidated]")


async def test_a_reviewed_token_is_soon_refused_after_its_pod(
    kube: Kube, raw: Raw, space: Space
) -> None:
    token = await a_token(kube, space, await a_runner(raw, space))
    assert await kube.review_token(token, audience=AUDIENCE) is not None

    await kube.delete(POD, "mare", namespace=space.name)

    await eventually(lambda: is_refused(kube, token))


async def test_a_token_is_not_inherited_by_a_pod_of_the_same_name(
    kube: Kube, raw: Raw, space: Space, backend: Backend
) -> None:
    first = await a_runner(raw, space)
    token = await a_token(kube, space, first)
    await kube.delete(POD, "mare", namespace=space.name)
    second = await a_runner(raw, space)

    why = f"[invalid bearer token, pod UID ({second.uid}) does not match service account pod ref claim ({first.uid})]"
    await eventually(
        lambda: review(raw, token, AUDIENCE),
        lambda found: found.get("error") == why,
        within_s=lag_s(backend),
    )
    assert await kube.review_token(token, audience=AUDIENCE) is None


async def test_a_token_dies_with_its_account(
    kube: Kube, raw: Raw, space: Space, backend: Backend
) -> None:
    await a_runner(raw, space)
    token = await a_token(kube, space, None)

    (await raw.delete(space.path("serviceaccounts", "mare"))).ok()

    await eventually(lambda: is_refused(kube, token), within_s=lag_s(backend))


async def test_an_expired_token_is_not_good(
    kube: Kube, raw: Raw, space: Space, backend: Backend
) -> None:
    """Signed with the server's own key, because no server issues a token that is over already."""
    good = await a_token(kube, space, await a_runner(raw, space))
    claims = jwt.decode(good, options={"verify_signature": False})
    key_id = jwt.get_unverified_header(good)["kid"]

    def forged(**changes: int) -> str:
        return jwt.encode(
            {**claims, **changes}, backend.signing_key, "ES256", headers={"kid": key_id}
        )

    long_ago = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    far_off = int(datetime(2100, 1, 1, tzinfo=UTC).timestamp())
    still_good = forged(exp=far_off)
    over = forged(exp=long_ago)
    not_yet = forged(nbf=far_off)

    assert await kube.review_token(still_good, audience=AUDIENCE) is not None
    assert await kube.review_token(over, audience=AUDIENCE) is None
    assert await kube.review_token(not_yet, audience=AUDIENCE) is None
    assert "expired" in (await review(raw, over, AUDIENCE))["error"]


@pytest.mark.parametrize("token", ["garbage", "a.b.c", "eyJhbGciOiJub25lIn0.e30."])
async def test_what_is_no_token_is_not_good(kube: Kube, token: str) -> None:
    assert await kube.review_token(token, audience=AUDIENCE) is None


async def test_a_token_with_a_broken_signature_is_not_good(
    kube: Kube, raw: Raw, space: Space
) -> None:
    token = await a_token(kube, space, await a_runner(raw, space))
    head, body, signature = token.split(".")
    flipped = ("A" if signature[0] != "A" else "B") + signature[1:]

    assert await kube.review_token(f"{head}.{body}.{flipped}", audience=AUDIENCE) is None


async def test_token_requests_that_are_refused(kube: Kube, raw: Raw, space: Space) -> None:
    pod = await a_runner(raw, space)
    path = space.path("serviceaccounts", "mare", "token")

    with pytest.raises(NotFound):
        await kube.request_token(
            "nobody", namespace=space.name, audience=AUDIENCE, expiration_s=600
        )
    with pytest.raises(NotFound):
        await a_token(kube, space, BoundPod("nobody", pod.uid))
    with pytest.raises(Conflict, match="does not match the UID in record"):
        await a_token(kube, space, BoundPod("mare", "another"))
    with pytest.raises(Invalid, match="may not specify a duration less than 10 minutes"):
        await kube.request_token("mare", namespace=space.name, audience=AUDIENCE, expiration_s=599)
    bound = {"boundObjectRef": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}}
    answer = await raw.post(path, {"spec": bound})
    message = "cannot bind token to object of type /v1, Kind=ConfigMap"
    assert answer.refusal == (400, "BadRequest", message)


async def test_a_token_for_the_server_itself_opens_the_door(
    raw: Raw, space: Space, backend: Backend
) -> None:
    """What is behind it is a matter of roles, which one machine has none of; here they are only asked about."""
    await a_runner(raw, space)
    path = space.path("serviceaccounts", "mare", "token")
    own = (await raw.post(path, {"spec": {}})).ok()["status"]["token"]
    wire = backend.wire(own)
    try:
        answer = await Raw(wire).post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})

        who = answer.ok()["status"]["userInfo"]
        assert who["username"] == f"system:serviceaccount:{space.name}:mare"
        assert isinstance(await client(wire).may_i("list", POD, namespace=space.name), bool)
    finally:
        await wire.close()


@pytest.mark.parametrize("sort", ["wrong", "for dispatch only"])
async def test_the_door_stays_shut_for(
    kube: Kube, raw: Raw, space: Space, backend: Backend, sort: str
) -> None:
    bound = await a_token(kube, space, await a_runner(raw, space))
    wire = backend.wire("wrong" if sort == "wrong" else bound)
    try:
        with pytest.raises(Refused):
            await client(wire).list(POD, Query(namespace=space.name))
    finally:
        await wire.close()


async def test_the_administrator_may_do_anything(kube: Kube, space: Space) -> None:
    assert await kube.may_i("list", POD, namespace=space.name)
    assert await kube.may_i("patch", RUNNER_POOL, namespace=space.name, subresource="status")
    assert await kube.may_i("delete", SECRET)
