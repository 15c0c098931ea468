"""Change data capture without databases: pgoutput's messages, envelopes, the workload, the files of a Delta table."""

from __future__ import annotations

import json
import struct
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from jobs import cdc
from jobs.cdc import PIPELINE
from jobs.cdc_sinks import remove_half_made_table
from jobs.cdc_source import lacking
from jobs.cdc_workload import make_workload
from pipeline import command_line, postgres
from pipeline.debezium import columns_of, envelope
from pipeline.model import MissingPartError
from pipeline.parquet import listed_delta_files
from pipeline.pgoutput import Decoder, PgOutputError

MICROS_PER_S = 1_000_000
TYPES = {"id": (23, 1), "name": (25, 0), "is_paid": (16, 0), "share": (701, 0)}


def begin(xid: int) -> bytes:
    return b"B" + struct.pack(">QqI", 7, 0, xid)


def commit(end_lsn: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, end_lsn - 1, end_lsn, 5 * MICROS_PER_S)


def relation(*names: str) -> bytes:
    columns = b"".join(
        struct.pack(">B", TYPES[name][1]) + name.encode() + b"\0" + struct.pack(">Ii", TYPES[name][0], -1)
        for name in names
    )
    return b"R" + struct.pack(">I", 99) + b"public\0things\0f" + struct.pack(">H", len(names)) + columns


def row(*values: str | None) -> bytes:
    def one(value: str | None) -> bytes:
        return b"n" if value is None else b"t" + struct.pack(">I", len(value)) + value.encode()

    return struct.pack(">H", len(values)) + b"".join(one(value) for value in values)


def test_a_transaction_with_each_kind_of_change() -> None:
    oid = struct.pack(">I", 99)
    messages = [
        begin(3),
        relation("id", "name", "is_paid"),
        b"I" + oid + b"N" + row("1", "Ann", "t"),
        b"U" + oid + b"O" + row("1", "Ann", "t") + b"N" + row("1", None, "f"),
        b"U" + oid + b"N" + row("1", "Bob", "f"),
        b"D" + oid + b"O" + row("1", "Bob", "f"),
        commit(500),
        begin(4),
        relation("id", "name", "is_paid", "share"),
        b"I" + oid + b"N" + row("2", "Eve", None, "0.5"),
        commit(600),
    ]
    first, second = Decoder().transactions(messages)
    assert (first.xid, first.end_lsn, first.committed_ms) == (3, 500, 946_684_805_000)
    assert [(change.op, change.before, change.after) for change in first.changes] == [
        ("c", None, {"id": 1, "name": "Ann", "is_paid": True}),
        ("u", {"id": 1, "name": "Ann", "is_paid": True}, {"id": 1, "name": None, "is_paid": False}),
        ("u", None, {"id": 1, "name": "Bob", "is_paid": False}),
        ("d", {"id": 1, "name": "Bob", "is_paid": False}, None),
    ]
    assert second.changes[0].after == {"id": 2, "name": "Eve", "is_paid": None, "share": 0.5}
    told = json.dumps(envelope(second.changes[0], second))
    assert columns_of(told) == {"id": "int32", "name": "string", "is_paid": "boolean", "share": "double"}
    assert json.loads(told)["payload"]["source"]["lsn"] == 600


def test_a_value_that_was_not_sent_is_left_out() -> None:
    unchanged = struct.pack(">H", 2) + b"t" + struct.pack(">I", 1) + b"1" + b"u"
    update = b"U" + struct.pack(">I", 99) + b"N" + unchanged
    (transaction,) = Decoder().transactions([begin(1), relation("id", "name"), update, commit(10)])
    assert transaction.changes[0].after == {"id": 1}


@pytest.mark.parametrize("message", [b"?", b"I" + struct.pack(">I", 98) + b"N" + row("1")])
def test_what_cannot_be_understood_is_refused(message: bytes) -> None:
    with pytest.raises(PgOutputError):
        list(Decoder().transactions([begin(1), message]))


def test_the_workload_edits_only_rows_that_are_there_and_adds_a_column_on_the_way() -> None:
    there: dict[str, set[int]] = {"customers": set(), "purchases": set()}
    ops = set()
    for edits in make_workload(5, 400):
        for edit in edits:
            ops.add(edit.op)
            rows = there[edit.table]
            assert (edit.row_id in rows) == (edit.op in ("update", "delete"))
            rows.discard(edit.row_id)
            rows |= {edit.row_id} if edit.op in ("insert", "update") else set()
    assert ops == {"insert", "update", "delete", "alter"}
    expected = PIPELINE.expected(PIPELINE.make_input(5, 400)["capture"])
    assert {int(key) for key in expected["delta customers"]} == there["customers"]
    assert "city" in json.dumps(expected["delta customers"])


def test_the_files_of_a_delta_table_are_those_added_and_not_removed(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    actions: list[list[dict[str, Any]]] = [
        [{"metaData": {}}, {"add": {"path": "a.parquet"}}],
        [{"remove": {"path": "a.parquet"}}, {"add": {"path": "b%20c"}}],
    ]
    for number, commit_actions in enumerate(actions):
        (log / f"{number:020}.json").write_text("\n".join(json.dumps(action) for action in commit_actions))
    assert listed_delta_files(tmp_path) == [tmp_path / "b c"]
    (log / f"{2:020}.json").write_text(json.dumps({"add": {"path": "d", "deletionVector": {"x": 1}}}))
    with pytest.raises(ValueError, match="deletion vectors"):
        listed_delta_files(tmp_path)


class FakeSource:
    """A connection to a source database that has what it is given."""

    def __init__(self, level: str = "logical", published: Sequence[str] = (), slot: tuple[str, str] | None = None):
        self._level, self._published, self._slot = level, published, slot
        self._rows: list[tuple[str, ...]] = []

    def execute(self, statement: str, parameters: Sequence[str] = ()) -> FakeSource:
        if "wal_level" in statement:
            self._rows = [(self._level,)]
        elif "pg_publication_tables" in statement:
            assert parameters == ("changes",)
            self._rows = [(table,) for table in self._published]
        else:
            assert parameters == ("capture",)
            self._rows = [(*self._slot, "postgres")] if self._slot else []
        return self

    def fetchone(self) -> tuple[str, ...] | None:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[tuple[str, ...]]:
        return self._rows


BOTH = ("customers", "purchases")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (FakeSource("replica"), "has wal_level replica: run ALTER SYSTEM"),
        (FakeSource(), "has no publication changes with tables: run CREATE PUBLICATION changes FOR TABLE customers"),
        (FakeSource(published=["customers"]), "does not publish purchases: run ALTER PUBLICATION changes ADD TABLE"),
        (FakeSource(published=BOTH), "no replication slot capture: run SELECT pg_create_logical_replication"),
        (FakeSource(published=BOTH, slot=("wal2json", "postgres")), "of the plugin wal2json in the database postgres"),
        (
            FakeSource(published=BOTH, slot=("pgoutput", "other")),
            "in the database other: drop that one, and run SELECT",
        ),
    ],
)
def test_a_part_that_the_source_database_lacks_is_said_with_its_statement(source: FakeSource, said: str) -> None:
    assert said in (lacking(source) or "")


def test_a_source_database_that_has_all() -> None:
    assert lacking(FakeSource(published=BOTH, slot=("pgoutput", "postgres"))) is None


def test_a_job_asks_its_databases_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: str) -> None:
        raise MissingPartError(f"nothing at {address}")

    monkeypatch.setattr(cdc, "require_source", refuse)
    for name in ("require_modules", "require_topics", "require_folder"):
        monkeypatch.setattr(command_line, name, lambda *_: None)
    options = Namespace(
        folder=None,
        databases={"source": "here", "target": "there"},
        bootstrap_servers="",
        suffix="",
        second_bootstrap_servers="",
    )
    with pytest.raises(MissingPartError, match="nothing at here"):
        command_line.require_parts_of_job(PIPELINE, options)


def test_a_database_that_is_away_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class OperationalError(Exception):
        """psycopg's."""

    answers = [OperationalError("closed\nin two lines"), OperationalError("refused"), OperationalError("starting"), 5]

    def connect(address: str) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return nullcontext(f"{address} {answer}")

    psycopg: Any = ModuleType("psycopg")
    psycopg.OperationalError, psycopg.connect = OperationalError, connect
    monkeypatch.setitem(sys.modules, "psycopg", psycopg)
    monkeypatch.setattr(postgres, "RETRY_PAUSE_S", 0.0)
    assert postgres.in_transaction("here", lambda connection: connection) == "here 5"
    assert capsys.readouterr().err == "the database is away: closed\n"


def test_a_delta_log_without_a_commit_is_removed(tmp_path: Path) -> None:
    """A job that is killed while it makes the table leaves the directory, which Delta takes for the table."""
    log = tmp_path / "customers" / "_delta_log"
    (log / "_staged_commits").mkdir(parents=True)
    (log / ".00000000000000000000.json.0f5c.tmp").write_text("{}")
    remove_half_made_table(log.parent)
    assert not log.exists()
    remove_half_made_table(log.parent)


def test_a_delta_log_with_a_commit_stays(tmp_path: Path) -> None:
    log = tmp_path / "customers" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("{}")
    remove_half_made_table(log.parent)
    assert [path.name for path in log.iterdir()] == ["00000000000000000000.json"]
