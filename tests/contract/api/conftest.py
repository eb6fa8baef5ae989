"""The API on a real database."""

from tests.support.postgres import database, database_url, postgres_server

__all__ = ["database", "database_url", "postgres_server"]
