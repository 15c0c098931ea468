"""Event sourcing: orders and payments as events, balances rebuilt from the log at any offset or time.

    topics `orders` and `payments` (JSON events; the key is the account, which decides the partition)
      -> stage stream
           query `settled`   stream-stream join: a payment within 15 minutes after its order, else the order expires
             -> topic `settled-orders`, each order once, by transactions
           query `balances`  running sum of the payments of each account
             -> topic `balances`, key account, upserts; `payments` in it says how many payments of the log it has seen
      -> stage rebuild, a batch over `payments`
           -> topic `balances-at`, key "<place> <account>": balances as of the middle of each partition's log, as of two
              times, and as of the end

A running balance is checked in two ways: its last value by key, and each value that was ever published, against the
fold of so many first payments of the account's log.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pipeline.model import Pipeline
from pipeline.outcome import Outcome
from pipeline.records import COMPACTED, Record, Results, Stage, Topic, last_per_key, rows_once
from pipeline.schemas import ORDER, PAYMENT, at, iso, ms
from pipeline.streams import Streams, as_json, events, time_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITIONS = 3
ACCOUNTS = 40
MINUTES = 60
IN_TIME_S = 15 * 60
WATERMARK = "5 minutes"
PAID_SHARE, TOO_LATE_SHARE = 0.8, 0.1
# The places in the log to which balances are rebuilt, beside the middle and the end.
TIMES = (at(20 * 60), at(45 * 60))
CLOSING_ACCOUNT = "closing"


@dataclass(frozen=True, slots=True)
class Happened:
    """An order, or a payment of it (`payment_id` is None for an order)."""

    order_id: str
    payment_id: str | None
    account: str
    amount_cents: int
    ts: datetime


class Orders(Pipeline):
    """The pipeline; see the module's text."""

    name = "orders"
    summary = "event sourcing: orders joined with their payments, balances rebuilt from the log at any offset or time"
    guarantee = "settled orders by transactions; balances by their keys, each published value is a fold of the log"
    topics = {
        "orders": Topic(PARTITIONS),
        "payments": Topic(PARTITIONS),
        "settled-orders": Topic(PARTITIONS),
        "balances": Topic(PARTITIONS),
        "balances-at": Topic(1, COMPACTED),
    }
    size = 2500
    stages = {
        "stream": Stage("orders are settled, balances run"),
        "rebuild": Stage("balances are rebuilt from the log", is_batch=True),
    }

    def make_input(self, seed: int, size: int) -> dict[str, list[Record]]:
        rng = random.Random(seed)  # noqa: S311
        happened: list[Happened] = []
        for number in range(size):
            account = f"account-{rng.randrange(ACCOUNTS):02}"
            cents, ordered_at = rng.randrange(100, 20_000), at(MINUTES * 60 * number / size)
            order = Happened(f"order-{number}", None, account, cents, ordered_at)
            happened.append(order)
            if (chance := rng.random()) < PAID_SHARE + TOO_LATE_SHARE:
                wait_s = rng.uniform(1, IN_TIME_S - 1) if chance < PAID_SHARE else rng.uniform(IN_TIME_S + 1, 1200)
                paid_at = at((order.ts - at(0)).total_seconds() + wait_s)
                happened.append(Happened(order.order_id, f"payment-{number}", account, order.amount_cents, paid_at))
        happened.sort(key=lambda one: one.ts)
        # Behind these the watermarks of both topics pass everything that happened before. The job must not leave them
        # out: Spark does that before it computes a watermark.
        end = at(3 * 3600)
        happened += [Happened("none", payment_id, CLOSING_ACCOUNT, 0, end) for payment_id in (None, "none")]
        return {"stream": [_record(one) for one in happened]}

    def expected(self, records: Sequence[Record]) -> Results:
        happened: list[Happened] = [record.fact for record in records]
        paid = {one.order_id: one for one in happened if one.payment_id is not None}
        settled = {}
        for order in happened:
            if order.payment_id is None:
                settled[order.order_id] = _settled(order, paid.get(order.order_id))
        payments = [one for one in happened if one.payment_id is not None]
        return {
            "settled": settled,
            "balances": _balances(payments),
            "balances at": dict(_balances_at(payments)),
            "published balances": {"that are no fold of the log": 0},
        }

    def start(self, streams: Streams, stage: str) -> None:
        if stage == "stream":
            start_settling(streams)
            start_balances(streams)
        else:
            rebuild(streams)

    def results(self, outcome: Outcome) -> Results:
        settled = (json.loads(record.value or b"null") for record in outcome.read("settled-orders"))
        published = [(record.key, json.loads(record.value or b"null")) for record in outcome.read("balances")]
        rebuilt = ((record.key, json.loads(record.value or b"null")) for record in outcome.read("balances-at"))
        folds = _folds(outcome)
        wrong = sum(folds[account][balance["payments"]] != balance["balance_cents"] for account, balance in published)
        return {
            "settled": rows_once((row.pop("order_id"), row) for row in settled),
            "balances": last_per_key(published),
            "balances at": last_per_key(rebuilt),
            "published balances": {"that are no fold of the log": wrong},
        }


def start_settling(streams: Streams) -> None:
    """Each order once: paid, when its payment comes in time, or expired, when the watermark says that none will."""
    from pyspark.sql import functions as f

    orders = events(streams.read("orders"), ORDER).withWatermark("ts", WATERMARK).alias("orders")
    payments = events(streams.read("payments"), PAYMENT).withWatermark("ts", WATERMARK).alias("payments")
    in_time = f.expr(
        "orders.order_id = payments.order_id AND payments.ts >= orders.ts "
        f"AND payments.ts <= orders.ts + INTERVAL {IN_TIME_S} SECONDS"
    )
    settled = orders.join(payments, in_time, "left_outer")
    is_paid = f.col("payments.ts").isNotNull()
    value = as_json(
        "orders.order_id",
        "orders.account",
        f.when(is_paid, "paid").otherwise("expired").alias("status"),
        time_text("orders.ts").alias("ordered"),
        time_text("payments.ts").alias("paid"),
    )
    rows = settled.select(f.col("orders.account").alias("key"), value.alias("value"))
    streams.append_once(rows, "settled", "settled-orders")


def start_balances(streams: Streams) -> None:
    """The running balance of each account: its state is one row for each account, so that it needs no watermark."""
    streams.upsert(_summed(events(streams.read("payments"), PAYMENT)), "balances", "balances")


def rebuild(streams: Streams) -> None:
    """Balances as of places in the log: offsets, and times."""
    from pyspark.sql import functions as f

    topic = streams.topic("payments")
    # The end is fixed by the first start of the stage: a batch that runs again rebuilds the same.
    ends = streams.remembered("ends", lambda: _ends(streams))
    middle = {partition: offset // 2 for partition, offset in ends.items()}
    offsets = {"middle": middle, "end": ends}
    places = {place: {"endingOffsets": json.dumps({topic: wanted})} for place, wanted in offsets.items()}
    for time in TIMES:
        places[iso(time)] = {
            "startingOffsets": "earliest",
            # A partition that has nothing as late as that is read to its end.
            "endingTimestamp": str(ms(time)),
        }
    for place, options in places.items():
        payments = events(streams.read_batch("payments", **options), PAYMENT)
        rows = _summed(payments).select(f.concat_ws(" ", f.lit(place), "key").alias("key"), "value")
        streams.upsert_batch(rows, "balances-at")


def _ends(streams: Streams) -> dict[str, int]:
    records = streams.read_batch("payments")
    return {str(row["partition"]): row["count"] for row in records.groupBy("partition").count().collect()}


def _summed(payments: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    sums = payments.groupBy("account").agg(f.count("*").alias("payments"), f.sum("amount_cents").alias("balance_cents"))
    return sums.select(f.col("account").alias("key"), as_json("payments", "balance_cents").alias("value"))


def _settled(order: Happened, payment: Happened | None) -> dict[str, Any]:
    is_paid = payment is not None and (payment.ts - order.ts).total_seconds() <= IN_TIME_S
    row = {"account": order.account, "status": "paid" if is_paid else "expired", "ordered": iso(order.ts)}
    return row | ({"paid": iso(payment.ts)} if payment is not None and is_paid else {})


def _balances(payments: Sequence[Happened]) -> dict[str, Any]:
    balances: dict[str, Any] = {}
    for payment in payments:
        row = balances.setdefault(payment.account, {"payments": 0, "balance_cents": 0})
        row["payments"] += 1
        row["balance_cents"] += payment.amount_cents
    return balances


def _balances_at(payments: Sequence[Happened]) -> Iterator[tuple[str, Any]]:
    logs = [[one for one in payments if _partition(one.account) == partition] for partition in range(PARTITIONS)]
    places = {"middle": [one for log in logs for one in log[: len(log) // 2]], "end": list(payments)}
    for time in TIMES:
        places[iso(time)] = [one for one in payments if one.ts < time]
    for place, before in places.items():
        yield from ((f"{place} {account}", row) for account, row in _balances(before).items())


def _folds(outcome: Outcome) -> dict[str, list[int]]:
    """For each account its balance after each number of payments, by the log itself."""
    folds: dict[str, list[int]] = {}
    for record in outcome.read("payments"):
        fold = folds.setdefault(record.key, [0])
        fold.append(fold[-1] + json.loads(record.value or b"{}")["amount_cents"])
    return folds


def _partition(account: str) -> int:
    return 0 if account == CLOSING_ACCOUNT else int(account.removeprefix("account-")) % PARTITIONS


def _record(one: Happened) -> Record:
    fields = {"order_id": one.order_id, "account": one.account, "amount_cents": one.amount_cents, "ts": one.ts}
    topic, value = "orders", ORDER.encode(**fields)
    if one.payment_id is not None:
        topic, value = "payments", PAYMENT.encode(payment_id=one.payment_id, **fields)
    return Record(topic, one.account.encode(), value, ms(one.ts), partition=_partition(one.account), fact=one)


PIPELINE = Orders()
