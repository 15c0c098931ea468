"""Waits until a broker goes by all metadata that was written so far, as clients can tell."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

GROUP_RESOURCE = 32
KEY = "consumer.session.timeout.ms"
SEEN_S = 120.0
"""Longest wait in seconds for one change to be made and seen; only a broker that is at fault takes so long."""
RETRY_S = 0.02
RETRIABLE = {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""Errors of a broker whose controller does not answer in time, as on a busy machine."""


class Barrier:
    """Changes a setting of a group that nothing else uses, and looks for the change.

    Args:
        ask: sends a request of a version to the broker and returns its response.
    """

    def __init__(self, ask: Callable[[Message, int], Any]) -> None:
        self._ask = ask
        self._count = 0

    def pass_through(self) -> None:
        """Returns when the broker goes by all metadata that was written before the call."""
        for _ in range(2):
            # The first change that can be seen may still be going through the broker's parts; the second came after it.
            self._change_and_see()

    def _change_and_see(self) -> None:
        self._count += 1
        value = str(45_000 + self._count % 10_000)
        deadline = time.monotonic() + SEEN_S
        self._change(value, deadline)
        look = DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name="barrier", configuration_keys=[KEY])
        while True:
            results = self._ask(DescribeConfigsRequest(resources=[look]), 4).results
            if results[0].configs and results[0].configs[0].value == value:
                return
            assert time.monotonic() < deadline, f"a change of the metadata cannot be seen: {results}"
            time.sleep(0.001)

    def _change(self, value: str, deadline: float) -> None:
        """Sets the value. A change that was not made could never be seen: it is tried again until it is."""
        change = AlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name="barrier", configs=[AlterableConfig(name=KEY, value=value)]
        )
        while True:
            (result,) = self._ask(IncrementalAlterConfigsRequest(resources=[change]), 1).responses
            if result.error_code == ErrorCode.NONE:
                return
            assert result.error_code in RETRIABLE, f"no change can be made: {result}"
            assert time.monotonic() < deadline, f"no change can be made: {result}"
            time.sleep(RETRY_S)
