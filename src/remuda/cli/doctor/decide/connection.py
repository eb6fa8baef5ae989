"""Checks of what the commands talk to: the Kubernetes API, dispatch, and GitHub. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.cli.doctor.decide.facts import Unread, got
from remuda.cli.doctor.decide.findings import Check, Group, counted, fail, ok, skip, warn

if TYPE_CHECKING:
    from remuda.cli.doctor.decide.facts import Facts
    from remuda.cli.doctor.decide.findings import Finding

SKEW_WARN_S: Final = 30.0
SKEW_FAIL_S: Final = 300.0
"""What the fleet is built to bear."""


def _unreached(what: str, unread: Unread) -> Finding:
    if not unread.asked:
        return skip(unread.why)
    return fail(what, [unread.why], unread.fix)


def kubernetes_api(facts: Facts) -> Finding:
    kube = facts.kube
    if isinstance(kube, Unread):
        return _unreached("The Kubernetes API cannot be asked.", kube)
    if isinstance(kube.version, Unread):
        how = "refuses us" if kube.version.refused else "does not answer"
        return _unreached(f"{kube.server} {how}.", kube.version)
    return ok(f"{kube.server} answers ({kube.version}).")


def kubernetes_clock(facts: Facts) -> Finding:
    return _skew(got(got(facts.kube).ahead_s), "the Kubernetes API")


def dispatch_clock(facts: Facts) -> Finding:
    return _skew(got(got(facts.api).ahead_s), "dispatch")


def _skew(ahead_s: float, whose: str) -> Finding:
    off_s = abs(ahead_s)
    if off_s < SKEW_WARN_S:
        return ok(f"This machine and {whose} agree on the time.")
    way = "behind" if ahead_s > 0 else "ahead of"
    sentence = f"The clock of this machine is {off_s:.0f} s {way} that of {whose}."
    fix = "Set both clocks by NTP: tokens and certificates depend on the time"
    return fail(sentence, (), fix) if off_s >= SKEW_FAIL_S else warn(sentence, (), fix)


def crds(facts: Facts) -> Finding:
    found = got(got(facts.kube).crds)
    apply = "kubectl apply --server-side -f charts/remuda/crds (remuda up does it at its start)"
    missing = [crd.name for crd in found if not crd.installed]
    if missing:
        return fail(
            "The Kubernetes API does not know all of our kinds.",
            [f"{name} is not installed" for name in missing],
            apply,
        )
    other = [crd.name for crd in found if not crd.same]
    if other:
        return warn(
            "Our kinds are installed in another version than this program's.",
            [f"{name} differs" for name in other],
            f"Use the program of the fleet's version, or upgrade: {apply}",
        )
    return ok("Our kinds are installed, in this program's version.")


def rights(facts: Facts) -> Finding:
    asked = got(got(facts.kube).rights)
    lacking = [right for right in asked if not right.allowed]
    if not lacking:
        return ok(f"We may do all {counted(len(asked), 'thing')} that the commands do.")
    return warn(
        f"We may not do {len(lacking)} of {counted(len(asked), 'thing')} that the commands do.",
        [f"{right.need}: for {right.purpose}" for right in lacking],
        "Use another kubeconfig, or have these granted",
    )


def dispatch_api(facts: Facts) -> Finding:
    api = facts.api
    if isinstance(api, Unread):
        return _unreached("Dispatch cannot be asked.", api)
    if isinstance(api.not_ready, Unread):
        return _unreached(f"{api.server} could not be asked.", api.not_ready)
    return ok(f"{api.server} answers.")


def dispatch_ready(facts: Facts) -> Finding:
    not_ready = got(got(facts.api).not_ready)
    if not_ready:
        return fail(
            "Dispatch cannot serve now.",
            [not_ready],
            "Look at its log; if it is the database, see that PostgreSQL runs and can be reached from there",
        )
    return ok("Dispatch serves, and its database answers.")


def dispatch_token(facts: Facts) -> Finding:
    api = got(facts.api)
    got(api.not_ready)  # a server that is away says nothing about a token
    if isinstance(api.claims, Unread) and api.claims.refused:
        return fail("Dispatch does not accept the token.", [api.claims.why], api.claims.fix)
    got(api.claims)
    return ok("Dispatch accepts the token.")


def github(facts: Facts) -> Finding:
    app = facts.github
    if isinstance(app, Unread):
        return _unreached("The GitHub App that is set up cannot be used.", app)
    return ok(f"{app.host} knows the App {app.name}.")


CHECKS: Final = (
    Check(
        name="kubernetes-api",
        group=Group.CONNECTION,
        about="The Kubernetes API answers, and accepts who asks.",
        look=kubernetes_api,
    ),
    Check(
        name="kubernetes-clock",
        group=Group.CONNECTION,
        about="Its clock and ours agree: warn from 30 s on, fail from 5 min on.",
        look=kubernetes_clock,
    ),
    Check(
        name="crds",
        group=Group.CONNECTION,
        about="RunnerPool and Host are installed, as this version of the program has them.",
        look=crds,
    ),
    Check(
        name="rights",
        group=Group.CONNECTION,
        about="The kubeconfig may do what the commands do, `doctor --fix` included.",
        look=rights,
    ),
    Check(
        name="dispatch-api",
        group=Group.CONNECTION,
        about="Dispatch answers.",
        look=dispatch_api,
    ),
    Check(
        name="dispatch-ready",
        group=Group.CONNECTION,
        about="Dispatch can serve: it sees the fleet, and PostgreSQL answers (`/readyz`).",
        look=dispatch_ready,
    ),
    Check(
        name="dispatch-token",
        group=Group.CONNECTION,
        about="Dispatch accepts the API token.",
        look=dispatch_token,
    ),
    Check(
        name="dispatch-clock",
        group=Group.CONNECTION,
        about="Its clock and ours agree: warn from 30 s on, fail from 5 min on.",
        look=dispatch_clock,
    ),
    Check(
        name="github",
        group=Group.CONNECTION,
        about="If a GitHub App is set up here, by `remuda setup github` or variables: GitHub knows it (`GET /app`).",
        look=github,
    ),
)
