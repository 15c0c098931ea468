"""Changes of a database in Debezium's envelope, with the schema of their rows as Kafka Connect writes it."""

from __future__ import annotations

import json
from typing import Any

from pipeline.pgoutput import Change, Relation, Transaction


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
