"""Enrichment: purchases joined with the customer as he was at that time, from a compacted topic that changes slowly.

    topics `customers` (compacted, key customer: name, tier, version) and `purchases` (key customer)
      -> query `enriched`  state for each customer (applyInPandasWithState) -> topic `enriched`, each purchase once

A purchase waits in the state of its customer until the watermark has passed it. Then no older version of the customer
can come any more, and the newest version that is not younger than the purchase is the right one, whatever the order of
arrival was. A join with a table that is read when a trigger begins would give what happens to be there at that moment.
A customer without a version gets the tier "unknown". The state keeps the version that was in force at the watermark,
and the younger ones.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.model import MissingPartError, Pipeline
from pipeline.outcome import Outcome
from pipeline.records import COMPACTED, Record, Results, Topic, rows_once
from pipeline.schemas import CUSTOMER, PURCHASE, at, ms
from pipeline.streams import Streams

if TYPE_CHECKING:
    import pandas as pd

CUSTOMERS = 80
MINUTES = 60
WATERMARK = "5 minutes"
LATE_MAX_S = 3 * 60
CHANGES = 300
TIERS = ("basic", "silver", "gold")
UNKNOWN: dict[str, Any] = {"tier": "unknown", "version": 0}
STATE_SCHEMA = "state STRING"
OUTPUT_SCHEMA = "key STRING, value STRING"
Version = tuple[int, str, int]
"""(milliseconds from which it holds, tier, version)."""
Purchase = tuple[int, str, int]
"""(milliseconds, purchase id, amount in cents)."""


class Enrichment(Pipeline):
    """The pipeline; see the module's text."""

    name = "enrichment"
    summary = "purchases joined with a slowly changing compacted topic, as it was at the time of the purchase"
    guarantee = "each purchase once, by transactions; the version by event time, not by arrival"
    topics = {"customers": Topic(config=COMPACTED), "purchases": Topic(), "enriched": Topic()}
    size = 4000

    def require_parts(self) -> None:
        try:
            import pandas  # noqa: F401
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise MissingPartError(f"the pipeline enrichment needs {error.name}: pip install {error.name}") from None

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
        from pyspark.sql.streaming.state import GroupStateTimeout

        fields = CUSTOMER.fields | PURCHASE.fields
        ddl = ", ".join(f"{name} {kind}" for name, kind in fields.items())
        both = (
            streams.read("customers", "purchases")
            .select(f.from_json(f.col("value").cast("string"), ddl).alias("event"))
            .select("event.*")
            .where("ts IS NOT NULL AND customer IS NOT NULL")
            .withColumn("ms", f.unix_millis("ts"))
            .withWatermark("ts", WATERMARK)
        )
        rows = both.groupBy("customer").applyInPandasWithState(
            enrich_group, OUTPUT_SCHEMA, STATE_SCHEMA, "append", GroupStateTimeout.EventTimeTimeout
        )
        streams.append_once(rows, "enriched", "enriched")

    def results(self, outcome: Outcome) -> Results:
        rows = (json.loads(record.value or b"null") for record in outcome.read("enriched"))
        return {"enriched": rows_once((row["purchase_id"], row) for row in rows)}


def enrich_group(key: tuple[str], frames: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """The state of one customer: takes in what has come, and gives the purchases that the watermark has passed."""
    import pandas as pd

    versions, waiting = json.loads(state.get[0]) if state.exists else ([], [])
    for frame in frames:
        for row in frame.itertuples():
            if pd.isna(row.purchase_id):
                versions.append((int(row.ms), row.tier, int(row.version)))
            else:
                waiting.append((int(row.ms), row.purchase_id, int(row.amount_cents)))
    watermark_ms = state.getCurrentWatermarkMs()
    versions.sort()
    ready = sorted(purchase for purchase in waiting if purchase[0] <= watermark_ms)
    waiting = [purchase for purchase in waiting if purchase[0] > watermark_ms]
    lines = [(key[0], json.dumps(enriched(key[0], purchase, versions))) for purchase in ready]
    in_force = max((number for number, version in enumerate(versions) if version[0] <= watermark_ms), default=0)
    state.update((json.dumps([versions[in_force:], waiting]),))
    if waiting:
        # A timeout must be later than the watermark; it fires when the watermark has passed it.
        state.setTimeoutTimestamp(max(min(purchase[0] for purchase in waiting), watermark_ms + 1))
    yield pd.DataFrame(lines, columns=["key", "value"])


def enriched(customer: str, purchase: Sequence[Any], versions: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """A purchase with the newest version of the customer that is not younger; `versions` in their order."""
    row = dict(UNKNOWN)
    for from_ms, tier, version in versions:
        if from_ms <= purchase[0]:
            row = {"tier": tier, "version": version}
    return {"purchase_id": purchase[1], "customer": customer, "amount_cents": purchase[2]} | row


def _arrival(rng: random.Random, seconds: float) -> float:
    return seconds + (rng.uniform(0, LATE_MAX_S) if rng.random() < 0.1 else 0)


def _change(rng: random.Random, customer: str, version: int, seconds: float) -> Record:
    time, tier = at(seconds), rng.choice(TIERS)
    name = f"{customer.title()} {version}"
    value = CUSTOMER.encode(customer=customer, name=name, tier=tier, version=version, ts=time)
    return Record("customers", customer.encode(), value, ms(time), fact=(customer, (ms(time), tier, version)))


def _purchase(rng: random.Random, customer: str, number: int, seconds: float) -> Record:
    time, cents = at(seconds), rng.randrange(100, 50_000)
    purchase_id = f"purchase-{number}"
    value = PURCHASE.encode(purchase_id=purchase_id, customer=customer, amount_cents=cents, ts=time)
    return Record("purchases", customer.encode(), value, ms(time), fact=(customer, (ms(time), purchase_id, cents)))


PIPELINE = Enrichment()
