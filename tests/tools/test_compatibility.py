"""docs/compatibility.md is what the table of APIs says."""

from __future__ import annotations

import compatibility
import pytest

from pykbroker.requests.api_table import APIS, CONTROLLER_APIS


def test_the_page_is_up_to_date() -> None:
    """`python tools/compatibility.py` writes it anew."""
    assert compatibility.PAGE.read_text(encoding="utf-8") == compatibility.page()


def test_every_api_that_is_served_is_one_of_kafka() -> None:
    kafka = {api.key: api for api in compatibility.kafka_apis()}
    for key, ours in {**APIS, **CONTROLLER_APIS}.items():
        low, _, high = kafka[key].versions.partition("-")
        assert int(low) <= ours.lowest
        assert ours.highest <= int(high or low)


def test_an_api_that_is_not_served_needs_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    without = {name: reason for name, reason in compatibility.NOT_SERVED.items() if name != "StopReplica"}
    monkeypatch.setattr(compatibility, "NOT_SERVED", without)
    with pytest.raises(KeyError, match="StopReplica"):
        compatibility.page()


def test_an_api_that_is_served_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compatibility.NOT_SERVED, "Fetch", "a reason that was forgotten here")
    with pytest.raises(ValueError, match=r"listed as not served.*Fetch"):
        compatibility.page()


@pytest.mark.java
def test_kafkas_apis_are_those_of_its_jars() -> None:
    from tests.support.kafka_jars import definitions

    expected = sorted(
        (
            message["apiKey"],
            name.removesuffix("Request"),
            message["validVersions"],
            ",".join(sorted(message.get("listeners") or [])) or "-",
            bool(message.get("latestVersionUnstable")),
        )
        for name, message in definitions("kafka-clients").items()
        if message["type"] == "request"
    )
    assert [tuple(api) for api in compatibility.kafka_apis()] == expected
