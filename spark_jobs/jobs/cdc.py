"""Change data capture: a PostgreSQL database to compacted topics, from there to Delta tables and another PostgreSQL.

    PostgreSQL `source`, two tables under inserts, updates, deletes, and a new column on the way
      -> capture (a thread of the job): the changes of a logical replication slot, decoded by pgoutput
           -> topics `cdc-customers` and `cdc-purchases`, compacted, in Debezium's envelope with its schema, a tombstone
              behind each deletion; one Kafka transaction for some transactions of the database
      -> query `delta`     MERGE into a Delta table for each topic
      -> query `postgres`  upserts and deletions in PostgreSQL `target`, one transaction for each trigger

Exactly once. Capture: the Kafka transaction commits the position in the database's log (LSN) with the changes, as the
number of the batch of `TransactionalSink`; after a crash the slot gives the changes again, and those up to that
position are left out. Delta: a trigger that runs again merges the same last state of each key. Target: the number of
the trigger is committed in the transaction of its changes; the table `change_counts`, which adds up, would show a
trigger that was applied twice. A slot sees what comes after it; rows that are older would need a snapshot, which is not
made here.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pipeline.model import Databases, MissingPartError, Pipeline
from pipeline.outcome import Outcome
from pipeline.parquet import read_delta_rows
from pipeline.pgoutput import Change, Decoder, Relation, Transaction
from pipeline.postgres import PostgresServers, program
from pipeline.records import COMPACTED, Record, Results, Stage, Table, Topic, last_per_key, rows_once
from pipeline.streams import Streams
from pipeline.transactional import TransactionalSink
from session import say

if TYPE_CHECKING:
    from pipeline.systems import Systems
    from pyspark.sql import DataFrame

TABLES = {"customers": "cdc-customers", "purchases": "cdc-purchases"}
CREATE = (
    "CREATE TABLE customers (id integer PRIMARY KEY, name text NOT NULL, tier text)",
    "CREATE TABLE purchases (id bigint PRIMARY KEY, customer_id integer, cents bigint, is_paid boolean)",
    "CREATE TABLE workload (last integer NOT NULL)",
    "INSERT INTO workload VALUES (-1)",
    "ALTER TABLE customers REPLICA IDENTITY FULL",
    "ALTER TABLE purchases REPLICA IDENTITY FULL",
    "CREATE PUBLICATION changes FOR TABLE customers, purchases",
    "SELECT pg_create_logical_replication_slot('capture', 'pgoutput')",
)
NEW_COLUMN = "ALTER TABLE customers ADD COLUMN city text"
PEEK = (
    "SELECT data FROM pg_logical_slot_peek_binary_changes("
    "'capture', NULL, 300, 'proto_version', '1', 'publication_names', 'changes')"
)
CITIES = ("Oslo", "Lima", "Kyoto")
RETRY_FOR_S, RETRY_PAUSE_S = 90.0, 0.5
# From a type of a Connect schema to those of Spark and PostgreSQL.
SPARK_TYPES = {"int16": "SMALLINT", "int32": "INT", "int64": "BIGINT", "boolean": "BOOLEAN", "string": "STRING"}
POSTGRES_TYPES = {"int16": "smallint", "int32": "integer", "int64": "bigint", "boolean": "boolean", "string": "text"}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Edit:
    """A statement of the workload: op is insert, update, delete, or alter; `values` without the id."""

    op: str
    table: str
    row_id: int = 0
    values: tuple[tuple[str, Any], ...] = ()


class ChangeDataCapture(Pipeline):
    """The pipeline; see the module's text."""

    name = "cdc"
    summary = "PostgreSQL's changes in Debezium's envelope to a Delta table and a second PostgreSQL"
    guarantee = "LSNs in Kafka's transactions, MERGE of last states, trigger numbers in the target's transactions"
    topics = {topic: Topic(2, COMPACTED) for topic in TABLES.values()}
    size = 600
    stages = {"capture": Stage("changes are captured and applied")}
    packages = ("io.delta:delta-spark_{scala}:4.0.0",)
    spark_settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    is_fed = False
    has_databases = True

    def require_parts(self) -> None:
        try:
            import psycopg  # noqa: F401
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise MissingPartError(
                f"the pipeline cdc needs {error.name}: pip install psycopg[binary] pyarrow"
            ) from None
        program("initdb")
        program("postgres")

    def make_input(self, seed: int, size: int) -> dict[str, list[Record]]:
        return {"capture": [Record("sql", None, None, 0, fact=edits) for edits in make_workload(seed, size)]}

    def expected(self, records: Sequence[Record]) -> Results:
        tables: dict[str, dict[int, dict[str, Any]]] = {table: {} for table in TABLES}
        changes: Counter[str] = Counter()
        for edits in (record.fact for record in records):
            for edit in edits:
                if edit.op != "alter":
                    changes[f"{edit.table} {edit.op[0].replace('i', 'c')}"] += 1
                _apply(tables, edit)
        results: Results = {"changes applied to the target": dict(changes)}
        for table, rows in tables.items():
            state = {str(row_id): _without_nulls({"id": row_id} | row) for row_id, row in rows.items()}
            results |= {f"{kind} {table}": state for kind in ("topic", "delta", "postgres")}
        return results

    def make_databases(self, folder: Path) -> Databases:
        return PostgresServers(("source", "target"), folder)

    def prepare(self, systems: Systems) -> None:
        import psycopg

        with psycopg.connect(systems.databases["source"], autocommit=True) as connection:
            for statement in CREATE:
                connection.execute(statement)

    def accompany(self, systems: Systems, stage: str) -> None:
        begin = time.monotonic()
        for number, record in enumerate(systems.records):
            due = begin + systems.seconds * number / len(systems.records)
            time.sleep(max(0.0, due - time.monotonic()))
            edits = record.fact

            def run(connection: Any, number: int = number, edits: Sequence[Edit] = edits) -> None:
                # The answer to a commit may be lost with the server: the number says that it was done.
                if connection.execute("SELECT last FROM workload").fetchone()[0] >= number:
                    return
                for edit in edits:
                    connection.execute(*_statement(edit))
                connection.execute("UPDATE workload SET last = %s", (number,))

            in_transaction(systems.databases["source"], run)

    def start(self, streams: Streams, stage: str) -> None:
        capture = Capture(streams)
        streams.work(capture.step)
        changes = streams.read(*TABLES.values()).where("value IS NOT NULL")
        streams.each_batch(changes, "delta", lambda batch, _: merge_into_delta(streams, batch))
        target = streams.databases["target"]
        streams.each_batch(changes, "postgres", lambda batch, number: apply_to_target(streams, target, batch, number))

    def results(self, outcome: Outcome) -> Results:
        def read_counts(connection: Any) -> Table:
            rows = connection.execute("SELECT table_name, op, changes FROM change_counts").fetchall()
            return {f"{table} {op}": changes for table, op, changes in rows}

        target = outcome.databases["target"]
        results: Results = {"changes applied to the target": in_transaction(target, read_counts)}
        for table, topic in TABLES.items():
            latest = last_per_key((record.key, record.value) for record in outcome.read(topic))
            after = [json.loads(value)["payload"]["after"] for value in latest.values()]
            results[f"topic {table}"] = _by_id(row for row in after if row is not None)
            results[f"delta {table}"] = _by_id(read_delta_rows(_delta_folder(outcome.folder, table)))
            results[f"postgres {table}"] = _by_id(in_transaction(target, partial(_rows, table)))
        return results


# Capture


class Capture:
    """Takes changes out of the slot and writes them to Kafka, transaction by transaction of the database."""

    def __init__(self, streams: Streams) -> None:
        self._address = streams.databases["source"]
        self._topics = {table: streams.topic(topic) for table, topic in TABLES.items()}
        marker = streams.topic(TABLES["customers"])
        self._sink = TransactionalSink(streams.bootstrap_servers, f"capture-{marker}", marker)

    def step(self) -> bool:
        """Write what the slot has; returns True if there was something. Waits for a database that is away."""
        return in_transaction(self._address, self._take)

    def _take(self, connection: Any) -> bool:
        messages = [bytes(row[0]) for row in connection.execute(PEEK).fetchall()]
        # Each call of the function describes all relations anew.
        transactions = list(Decoder().transactions(messages))
        written = self._sink.written()
        new = [transaction for transaction in transactions if transaction.end_lsn > written]
        if new:
            self._sink.write(lambda: (row for one in new for row in self._records(one)), new[-1].end_lsn)
        if transactions:
            # From here on the slot need not give them again. A crash before it costs a look at their positions.
            lsn = transactions[-1].end_lsn
            connection.execute("SELECT pg_replication_slot_advance('capture', %s::pg_lsn)", (_lsn_text(lsn),))
        return bool(transactions)

    def _records(self, transaction: Transaction) -> Iterator[Mapping[str, Any]]:
        for change in transaction.changes:
            topic = self._topics[change.relation.name]
            key = json.dumps({"id": (change.after or change.before or {})["id"]})
            yield {"topic": topic, "key": key, "value": json.dumps(envelope(change, transaction))}
            if change.op == "d":
                yield {"topic": topic, "key": key, "value": None}


def envelope(change: Change, transaction: Transaction) -> dict[str, Any]:
    """A change as Debezium writes it, with the schema of the rows."""
    relation = change.relation
    source = {
        "connector": "postgresql",
        "schema": relation.schema,
        "table": relation.name,
        "txId": transaction.xid,
        "lsn": transaction.end_lsn,
        "ts_ms": transaction.committed_ms,
    }
    payload = {"before": change.before, "after": change.after, "source": source, "op": change.op}
    return {"schema": _schema(relation), "payload": payload | {"ts_ms": transaction.committed_ms}}


def _schema(relation: Relation) -> dict[str, Any]:
    fields = [{"field": one.name, "type": one.connect_type, "optional": True} for one in relation.columns]
    row = {"type": "struct", "optional": True, "fields": fields}
    return {
        "type": "struct",
        "name": f"{relation.name}.Envelope",
        "fields": [row | {"field": "before"}, row | {"field": "after"}],
    }


def columns_of(value: str | bytes) -> dict[str, str]:
    """Names and Connect types of the columns, from an envelope."""
    fields = json.loads(value)["schema"]["fields"]
    (after,) = (field for field in fields if field["field"] == "after")
    return {column["field"]: column["type"] for column in after["fields"]}


# The two sinks


def merge_into_delta(streams: Streams, batch: DataFrame) -> None:
    """The last state of each key of a trigger, merged; run again, it gives the same table."""
    from pyspark.sql import functions as f

    spark = batch.sparkSession
    value = f.col("value").cast("string")
    lsn = f.get_json_object(value, "$.payload.source.lsn").cast("bigint")
    for table, topic in TABLES.items():
        rows = batch.where(f.col("topic") == streams.topic(topic)).select(
            "key", "offset", value.alias("value"), lsn.alias("lsn")
        )
        newest = rows.orderBy(f.desc("lsn")).limit(1).collect()
        if not newest:
            continue
        columns = {name: SPARK_TYPES[kind] for name, kind in columns_of(newest[0]["value"]).items()}
        ddl = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
        last = rows.groupBy("key").agg(f.max_by("value", "offset").alias("value"))
        row = f.coalesce(f.get_json_object("value", "$.payload.after"), f.get_json_object("value", "$.payload.before"))
        op = f.get_json_object("value", "$.payload.op").alias("op")
        last.select(op, f.from_json(row, ddl).alias("row")).select("op", "row.*").createOrReplaceTempView("changes")
        name = f"delta.`{_delta_folder(streams.folder, table)}`"
        spark.sql(f"CREATE TABLE IF NOT EXISTS {name} ({ddl}) USING DELTA")
        there = set(spark.table(name).columns)
        for missing in columns.keys() - there:
            spark.sql(f"ALTER TABLE {name} ADD COLUMNS (`{missing}` {columns[missing]})")
        names, values = (", ".join(f"{side}`{one}`" for one in columns) for side in ("", "s."))
        changed = ", ".join(f"t.`{one}` = s.`{one}`" for one in columns)
        spark.sql(
            f"MERGE INTO {name} t USING changes s ON t.id = s.id WHEN MATCHED AND s.op = 'd' THEN DELETE "  # noqa: S608
            f"WHEN MATCHED THEN UPDATE SET {changed} "
            f"WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT ({names}) VALUES ({values})"
        )


def apply_to_target(streams: Streams, target: str, batch: DataFrame, number: int) -> None:
    """All changes of a trigger in one transaction, with its number: it is applied once, however often it runs."""
    rows = batch.select("topic", "value").orderBy("topic", "partition", "offset").collect()
    tables = {streams.topic(topic): table for table, topic in TABLES.items()}

    def run(connection: Any) -> None:
        connection.execute("CREATE TABLE IF NOT EXISTS applied (query text PRIMARY KEY, batch bigint NOT NULL)")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS change_counts "
            "(table_name text, op text, changes bigint NOT NULL, PRIMARY KEY (table_name, op))"
        )
        done = connection.execute("SELECT batch FROM applied WHERE query = 'postgres'").fetchone()
        if done is not None and done[0] >= number:
            return
        columns: dict[str, set[str]] = {}
        for row in rows:
            _apply_change(connection, tables[row["topic"]], bytes(row["value"]), columns)
        connection.execute(
            "INSERT INTO applied VALUES ('postgres', %s) ON CONFLICT (query) DO UPDATE SET batch = EXCLUDED.batch",
            (number,),
        )

    in_transaction(target, run)


def _apply_change(connection: Any, table: str, value: bytes, known: dict[str, set[str]]) -> None:
    from psycopg import sql

    payload, columns = json.loads(value)["payload"], columns_of(value)
    name = sql.Identifier(table)
    if not columns.keys() <= known.get(table, set()):
        connection.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} (id bigint PRIMARY KEY)").format(name))
        for column, kind in columns.items():
            added = sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} {}")
            connection.execute(added.format(name, sql.Identifier(column), sql.SQL(POSTGRES_TYPES[kind])))
        known[table] = set(columns)
    if payload["op"] == "d":
        connection.execute(sql.SQL("DELETE FROM {} WHERE id = %s").format(name), (payload["before"]["id"],))
    else:
        after = payload["after"]
        own = [sql.Identifier(column) for column in after]
        update = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(column) for column in own)
        upsert = sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT (id) DO UPDATE SET {}")
        places = sql.SQL(", ").join([sql.Placeholder()] * len(own))
        connection.execute(upsert.format(name, sql.SQL(", ").join(own), places, update), list(after.values()))
    connection.execute(
        "INSERT INTO change_counts VALUES (%s, %s, 1) "
        "ON CONFLICT (table_name, op) DO UPDATE SET changes = change_counts.changes + 1",
        (table, payload["op"]),
    )


# The workload


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


def _statement(edit: Edit) -> tuple[Any, list[Any]]:
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


def _apply(tables: dict[str, dict[int, dict[str, Any]]], edit: Edit) -> None:
    rows = tables[edit.table]
    if edit.op == "delete":
        del rows[edit.row_id]
    elif edit.op != "alter":
        rows[edit.row_id] = rows.get(edit.row_id, {}) | dict(edit.values)


# Databases


def in_transaction(address: str, run: Callable[[Any], T]) -> T:
    """Run something in a transaction of a new connection, again while the database is away.

    `run` may be called after a commit whose answer was lost, and must see that it was done. Raises psycopg.Error when
    the database stays away.
    """
    import psycopg

    deadline = time.monotonic() + RETRY_FOR_S
    while True:
        try:
            with psycopg.connect(address) as connection:
                return run(connection)
        except psycopg.OperationalError as error:
            if time.monotonic() > deadline:
                raise
            say(f"the database is away: {str(error).splitlines()[0]}")
            time.sleep(RETRY_PAUSE_S)


def _rows(table: str, connection: Any) -> list[dict[str, Any]]:
    from psycopg import sql
    from psycopg.rows import dict_row

    with connection.cursor(row_factory=dict_row) as cursor:
        found: list[dict[str, Any]] = cursor.execute(
            sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))
        ).fetchall()
    return found


def _by_id(rows: Any) -> Table:
    return rows_once((str(row["id"]), _without_nulls(row)) for row in rows)


def _without_nulls(row: Mapping[str, Any]) -> dict[str, Any]:
    """A column that came later is null in one system and not there in another."""
    return {name: value for name, value in row.items() if value is not None}


def _delta_folder(folder: Path, table: str) -> Path:
    return folder / "delta" / table


def _lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


PIPELINE = ChangeDataCapture()
