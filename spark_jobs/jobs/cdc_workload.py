"""The edits of the database that the pipeline `cdc` captures: their statements, and the rows that they lead to."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobs.cdc_source import CREATE_PUBLICATION, CREATE_SLOT, TABLES

CREATE = (
    "CREATE TABLE customers (id integer PRIMARY KEY, name text NOT NULL, tier text)",
    "CREATE TABLE purchases (id bigint PRIMARY KEY, customer_id integer, cents bigint, is_paid boolean)",
    "CREATE TABLE workload (last integer NOT NULL)",
    "INSERT INTO workload VALUES (-1)",
    "ALTER TABLE customers REPLICA IDENTITY FULL",
    "ALTER TABLE purchases REPLICA IDENTITY FULL",
    CREATE_PUBLICATION,
    CREATE_SLOT,
)
NEW_COLUMN = "ALTER TABLE customers ADD COLUMN city text"
CITIES = ("Oslo", "Lima", "Kyoto")


@dataclass(frozen=True, slots=True)
class Edit:
    """A statement of the workload: `op` is insert, update, delete, or alter; `values` are columns without the id."""

    op: str
    table: str
    row_id: int = 0
    values: tuple[tuple[str, Any], ...] = ()


def make_workload(seed: int, size: int) -> list[list[Edit]]:
    """Transactions of one to four edits; in the middle one adds a column, which later edits use."""
    rng = random.Random(seed)  # noqa: S311
    rows: dict[str, list[int]] = {table: [] for table in TABLES}
    transactions = []
    next_id = 0
    for number in range(size):
        has_city = number > size // 2
        if number == size // 2:
            transactions.append([Edit("alter", "customers")])
            continue
        edits = []
        for _ in range(rng.randint(1, 4)):
            table = rng.choice(list(TABLES))
            op = rng.choices(("insert", "update", "delete"), (50, 35, 15))[0] if rows[table] else "insert"
            if op == "insert":
                next_id += 1
                row_id = next_id
                rows[table].append(row_id)
            else:
                row_id = rng.choice(rows[table])
            if op == "delete":
                rows[table].remove(row_id)
            edits.append(Edit(op, table, row_id, () if op == "delete" else _values(rng, table, has_city)))
        transactions.append(edits)
    return transactions


def _values(rng: random.Random, table: str, has_city: bool) -> tuple[tuple[str, Any], ...]:
    if table == "purchases":
        return (("customer_id", rng.randrange(100)), ("cents", rng.randrange(10**9)), ("is_paid", rng.random() < 0.5))
    values = (("name", f"Ann 'n' Bob {rng.randrange(1000)}"), ("tier", rng.choice(("basic", "gold", None))))
    return (*values, ("city", rng.choice(CITIES))) if has_city else values


def statement_of(edit: Edit) -> tuple[Any, list[Any]]:
    """The statement in SQL, as psycopg takes it, with its parameters."""
    from psycopg import sql

    names = [sql.Identifier(name) for name, _ in edit.values]
    values = [value for _, value in edit.values]
    table = sql.Identifier(edit.table)
    if edit.op == "alter":
        return NEW_COLUMN, []
    if edit.op == "delete":
        return sql.SQL("DELETE FROM {} WHERE id = %s").format(table), [edit.row_id]
    if edit.op == "update":
        changed = sql.SQL(", ").join(sql.SQL("{} = %s").format(name) for name in names)
        return sql.SQL("UPDATE {} SET {} WHERE id = %s").format(table, changed), [*values, edit.row_id]
    columns = sql.SQL(", ").join([sql.Identifier("id"), *names])
    places = sql.SQL(", ").join([sql.Placeholder()] * (len(names) + 1))
    return sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(table, columns, places), [edit.row_id, *values]


def commit_once(connection: Any, number: int, edits: Sequence[Edit]) -> None:
    """Make the edits of a transaction, unless that was done: the answer to a commit may be lost with the server.

    `number` counts the transactions from 0. Committed is when the connection is left.
    """
    if connection.execute("SELECT last FROM workload").fetchone()[0] >= number:
        return
    for edit in edits:
        connection.execute(*statement_of(edit))
    connection.execute("UPDATE workload SET last = %s", (number,))


def apply_edit(tables: dict[str, dict[int, dict[str, Any]]], edit: Edit) -> None:
    """Make an edit in tables that are dictionaries: rows by their id."""
    rows = tables[edit.table]
    if edit.op == "delete":
        del rows[edit.row_id]
    elif edit.op != "alter":
        rows[edit.row_id] = rows.get(edit.row_id, {}) | dict(edit.values)
