"""Registration of a broker: what it does with the responses of controllers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.metadata.image import ClusterImage
from pykbroker.errors import KafkaError
from pykbroker.node.broker_registration import Registration
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
from pykbroker.protocol.messages.broker_registration import BrokerRegistrationResponse

OF_NEWER_SOFTWARE = 9999


class Channel:
    """Answers requests with prepared responses, and the last one for ever."""

    def __init__(self, *responses: Any) -> None:
        self._responses: Iterator[Any] = iter(responses)
        self.requests: list[Any] = []
        self._last: Any = None

    async def request(self, request: Any, timeout_ms: int) -> Any:
        await trio.lowlevel.checkpoint()
        self.requests.append(request)
        self._last = next(self._responses, self._last)
        return self._last


def registration(channel: Channel) -> Registration:
    return Registration(
        BrokerConfig.from_properties({"log.dirs": "/data"}),
        [],
        cast("Any", SimpleNamespace(cluster_id="AAAAAAAAAAAAAAAAAAAAAA")),
        lambda: [bytes(15) + b"\x80"],
        list,
        list,
        cast("Any", SimpleNamespace(image=ClusterImage())),
        cast("Any", channel),
        cast("Any", SimpleNamespace(random=random.Random(1))),
        -1,
        lambda: False,
    )


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, OF_NEWER_SOFTWARE])
async def test_an_error_is_followed_by_another_attempt_also_one_of_newer_software(code: int) -> None:
    channel = Channel(
        BrokerRegistrationResponse(error_code=code),
        BrokerRegistrationResponse(broker_epoch=7),
        BrokerHeartbeatResponse(error_code=code),
        BrokerHeartbeatResponse(is_caught_up=True),
    )
    tested = registration(channel)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tested.run)
        with trio.fail_after(5):
            await tested.caught_up()
        nursery.cancel_scope.cancel()
    assert tested.broker_epoch == 7


async def test_an_unknown_code_is_told_as_an_unknown_error() -> None:
    with pytest.raises(KafkaError) as refused:
        await registration(Channel(BrokerHeartbeatResponse(error_code=OF_NEWER_SOFTWARE)))._send_heartbeat()
    assert refused.value.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
