"""
What can go wrong with the database, by what the caller must do about it.

    DatabaseError
      DatabaseUnavailable   try again later
      DatabaseTimeout       try again; what was asked for may have been done
      DatabaseConflict      try again at once; nothing was done
      DatabaseRefused       only a person can help
"""

from __future__ import annotations

from remuda.model.errors import RemudaError, Retry


class DatabaseError(RemudaError):
    """The database did not do what was asked. Its text never holds a password."""


class DatabaseUnavailable(DatabaseError):
    """
    No connection, or it was lost, or the server is full or going down.

    If it was lost during a commit, the commit may have happened.
    """


class DatabaseTimeout(DatabaseError):
    """No answer, no lock or no free connection in time. A commit that was under way may have happened."""


class DatabaseConflict(DatabaseError):
    """Two transactions stood in each other's way and this one was rolled back."""


class DatabaseRefused(DatabaseError):
    """A wrong password or URL, no such database, no right to it, or not the schema that this version needs."""

    retry = Retry.NEVER
