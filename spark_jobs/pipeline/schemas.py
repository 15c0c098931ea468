"""The events of the pipelines: each schema once, as Spark reads it and as the generators write it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

# Any past hour does; a fixed one makes two runs with one seed the same.
BEGIN = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


class Schema:
    """Names and Spark types of the fields of an event, which is a JSON object."""

    def __init__(self, **fields: str) -> None:
        self.fields = fields

    @property
    def ddl(self) -> str:
        """The schema as from_json takes it."""
        return ", ".join(f"{name} {spark_type}" for name, spark_type in self.fields.items())

    def encode(self, **values: Any) -> bytes:
        """An event as JSON; times are datetimes. Raises TypeError for a field that the schema lacks."""
        if unknown := values.keys() - self.fields.keys():
            raise TypeError(f"no such field: {', '.join(sorted(unknown))}")
        plain = {name: iso(value) if isinstance(value, datetime) else value for name, value in values.items()}
        return json.dumps(plain).encode()


MEASUREMENT = Schema(host="STRING", metric="STRING", value="LONG", ts="TIMESTAMP")
ORDER = Schema(order_id="STRING", account="STRING", amount_cents="LONG", ts="TIMESTAMP")
PAYMENT = Schema(payment_id="STRING", order_id="STRING", account="STRING", amount_cents="LONG", ts="TIMESTAMP")
CUSTOMER = Schema(customer="STRING", name="STRING", tier="STRING", version="LONG", ts="TIMESTAMP")
PURCHASE = Schema(purchase_id="STRING", customer="STRING", amount_cents="LONG", ts="TIMESTAMP")
READING = Schema(sensor="STRING", value="LONG", ts="TIMESTAMP")


def at(seconds: float) -> datetime:
    """The time so many seconds after BEGIN, to the millisecond."""
    return BEGIN + timedelta(milliseconds=round(seconds * 1000))


def iso(time: datetime) -> str:
    """A time as the events have it: 2026-01-05T12:00:03.780Z."""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ms(time: datetime) -> int:
    """A time as Kafka has it: milliseconds since 1970."""
    return round(time.timestamp() * 1000)


def floor(time: datetime, seconds: int) -> datetime:
    """The start of the window of so many seconds that a time is in, as Spark's `window` has it."""
    return datetime.fromtimestamp(int(time.timestamp()) // seconds * seconds, UTC)
