"""Checks of changes to dynamic settings that need no cluster."""

from __future__ import annotations

import pytest

from pykbroker.config.dynamic_changes import check_resource_name
from pykbroker.protocol.error_codes import ErrorCode


@pytest.mark.parametrize("name", ["", "1", "+1", "01"])
def test_names_of_this_broker_and_of_all_brokers(name: str) -> None:
    assert not check_resource_name(name, 1).is_failure


@pytest.mark.parametrize("name", ["x", " 1", "1_0", "1.0", str(2**31), "9" * 5000])
def test_a_name_that_java_does_not_read_as_an_integer(name: str) -> None:
    error = check_resource_name(name, 1)
    assert error.code == ErrorCode.INVALID_REQUEST
    assert error.message == f"Node id must be an integer, but it is: {name}"


def test_the_name_of_another_broker() -> None:
    assert check_resource_name("2", 1).message == "Unexpected broker id, expected 1, but received 2"
