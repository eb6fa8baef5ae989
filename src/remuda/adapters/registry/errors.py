"""What a registry can do to us, named by what the caller should do about it."""

from __future__ import annotations

from remuda.model.errors import RemudaError, Retry


class RegistryError(RemudaError):
    """Something between us and a registry."""


class RegistryUnavailable(RegistryError):
    """No answer, or one that means: later."""


class ImageNotFound(RegistryError):
    """The registry has no such manifest or blob."""

    retry = Retry.NEVER


class NotAllowed(RegistryError):
    """The registry does not let us. Only other credentials help."""

    retry = Retry.NEVER


class BadAnswer(RegistryError):
    """The answer is not what was asked for: a wrong digest, a wrong size, or nonsense."""
