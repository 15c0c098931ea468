"""The wait for changes of the metadata, with a broker in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.alter_configs import AlterConfigsResourceResponse
from pykbroker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from pykbroker.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.differential import barrier
from tests.differential.barrier import KEY, Barrier

CODES = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER]


class Broker:
    """A broker whose changes fail with these codes, one after the other, before they succeed; seen one look later."""

    def __init__(self, codes: Iterable[ErrorCode] = ()) -> None:
        self.codes = list(codes)
        self.made: list[str | None] = []
        self.seen: str | None = None

    def ask(self, request: Message, version: int) -> Any:
        if isinstance(request, IncrementalAlterConfigsRequest):
            code = self.codes.pop(0) if self.codes else ErrorCode.NONE
            if code is ErrorCode.NONE:
                self.made.append(request.resources[0].configs[0].value)
            return IncrementalAlterConfigsResponse(responses=[AlterConfigsResourceResponse(error_code=code)])
        assert isinstance(request, DescribeConfigsRequest)
        shown = [DescribeConfigsResourceResult(name=KEY, value=self.seen)]
        self.seen = self.made[-1]
        return DescribeConfigsResponse(results=[DescribeConfigsResult(configs=shown)])


def test_two_changes_are_seen() -> None:
    broker = Broker()
    Barrier(broker.ask).pass_through()
    first, second = broker.made
    assert first != second
    assert broker.seen == second


def test_a_change_that_failed_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy controller has not made it, so that nobody would ever see it."""
    monkeypatch.setattr(barrier, "RETRY_S", 0)
    broker = Broker(CODES)
    Barrier(broker.ask).pass_through()
    assert not broker.codes
    assert len(broker.made) == 2


def test_a_change_that_is_refused_ends_the_wait() -> None:
    with pytest.raises(AssertionError, match="no change can be made"):
        Barrier(Broker([ErrorCode.CLUSTER_AUTHORIZATION_FAILED]).ask).pass_through()


@pytest.mark.parametrize("codes", [CODES * 100, []])
def test_a_wait_without_an_end(monkeypatch: pytest.MonkeyPatch, codes: list[ErrorCode]) -> None:
    monkeypatch.setattr(barrier, "SEEN_S", 0)
    with pytest.raises(AssertionError, match="no change can be made" if codes else "cannot be seen"):
        Barrier(Broker(codes).ask).pass_through()
