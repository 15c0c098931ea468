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
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.debezium import envelope
from pipeline.model import Databases, Pipeline
from pipeline.outcome import Outcome
from pipeline.parquet import read_delta_rows
from pipeline.pgoutput import Decoder, Transaction
from pipeline.postgres import PostgresServers, in_transaction, program
from pipeline.records import COMPACTED, Record, Results, Stage, Table, Topic, last_per_key, rows_once
from pipeline.streams import Streams
from pipeline.transactional import TransactionalSink

from jobs.cdc_sinks import apply_to_target, delta_folder, merge_into_delta
from jobs.cdc_source import PUBLICATION, SLOT, TABLES, require_source, require_target
from jobs.cdc_workload import CREATE, apply_edit, commit_once, make_workload

if TYPE_CHECKING:
    from pipeline.systems import Systems

PEEK = (
    "SELECT data FROM pg_logical_slot_peek_binary_changes("  # noqa: S608
    f"'{SLOT}', NULL, 300, 'proto_version', '1', 'publication_names', '{PUBLICATION}')"
)


class ChangeDataCapture(Pipeline):
    """The pipeline; see the module's text."""

    name = "cdc"
    summary = "change data capture: PostgreSQL to topics in Debezium's envelope, Delta tables and a second PostgreSQL"
    guarantee = "LSNs in Kafka's transactions, MERGE of last states, trigger numbers in the target's transactions"
    topics = {topic: Topic(2, COMPACTED) for topic in TABLES.values()}
    size = 600
    needs = {"psycopg": "psycopg[binary]", "pyarrow": "pyarrow"}
    stages = {"capture": Stage("changes are captured and applied")}
    packages = ("io.delta:delta-spark_{scala}:4.0.0",)
    spark_settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    is_fed = False
    database_names = ("source", "target")

    def require_parts(self) -> None:
        super().require_parts()
        program("initdb")
        program("postgres")

    def require_databases(self, addresses: Mapping[str, str]) -> None:
        require_source(addresses["source"])
        require_target(addresses["target"])

    def make_input(self, seed: int, size: int) -> dict[str, list[Record]]:
        return {"capture": [Record("sql", None, None, 0, fact=edits) for edits in make_workload(seed, size)]}

    def expected(self, records: Sequence[Record]) -> Results:
        tables: dict[str, dict[int, dict[str, Any]]] = {table: {} for table in TABLES}
        changes: Counter[str] = Counter()
        for edits in (record.fact for record in records):
            for edit in edits:
                if edit.op != "alter":
                    changes[f"{edit.table} {edit.op[0].replace('i', 'c')}"] += 1
                apply_edit(tables, edit)
        results: Results = {"changes applied to the target": dict(changes)}
        for table, rows in tables.items():
            state = {str(row_id): _without_nulls({"id": row_id} | row) for row_id, row in rows.items()}
            results |= {f"{kind} {table}": state for kind in ("topic", "delta", "postgres")}
        return results

    def make_databases(self, folder: Path) -> Databases:
        return PostgresServers(self.database_names, folder)

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
            in_transaction(systems.databases["source"], partial(commit_once, number=number, edits=record.fact))

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
            results[f"delta {table}"] = _by_id(read_delta_rows(delta_folder(outcome.folder, table)))
            results[f"postgres {table}"] = _by_id(in_transaction(target, partial(_rows, table)))
        return results


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
            connection.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", (SLOT, _lsn_text(lsn)))
        return bool(transactions)

    def _records(self, transaction: Transaction) -> Iterator[Mapping[str, Any]]:
        for change in transaction.changes:
            topic = self._topics[change.relation.name]
            key = json.dumps({"id": (change.after or change.before or {})["id"]})
            yield {"topic": topic, "key": key, "value": json.dumps(envelope(change, transaction))}
            if change.op == "d":
                yield {"topic": topic, "key": key, "value": None}


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


def _lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


PIPELINE = ChangeDataCapture()
