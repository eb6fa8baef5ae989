"""The intake on a real PostgreSQL, and over real HTTP."""

from __future__ import annotations

from tests.support.postgres import database, database_url, postgres_server

__all__ = ["database", "database_url", "postgres_server"]
