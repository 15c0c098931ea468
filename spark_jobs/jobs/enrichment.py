"""Enrichment: purchases joined with the customer as he was at that time, from a compacted topic that changes slowly.

    topics `customers` (compacted, key customer: name, tier, version) and `purchases` (key customer)
      -> query `enriched`  purchases of a customer in windows of a minute, which wait until the watermark has passed;
                           then a join with all versions of the topic `customers`
           -> topic `enriched`, each purchase once, by transactions

Both topics are one source, with one watermark: when it has passed a purchase, no older version of its customer can come
any more, and the newest version that is not younger than the purchase is the right one, whatever the order of arrival
was. A join that does not wait would give what happens to be there when a trigger begins. A customer without a version
gets the tier "unknown". `min.compaction.lag.ms` keeps the versions that purchases may still wait for.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pipeline.model import Pipeline
from pipeline.outcome import Outcome
from pipeline.records import COMPACTED, Record, Results, Topic, rows_once
from pipeline.schemas import CUSTOMER, PURCHASE, at, ms
from pipeline.streams import Streams, as_json, events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CUSTOMERS = 80
MINUTES = 60
WATERMARK = "5 minutes"
LATE_MAX_S = 3 * 60
CHANGES = 300
TIERS = ("basic", "silver", "gold")
UNKNOWN: dict[str, Any] = {"tier": "unknown", "version": 0}
Version = tuple[int, int, str]
"""(milliseconds from which it holds, version, tier)."""
Purchase = tuple[int, str, int]
"""(milliseconds, purchase id, amount in cents)."""


class Enrichment(Pipeline):
    """The pipeline; see the module's text."""

    name = "enrichment"
    summary = "purchases joined with their customer as of the time of the purchase, from a compacted topic"
    guarantee = "each purchase once, by transactions; the version by event time, not by arrival"
    topics = {
        "customers": Topic(config=COMPACTED | {"min.compaction.lag.ms": "3600000"}),
        "purchases": Topic(),
        "enriched": Topic(),
    }
    size = 4000

    def make_input(self, seed: int, size: int) -> dict[str, list[Record]]:
        rng = random.Random(seed)  # noqa: S311
        arrivals: list[tuple[float, Record]] = []
        versions = dict.fromkeys((f"customer-{number:02}" for number in range(CUSTOMERS)), 0)
        # One in ten has no version at first.
        changes = [(0.0, customer) for customer in list(versions)[CUSTOMERS // 10 :]]
        changes += [(rng.uniform(0, MINUTES * 60), rng.choice(list(versions))) for _ in range(CHANGES)]
        for seconds, customer in sorted(changes):
            versions[customer] += 1
            arrivals.append((_arrival(rng, seconds), _change(rng, customer, versions[customer], seconds)))
        for number in range(size):
            seconds = MINUTES * 60 * number / size
            customer = f"customer-{rng.randrange(CUSTOMERS):02}"
            arrivals.append((_arrival(rng, seconds), _purchase(rng, customer, number, seconds)))
        arrivals.sort(key=lambda arrival: arrival[0])
        closing = _purchase(rng, "closing", size, 3 * 3600)
        return {"stream": [*(record for _, record in arrivals), closing]}

    def expected(self, records: Sequence[Record]) -> Results:
        versions: dict[str, list[Version]] = {}
        purchases: list[tuple[str, Purchase]] = []
        for record in records:
            customer, one = record.fact
            if record.topic == "customers":
                versions.setdefault(customer, []).append(one)
            elif customer != "closing":
                purchases.append((customer, one))
        return {
            "enriched": {
                purchase[1]: enriched(customer, purchase, sorted(versions.get(customer, ())))
                for customer, purchase in purchases
            }
        }

    def start(self, streams: Streams, stage: str) -> None:
        from pyspark.sql import functions as f

        fields = CUSTOMER.fields | PURCHASE.fields
        ddl = ", ".join(f"{name} {kind}" for name, kind in fields.items())
        both = (
            streams.read("customers", "purchases")
            .select(f.from_json(f.col("value").cast("string"), ddl).alias("event"))
            .select("event.*")
            .where("ts IS NOT NULL AND customer IS NOT NULL")
            .withWatermark("ts", WATERMARK)
        )
        # Versions are in the windows for the sake of the watermark alone.
        purchase = f.when(
            f.col("purchase_id").isNotNull(), f.struct("purchase_id", "amount_cents", f.unix_millis("ts").alias("ms"))
        )
        waiting = both.groupBy("customer", f.window("ts", "1 minute")).agg(f.collect_list(purchase).alias("purchases"))
        ready = waiting.where(f.size("purchases") > 0).select("customer", f.explode("purchases").alias("purchase"))
        streams.append_once(ready.select("customer", "purchase.*"), "enriched", "enriched", partial(with_tier, streams))

    def results(self, outcome: Outcome) -> Results:
        rows = (json.loads(record.value or b"null") for record in outcome.read("enriched"))
        return {"enriched": rows_once((row["purchase_id"], row) for row in rows)}


def with_tier(streams: Streams, purchases: DataFrame) -> DataFrame:
    """The purchases of a trigger, as records, each with the version of its customer."""
    from pyspark.sql import functions as f

    versions = events(streams.read_batch("customers"), CUSTOMER).select(
        f.col("customer").alias("of"), f.unix_millis("ts").alias("from_ms"), "version", "tier"
    )
    in_force = (f.col("customer") == f.col("of")) & (f.col("from_ms") <= f.col("ms"))
    newest = f.max_by(f.struct("tier", "version"), f.struct("from_ms", "version")).alias("newest")
    found = purchases.join(versions, in_force, "left").groupBy("purchase_id", "customer", "amount_cents").agg(newest)
    tier = f.coalesce("newest.tier", f.lit(UNKNOWN["tier"])).alias("tier")
    version = f.coalesce("newest.version", f.lit(UNKNOWN["version"])).alias("version")
    value = as_json("purchase_id", "customer", "amount_cents", tier, version)
    return found.select(f.col("customer").alias("key"), value.alias("value"))


def enriched(customer: str, purchase: Sequence[Any], versions: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """A purchase with the newest version of the customer that is not younger; `versions` in their order."""
    row = dict(UNKNOWN)
    for from_ms, version, tier in versions:
        if from_ms <= purchase[0]:
            row = {"tier": tier, "version": version}
    return {"purchase_id": purchase[1], "customer": customer, "amount_cents": purchase[2]} | row


def _arrival(rng: random.Random, seconds: float) -> float:
    return seconds + (rng.uniform(0, LATE_MAX_S) if rng.random() < 0.1 else 0)


def _change(rng: random.Random, customer: str, version: int, seconds: float) -> Record:
    time, tier = at(seconds), rng.choice(TIERS)
    name = f"{customer.title()} {version}"
    value = CUSTOMER.encode(customer=customer, name=name, tier=tier, version=version, ts=time)
    return Record("customers", customer.encode(), value, ms(time), fact=(customer, (ms(time), version, tier)))


def _purchase(rng: random.Random, customer: str, number: int, seconds: float) -> Record:
    time, cents = at(seconds), rng.randrange(100, 50_000)
    purchase_id = f"purchase-{number}"
    value = PURCHASE.encode(purchase_id=purchase_id, customer=customer, amount_cents=cents, ts=time)
    return Record("purchases", customer.encode(), value, ms(time), fact=(customer, (ms(time), purchase_id, cents)))


PIPELINE = Enrichment()
