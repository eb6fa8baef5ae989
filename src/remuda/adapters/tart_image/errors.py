"""What can be wrong with an image or with the place it goes to."""

from __future__ import annotations

from remuda.model.errors import RemudaError, Retry


class BadImage(RemudaError):
    """The image is not one of Tart's, or is damaged. Fetching it again brings the same."""

    retry = Retry.NEVER


class NoSpace(RemudaError):
    """The disk is full. What was fetched so far is still there, and holds space."""


class FolderUnusable(RemudaError):
    """The VM's files cannot be written or read."""
