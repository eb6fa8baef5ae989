"""
Write docs/reference/database.md from the schema that the migrations make. A contract test compares it.

It needs a database, so it is not part of ``make generate``: run ``uv run python -m tools.database_page``.
"""

from __future__ import annotations

import asyncio
import tempfile
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from remuda.adapters.postgres.embedded import EmbeddedPostgres, EmbeddedSettings
from remuda.adapters.postgres.migrate import migrate
from remuda.adapters.postgres.pool import DatabaseSettings, connect

if TYPE_CHECKING:
    import asyncpg

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

PAGE = Path(__file__).resolve().parent.parent / "docs/reference/database.md"

HEAD = """\
<!-- Written by `uv run python -m tools.database_page` from the schema; edit the comments in the migrations instead. -->
# The database

What `remuda server` keeps in PostgreSQL, made by its migrations. All times are `timestamptz` with microseconds.
No table holds a job config, a token or another secret. Rules that a table refuses to break are listed under it.
New work is told on the channel `remuda_jobs`; the payload is the pool's name.
"""

COLUMNS = """
SELECT c.relname AS table_name, a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type,
    a.attnotnull AS required, coalesce(col_description(c.oid, a.attnum), '') AS comment,
    obj_description(c.oid, 'pg_class') AS about
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND c.relname <> 'schema_migrations'
ORDER BY c.relname, a.attnum
"""
RULES = """
SELECT c.relname AS table_name, pg_get_triggerdef(t.oid) AS definition
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal ORDER BY c.relname, t.tgname
"""
CONSTRAINTS = """
SELECT c.relname AS table_name, k.conname AS name FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
WHERE k.contype IN ('p', 'u', 'c') AND c.relnamespace = 'public'::regnamespace ORDER BY c.relname, k.conname
"""
FUNCTIONS = """
SELECT p.proname AS name, coalesce(obj_description(p.oid, 'pg_proc'), '') AS about
FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace
ORDER BY p.proname, obj_description(p.oid, 'pg_proc') COLLATE "C"
"""


async def page(connection: Connection) -> str:
    """Return the text of the page for the schema that is there."""
    rules = [dict(row) for row in await connection.fetch(RULES)]
    constraints = [dict(row) for row in await connection.fetch(CONSTRAINTS)]
    columns = [dict(row) for row in await connection.fetch(COLUMNS)]
    parts = [HEAD]
    for name, of_table in groupby(columns, key=lambda row: row["table_name"]):
        listed = list(of_table)
        parts += [f"## `{name}`\n", f"{listed[0]['about']}\n", "| column | type | |\n|---|---|---|"]
        parts += [
            f"| `{c['name']}` | {c['type']}{'' if c['required'] else ', may be null'} | {c['comment']} |"
            for c in listed
        ]
        checks = ", ".join(f"`{k['name']}`" for k in constraints if k["table_name"] == name)
        refused = [said(r["definition"]) for r in rules if r["table_name"] == name]
        parts += [f"\nConstraints: {checks}.", *(f"- {rule}" for rule in refused if rule), ""]
    parts += ["## Functions\n", "| function | |\n|---|---|"]
    parts += [f"| `{f['name']}` | {f['about']} |" for f in await connection.fetch(FUNCTIONS)]
    return "\n".join(parts) + "\n"


def said(definition: str) -> str:
    """Return the rule of a trigger that refuses, as a sentence."""
    if "EXECUTE FUNCTION refuse(" not in definition:
        return ""
    rule = definition.split("EXECUTE FUNCTION refuse('", 1)[1].removesuffix("')")
    return f"{rule[0].upper()}{rule[1:]}."


async def write() -> None:
    folder = Path(tempfile.mkdtemp(prefix="remuda-page-"))
    async with EmbeddedPostgres(folder, EmbeddedSettings(fast=True)) as postgres:
        settings = DatabaseSettings(url=postgres.dsn_of("postgres"))
        await migrate(settings)
        async with connect(settings) as connection:
            PAGE.write_text(await page(connection))


if __name__ == "__main__":
    asyncio.run(write())
