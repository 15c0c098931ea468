"""benchmarks/spark.py: the order in which the brokers are measured."""

from __future__ import annotations

import pytest

pytest.importorskip("confluent_kafka")

from benchmarks.spark import turns


def test_each_broker_is_the_first_in_every_second_round() -> None:
    order = turns(["one batch", "catch-up"], ["pykbroker", "kafka"], 2)

    assert list(order) == [
        ("one batch", "pykbroker"),
        ("one batch", "kafka"),
        ("catch-up", "pykbroker"),
        ("catch-up", "kafka"),
        ("one batch", "kafka"),
        ("one batch", "pykbroker"),
        ("catch-up", "kafka"),
        ("catch-up", "pykbroker"),
    ]
