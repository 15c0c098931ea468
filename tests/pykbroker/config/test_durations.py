"""Durations of ISO 8601, and the setting that has one."""

from __future__ import annotations

import pytest

from pykbroker.config.definitions import ConfigError, ShareOffsetReset
from pykbroker.config.durations import duration_ms


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("PT1H", 3_600_000),
        ("P2DT3H4M5.678S", 183_845_678),
        ("pt0.5s", 500),
        ("PT-1M", -60_000),
        ("-PT1M", -60_000),
        ("P1D", 86_400_000),
    ],
)
def test_durations(text: str, expected_ms: int) -> None:
    assert duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1", "1H", "PXD", "PT1H2", "P1DT"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="ISO 8601"):
        duration_ms(text)


@pytest.mark.parametrize("value", ["by_duration:PXD", "by_duration:-PT1H", "by_duration:", "never"])
def test_p186_start_of_a_group_that_cannot_be(value: str) -> None:
    """P-186."""
    with pytest.raises(ConfigError, match="must be either 'earliest', 'latest'"):
        ShareOffsetReset().check("share.auto.offset.reset", value)
