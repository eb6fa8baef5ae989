"""
Who shows a token: a runner's Pod, a ServiceAccount of the cluster, or a person. None of them passes for another.

Reviews are kept for a while, by the token's hash, and several requests with one token are one review. A kept review
says whose token it is; that its Pod is still the one that lives is looked at every time. Whatever is missing fails
closed. An API server or database that does not answer is an error, not a stranger.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from remuda.dispatch.tokens import digest_of, is_token
from remuda.dispatch.who import PersonIdentity, RunnerIdentity, ServiceIdentity, Unknown
from remuda.kube.core import POD, SERVICE_ACCOUNT
from remuda.kube.names import AUDIENCE, RUNNER
from remuda.ports.kube import NotFound, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from remuda.dispatch.settings import DispatchSettings
    from remuda.dispatch.view import DispatchView
    from remuda.kube.core import Pod
    from remuda.ports.api_tokens import ApiToken, ApiTokens
    from remuda.ports.clock import Clock
    from remuda.ports.kube import Kube, TokenSubject

STRANGERS_S: Final = 5.0
"""How long a token that belongs to nobody is known as such: a Pod may be asking a moment before the server knows it."""
KNOWN_MAX: Final = 50_000
STRANGERS_MAX: Final = 10_000
REVIEWS_MAX: Final = 32
"""How many tokens are reviewed at once: rubbish must not keep the API server busy."""
REVIEW_S: Final = 10.0
"""How long a review may take, waiting for its turn included: who asks is then told to come again."""
CALL_S: Final = 5.0

_JWT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_JWT_MAX_CHARS = 8192
_ACCOUNT = re.compile(r"system:serviceaccount:([a-z0-9.-]+):([a-z0-9.-]+)")
_SHOW = "Show a token of the Pod's own ServiceAccount for the audience remuda-dispatch"
_ASK = "Ask for a token for the audience remuda-dispatch"
_MAKE = "Make one with: remuda server tokens create"

V = TypeVar("V")


@dataclass
class _Kept(Generic[V]):
    """Answers by the hash of what was asked: known ones for long, strangers for short, and neither without bound."""

    clock: Clock
    known_s: float
    known: OrderedDict[bytes, tuple[float, V]] = field(default_factory=OrderedDict)
    strangers: OrderedDict[bytes, float] = field(default_factory=OrderedDict)
    asking: dict[bytes, asyncio.Future[V | None]] = field(default_factory=dict)

    async def get(self, digest: bytes, ask: Callable[[], Awaitable[V | None]]) -> V | None:
        """Return what is kept, or ask: once, however many want to know at that moment."""
        while True:
            now = self.clock.monotonic()
            if (kept := self.known.get(digest)) is not None and now < kept[0]:
                return kept[1]
            if now < self.strangers.get(digest, now):
                return None
            asked = self.asking.get(digest)
            if asked is None:
                return await self._ask(digest, ask)
            await asyncio.wait((asked,))
            if not asked.cancelled():
                return asked.result()
            # Whoever asked went away before the answer came: ask again.

    async def _ask(self, digest: bytes, ask: Callable[[], Awaitable[V | None]]) -> V | None:
        asked = self.asking[digest] = asyncio.get_running_loop().create_future()
        try:
            answer = await ask()
        except Exception as error:
            asked.set_exception(error)
            asked.exception()  # looked at: perhaps nobody else wanted to know
            raise
        except BaseException:
            asked.cancel()
            raise
        else:
            asked.set_result(answer)
            self._keep(digest, answer)
            return answer
        finally:
            del self.asking[digest]

    def _keep(self, digest: bytes, answer: V | None) -> None:
        now = self.clock.monotonic()
        self.known.pop(digest, None)
        self.strangers.pop(digest, None)
        if answer is None:
            self.strangers[digest] = now + STRANGERS_S
        else:
            self.known[digest] = (now + self.known_s, answer)
        while len(self.known) > KNOWN_MAX:
            self.known.popitem(last=False)
        while len(self.strangers) > STRANGERS_MAX:
            self.strangers.popitem(last=False)


class Identities:
    """Fills ``remuda.dispatch.api.auth.Doorman``, and tells runners by their Pods."""

    def __init__(
        self,
        kube: Kube,
        tokens: ApiTokens,
        settings: DispatchSettings,
        clock: Clock,
        *,
        view: DispatchView | None = None,
    ) -> None:
        self._kube, self._tokens = kube.within(CALL_S), tokens
        self._clock, self._view = clock, view
        self._namespace = settings.namespace
        self._controller = settings.controller_account
        self._reviews: _Kept[TokenSubject] = _Kept(clock, settings.polls.token_cache_s)
        self._accounts: _Kept[bool] = _Kept(clock, settings.polls.token_cache_s)
        self._people: _Kept[ApiToken] = _Kept(clock, settings.polls.token_cache_s)
        self._slots = asyncio.Semaphore(REVIEWS_MAX)

    async def runner(self, token: str) -> RunnerIdentity | Unknown:
        """Tell which runner's Pod shows this token, and that it is the one that lives under its name."""
        found = await self._account(token)
        if isinstance(found, Unknown):
            return found
        namespace, name, subject = found
        if (fault := self._misfit(namespace, name, subject)) is not None:
            return Unknown(403, fault, _SHOW)
        pod = await self._live(name, subject.pod_uid)
        if pod is None:
            return Unknown(401, "the Pod that its token is bound to is gone", _SHOW)
        if pod.labels.get(RUNNER) != "true":
            return Unknown(403, "the Pod that its token is bound to is no runner's", _SHOW)
        return RunnerIdentity(name, subject.pod_uid)

    def _misfit(self, namespace: str, name: str, subject: TokenSubject) -> str | None:
        """Return why a token cannot be a runner's. A runner's ServiceAccount has the name of its Pod."""
        if namespace != self._namespace:
            return "its token is of another namespace than the runners'"
        if not subject.pod_name or not subject.pod_uid:
            return "its token is not bound to a Pod"
        same = subject.pod_name == name
        return None if same else "its token is of a ServiceAccount that is no runner's"

    async def service(self, token: str) -> ServiceIdentity | Unknown:
        """Tell which ServiceAccount shows this token, unless it is a runner's: jobs run beside those."""
        found = await self._account(token)
        if isinstance(found, Unknown):
            return found
        namespace, name, subject = found
        who = ServiceIdentity(namespace, name)
        if namespace != self._namespace or self.is_controller(who):
            return who
        if subject.pod_name == name or await self._is_runners(name):
            return Unknown(403, "a runner's own token may ask for jobs, and nothing else", _ASK)
        return who

    async def person(self, token: str) -> PersonIdentity | Unknown:
        """Tell whose API token this is."""
        known = None
        if is_token(token):
            digest = digest_of(token)
            known = await self._people.get(digest, lambda: self._tokens.find(digest))
        if known is None:
            return Unknown(401, "the token is not known, has expired or was revoked", _MAKE)
        if known.expires_at is not None and known.expires_at <= self._clock.now():
            return Unknown(401, "the token has expired", _MAKE)
        return PersonIdentity(known.name, known.role)

    def is_controller(self, who: ServiceIdentity) -> bool:
        return (who.namespace, who.name) == self._controller

    async def _account(self, token: str) -> tuple[str, str, TokenSubject] | Unknown:
        """Tell whose ServiceAccount token this is. Text that cannot be one is refused without asking anybody."""
        if len(token) > _JWT_MAX_CHARS or _JWT.fullmatch(token) is None:
            why = "this is neither a token of the API nor one of a ServiceAccount"
            return Unknown(401, why, f"{_MAKE}, or, for a ServiceAccount: {_ASK}")
        subject = await self._reviews.get(digest_of(token), lambda: self._review(token))
        if subject is None or AUDIENCE not in subject.audiences:
            return Unknown(401, "the cluster does not know this token for our audience", _ASK)
        account = _ACCOUNT.fullmatch(subject.username)
        if account is None:
            return Unknown(403, "its token is not of a ServiceAccount", _ASK)
        return account[1], account[2], subject

    async def _review(self, token: str) -> TokenSubject | None:
        try:
            async with asyncio.timeout(REVIEW_S), self._slots:
                return await self._kube.review_token(token, audience=AUDIENCE)
        except TimeoutError:
            raise Unavailable(
                "A token was not reviewed",
                why=f"the API server did not come to it within {REVIEW_S:g} s",
                fix="It is asked again with the next request",
            ) from None

    async def _live(self, name: str, uid: str) -> Pod | None:
        """Return the Pod of that name if it is the token's. Our view may be behind, so a no is the server's."""
        pod = self._view.pod(name) if self._view is not None else None
        if pod is not None and pod.uid == uid:
            return pod
        try:
            pod = await self._kube.get(POD, name, namespace=self._namespace)
        except NotFound:
            return None
        return pod if pod.uid == uid else None

    async def _is_runners(self, account: str) -> bool:
        """Say whether a ServiceAccount of the runners' namespace is a runner's. One that is gone counts as one."""
        if self._view is not None and self._view.pod(account) is not None:
            return True
        answer = await self._accounts.get(account.encode(), lambda: self._read_account(account))
        return answer is None

    async def _read_account(self, name: str) -> bool | None:
        """Return True for a ServiceAccount that is no runner's, else None."""
        try:
            account = await self._kube.get(SERVICE_ACCOUNT, name, namespace=self._namespace)
        except NotFound:
            return None
        return None if account.labels.get(RUNNER) == "true" else True
