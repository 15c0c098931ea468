"""Sends the requests of a case, and says what came back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from interop_tests.frames.cases import Case, Step
from interop_tests.frames.layouts import Api, Message, apis
from interop_tests.frames.match import has_retriable_error, substitute
from interop_tests.wire import Connection, ConnectionClosed

CORRELATION_ID = 4242
PAUSE_S = 0.05
CLOSED: Message = {"Closed": True}
"""Stands for the reply where the broker closes the connection in place of one."""


class Broker:
    """A broker as the cases need it before their first request.

    Attributes:
        offered: lowest and highest version of each API by its name.
        variables: `$node`, `$host`, `$port` and `$cluster`.
        node_count: how many brokers the cluster has.
    """

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        with Connection(bootstrap) as connection:
            versions = self._ask(connection, "ApiVersions", 0, {})["ApiKeys"]
            by_key = {offer["ApiKey"]: (offer["MinVersion"], offer["MaxVersion"]) for offer in versions}
            self.offered = {api.name: by_key[api.key] for api in apis().values() if api.key in by_key}
            cluster = self._ask(connection, "Metadata", 2, {"Topics": []})
            self.node_count = len(cluster["Brokers"])
            node = cluster["Brokers"][0]
            self.variables = {
                "$node": node["NodeId"],
                "$host": node["Host"],
                "$port": node["Port"],
                "$cluster": cluster["ClusterId"],
            }
            # The first one makes the topics of groups and of transactions.
            for kind in (0, 1):
                self.until_settled(connection, Step("FindCoordinator", {"Key": "frames", "KeyType": kind}, 1))

    def until_settled(self, connection: Connection, step: Step, timeout_s: float = 20.0) -> Message:
        """Asks until the reply has no error that goes away by itself."""
        deadline = time.monotonic() + timeout_s
        assert step.version is not None
        while True:
            reply = self._ask(connection, step.api, step.version, step.request)
            if not has_retriable_error(reply) or time.monotonic() > deadline:
                return reply
            time.sleep(PAUSE_S)

    def lacks(self, case: Case, version: int) -> str:
        """Reason that a case cannot be tried with this broker; "" when it can."""
        for step in case.steps:
            lowest, highest = self.offered.get(step.api, (0, -1))
            wanted = version if step.version is None else step.version
            if not lowest <= wanted <= highest:
                return f"the broker does not offer {step.api} version {wanted}"
        return "" if self.node_count == 1 else "raw frames are for a cluster of one broker"

    def _ask(self, connection: Connection, api: str, version: int, request: Message) -> Message:
        frame = connection.exchange(apis()[api].encode_request(version, CORRELATION_ID, request))
        return apis()[api].decode_reply(version, frame)


def play(
    connection: Connection,
    case: Case,
    version: int,
    variables: dict[str, Any],
    judge: Callable[[int, Api, int, Message | None, bytes], bool],
    timeout_s: float,
) -> None:
    """Sends the steps of a case in order.

    Args:
        variables: those of the broker and the names; the judge adds what replies say.
        judge: is told step number, API, version, decoded reply (None when it cannot be decoded, CLOSED when there was
            none) and the frame. When it says no, the step is repeated as long as the reply has an error that goes
            away, up to timeout_s.
    """
    for number, step in enumerate(case.steps):
        api, used = apis()[step.api], version if step.version is None else step.version
        payload = api.encode_request(used, CORRELATION_ID, _typed(substitute(step.request, variables)))
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                frame = connection.exchange(payload)
            except ConnectionClosed:
                judge(number, api, used, CLOSED, b"")
                return
            try:
                reply: Message | None = api.decode_reply(used, frame)
            except ValueError:
                reply = None
            if judge(number, api, used, reply, frame):
                break
            if not has_retriable_error(reply) or time.monotonic() > deadline:
                return
            time.sleep(PAUSE_S)


def _typed(request: Message) -> Message:
    """DescribeConfigs names a broker by its number in text."""
    for resource in request.get("Resources", []):
        resource["ResourceName"] = str(resource["ResourceName"])
    return request
