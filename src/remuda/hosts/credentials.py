"""
With what one logs in to a host: Secrets that the Host names, and the password that the provider of a rented Mac tells.

A provider tells a password once and then hides it, so what it told is kept in a Secret of the Host. What it shows in
place of a hidden one is no password and never tried: a wrong one turns automatic login off for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.hosts import own_secrets
from remuda.kube.core import SECRET
from remuda.model.errors import RemudaError
from remuda.model.secret import Secret
from remuda.ports.host_shell import Target
from remuda.ports.kube import NotFound

if TYPE_CHECKING:
    from remuda.kube.host import Host, SecretRef
    from remuda.ports.kube import Kube
    from remuda.ports.machines import Machine

PASSWORD: Final = "password"  # noqa: S105 - the name of a key
_SEALED: Final = b"<sealed>"


class NoCredential(RemudaError):
    """There is nothing to log in with, or nothing for sudo and automatic login."""


def password_secret(host: str) -> str:
    return f"{host}-password"


async def target_of(
    kube: Kube, host: Host, machine: Machine | None, *, trust_first: bool
) -> Target:
    """Return where a host is and how one gets in. Reads Secrets, and keeps what the provider told."""
    ssh = host.spec.ssh
    key = await _read(kube, host, ssh.key_secret_ref) if ssh.key_secret_ref else None
    if ssh.password_secret_ref:
        password: Secret | None = await _read(kube, host, ssh.password_secret_ref)
    elif machine is not None:
        password = await _told(kube, host, machine)
    else:
        password = None
    static = host.spec.provider.static
    return Target(
        address=static.address if static else (machine.address if machine else ""),
        port=static.port if static else 22,
        user=ssh.user,
        key=key,
        password=password,
        fingerprint=host.status.host_key_fingerprint,
        trust_first=trust_first,
    )


async def forget_password(kube: Kube, host: Host) -> None:
    """Remove what a provider told: another Mac has another password."""
    if host.spec.provider.scaleway:
        await own_secrets.forget(kube, host, password_secret(host.name))


async def _read(kube: Kube, host: Host, ref: SecretRef) -> Secret:
    try:
        found = await kube.get(SECRET, ref.name, namespace=host.namespace)
    except NotFound:
        raise _missing(host, f"there is no Secret {ref.name}", "Create it") from None
    value = found.data.get(ref.key, b"")
    if not value:
        raise _missing(host, f"the Secret {ref.name} has no {ref.key}", "Put it in")
    if value.strip() == _SEALED:
        why = f"{ref.key} of the Secret {ref.name} is what a provider shows in place of a password"
        raise _missing(host, why, "Put the real one in")
    return Secret(value)


async def _told(kube: Kube, host: Host, machine: Machine) -> Secret | None:
    """Return the password that the provider tells, or told. None if it never did: a prepared Mac needs none."""
    name = password_secret(host.name)
    found = await own_secrets.find(kube, host, name)
    kept = found.data.get(PASSWORD, b"") if found is not None else b""
    if machine.password is None:
        return Secret(kept) if kept else None
    if machine.password.reveal() != kept:
        await own_secrets.keep(kube, host, name, {PASSWORD: machine.password.reveal()})
    return machine.password


def _missing(host: Host, why: str, fix: str) -> NoCredential:
    return NoCredential(f"Host {host.name} cannot be logged in to", why=why, fix=fix)
