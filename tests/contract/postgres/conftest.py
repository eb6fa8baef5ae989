"""The fixtures of a real PostgreSQL."""

from __future__ import annotations

from tests.support.postgres import database, database_url, empty_database_url, postgres_server

__all__ = ["database", "database_url", "empty_database_url", "postgres_server"]
