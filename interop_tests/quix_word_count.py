"""A word count by Quix Streams, exactly once: `quix_word_count.py BOOTSTRAP SOURCE SINK GROUP STATE_FOLDER`.

The key of a record is a word. For each record the count of its word so far goes to the sink. The state is a RocksDB in
the folder, and a changelog topic that Quix Streams makes. It goes on until it is stopped or killed.
"""

from __future__ import annotations

import sys
from typing import Any

from quixstreams import Application  # type: ignore[import-not-found]

TRANSACTION_TIMEOUT_MS = 6_000
"""Quix Streams takes a new transactional id at each start: what a killed one has left open ends by this timeout."""


def count(value: Any, state: Any) -> int:
    """The number of records of this key so far."""
    number: int = state.get("count", 0) + 1
    state.set("count", number)
    return number


def main(bootstrap: str, source: str, sink: str, group: str, folder: str) -> None:
    """Count until told to end."""
    application = Application(
        broker_address=bootstrap,
        consumer_group=group,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=0.3,
        state_dir=folder,
        producer_extra_config={"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS},
        consumer_extra_config={"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000},
        loglevel="INFO",
    )
    words = application.topic(source, key_deserializer="str", value_deserializer="str")
    counts = application.topic(sink, key_serializer="str", value_serializer="json")
    application.dataframe(words).apply(count, stateful=True).to_topic(counts)
    application.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
