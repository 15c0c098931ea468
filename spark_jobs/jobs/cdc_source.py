"""Parts of the pipeline `cdc` in its source database, and the check that a job that runs alone finds them there."""

from __future__ import annotations

from typing import Any

from pipeline.model import MissingPartError
from pipeline.postgres import in_transaction

TABLES = {"customers": "cdc-customers", "purchases": "cdc-purchases"}
"""The tables, and the topic of each one's changes."""
PUBLICATION, SLOT, PLUGIN = "changes", "capture", "pgoutput"
CREATE_PUBLICATION = f"CREATE PUBLICATION {PUBLICATION} FOR TABLE {', '.join(TABLES)}"
CREATE_SLOT = f"SELECT pg_create_logical_replication_slot('{SLOT}', '{PLUGIN}')"
ANSWER_TIMEOUT_S = 45.0
"""A job is also started while a database is away: whoever starts jobs again may do so at once."""


def require_source(address: str) -> None:
    """Raises MissingPartError unless a PostgreSQL answers that has the publication and the replication slot."""
    lacks = _asked(address, "source", lacking)
    if lacks is not None:
        raise MissingPartError(f"the database source ({shown(address)}) {lacks}")


def require_target(address: str) -> None:
    """Raises MissingPartError unless a PostgreSQL answers; the job makes its tables itself."""
    _asked(address, "target", lambda connection: connection.execute("SELECT 1"))


def lacking(connection: Any) -> str | None:
    """The first part that a source database lacks, and the statement that mends it; None if it has all."""
    (level,) = connection.execute("SHOW wal_level").fetchone()
    if level != "logical":
        return f"has wal_level {level}: run ALTER SYSTEM SET wal_level = 'logical', and start it again"
    # The publication comes first: what the slot decodes, a publication that came later does not have.
    published = {
        name
        for (name,) in connection.execute(
            "SELECT tablename FROM pg_publication_tables WHERE pubname = %s", (PUBLICATION,)
        ).fetchall()
    }
    if not published:
        return f"has no publication {PUBLICATION} with tables: run {CREATE_PUBLICATION}"
    if missing := [table for table in TABLES if table not in published]:
        return f"does not publish {missing[0]}: run ALTER PUBLICATION {PUBLICATION} ADD TABLE {', '.join(missing)}"
    slot = connection.execute(
        "SELECT plugin, database, current_database() FROM pg_replication_slots WHERE slot_name = %s", (SLOT,)
    ).fetchone()
    if slot is None:
        return f"has no replication slot {SLOT}: run {CREATE_SLOT}"
    plugin, database, here = slot
    if (plugin, database) != (PLUGIN, here):
        what = f"of the plugin {plugin} in the database {database}"
        return f"has a replication slot {SLOT} {what}: drop that one, and run {CREATE_SLOT} in {here}"
    return None


def shown(address: str) -> str:
    """The place in a connection string, without its password."""
    from psycopg.conninfo import conninfo_to_dict

    fields = conninfo_to_dict(address)
    return " ".join(f"{name}={fields[name]}" for name in ("host", "port", "dbname") if name in fields)


def _asked(address: str, name: str, ask: Any) -> Any:
    import psycopg

    try:
        return in_transaction(address, ask, ANSWER_TIMEOUT_S)
    except psycopg.ProgrammingError as error:
        raise MissingPartError(f"the database {name}: {_line(error)}: correct --databases") from None
    except psycopg.OperationalError as error:
        where = f"at {shown(address)} within {ANSWER_TIMEOUT_S:.0f} s ({_line(error)})"
        raise MissingPartError(f"no PostgreSQL answers {where}: start one there, or correct --databases") from None


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
