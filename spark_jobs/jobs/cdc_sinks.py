"""The two sinks of the pipeline `cdc`: a Delta table for each topic, and the tables of a second PostgreSQL."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.debezium import columns_of
from pipeline.postgres import in_transaction
from pipeline.streams import Streams

from jobs.cdc_source import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# From a type of a Connect schema to those of Spark and PostgreSQL.
SPARK_TYPES = {"int16": "SMALLINT", "int32": "INT", "int64": "BIGINT", "boolean": "BOOLEAN", "string": "STRING"}
POSTGRES_TYPES = {"int16": "smallint", "int32": "integer", "int64": "bigint", "boolean": "boolean", "string": "text"}


def delta_folder(folder: Path, table: str) -> Path:
    """The folder of the Delta table, in the folder of a job."""
    return folder / "delta" / table


def remove_half_made_table(folder: Path) -> None:
    """Removes the log of a Delta table that has no commit, as a job leaves it that was killed while it made the table.

    CREATE TABLE IF NOT EXISTS takes the log's directory for the table and makes nothing, and every read fails.
    """
    log = folder / "_delta_log"
    if log.is_dir() and not any(log.glob("*.json")):
        shutil.rmtree(log)


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
        remove_half_made_table(delta_folder(streams.folder, table))
        name = f"delta.`{delta_folder(streams.folder, table)}`"
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
