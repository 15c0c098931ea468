"""Records what Apache Kafka replies: `python -m interop_tests.frames.record HOST:PORT [BEGINNING OF A NAME ...]`.

Versions whose replies say the same share one entry: that of the highest, from which the encoder leaves out what the
lower ones do not have.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from interop_tests.frames.cases import Case, all_cases
from interop_tests.frames.exchange import CLOSED, Broker, play
from interop_tests.frames.layouts import Api, Message, apis
from interop_tests.frames.match import ANYTHING, OTHERS, has_retriable_error, project
from interop_tests.wire import Connection

REPLIES = Path(__file__).with_name("replies.json")
SETTLE_S = 1.0

# What differs from one broker or moment to another, by field name.
_ANYTHING = {
    "LogDir", "TotalBytes", "UsableBytes", "ClientHost", "SupportedFeatures", "FinalizedFeatures",
    "FinalizedFeaturesEpoch", "LastFetchTimestamp", "LastCaughtUpTimestamp", "ReplicaDirectoryId",
    "TransactionStartTimeMs", "LastTimestamp",
}  # fmt: skip
_OF_THE_QUORUM = {"LeaderEpoch", "HighWatermark", "LogEndOffset", "Nodes"}
_NODES = {
    "NodeId", "LeaderId", "ControllerId", "BrokerId", "Replicas", "Isr", "ReplicaNodes", "IsrNodes", "ReplicaId",
}  # fmt: skip
_LEARNT = {"MemberId": "$member", "Leader": "$member", "ProducerId": "$producer_id", "SessionId": "$session"}
_NOT_LEARNT: dict[str, set[object]] = {
    "MemberId": {"", "nobody"}, "Leader": {""}, "ProducerId": {-1, 999_999}, "SessionId": {0, 77},
}  # fmt: skip
# APIs that every Kafka broker has; others depend on what it can do.
_CORE_APIS = {*range(4), *range(8, 17), *range(18, 24), 32, 33, 37, 42, 44, 47, 60}


class Recorder:
    """Turns the replies of one case and version into expected replies."""

    def __init__(self, case: Case, variables: dict[str, Any]) -> None:
        self.case = case
        self.variables = variables
        self.expected: list[Message] = []

    def judge(self, number: int, api: Api, version: int, reply: Message | None, frame: bytes) -> bool:
        """Keeps the reply; not content with an error that may go away."""
        assert reply is not None, f"{api.name} {version}: {frame.hex()}"
        if reply is CLOSED:
            print(f"closed: {api.name} {version}", file=sys.stderr)
            self.expected.append(CLOSED)
            return True
        assert api.encode_reply(version, 4242, reply) == frame, f"{api.name} {version} is not encoded as expected"
        del self.expected[number:]
        self.expected.append(self.with_holes(api.name, reply))
        return not has_retriable_error(reply)

    def with_holes(self, api: str, reply: Message) -> Message:
        """The reply with variables for what differs from one broker to another."""
        found: Message = self._holes(reply, api, "")
        if api == "CreateTopics" and self.case.api != api:
            # As preparation it need not tell all settings of the topic in each of the cases.
            found["Topics"][0]["Configs"] = ANYTHING
        elif api == "CreateTopics":
            for config in found["Topics"][0].get("Configs") or []:
                # The feature eligible.leader.replicas, where it is on, sets this one for the cluster.
                if config["Name"] == "min.insync.replicas":
                    config["ConfigSource"] = ANYTHING
        if api == "ApiVersions" and found["ApiKeys"]:
            found["ApiKeys"] = [OTHERS, *(offer for offer in found["ApiKeys"] if offer["ApiKey"] in _CORE_APIS)]
        for listing, name in (
            ("Groups", "GroupId"),
            ("TransactionStates", "TransactionalId"),
            ("ConfigResources", "ResourceName"),
        ):
            if api.startswith("List") and found.get(listing):
                ours = [entry for entry in found[listing] if str(entry.get(name, "")).startswith("$")]
                found[listing] = [OTHERS, *ours]
        return found

    def _holes(self, value: Any, api: str, name: str) -> Any:
        if isinstance(value, dict):
            return {key: self._holes(member, api, key) for key, member in value.items()}
        if name in _ANYTHING or (api == "DescribeQuorum" and name in _OF_THE_QUORUM):
            return ANYTHING
        if isinstance(value, list):
            return [self._holes(member, api, name) for member in value]
        if name in _NODES and value == self.variables["$node"]:
            return "$node"
        if name == "Port" and value == self.variables["$port"]:
            return "$port"
        if name == "TopicId" and value not in ("0" * 32, "f" * 32):
            return self._learnt("$topic_id", value)
        if name in _LEARNT and value not in _NOT_LEARNT[name]:
            return self._learnt(_LEARNT[name], value)
        if isinstance(value, str):
            if "within [" in value:  # the range of timestamps that are taken now
                return ANYTHING
            for variable in ("$topic", "$group", "$transaction", "$cluster", "$host"):
                value = value.replace(str(self.variables[variable]), variable)
        return value

    def _learnt(self, variable: str, value: Any) -> str:
        return variable if self.variables.setdefault(variable, value) == value else ANYTHING


def versions_of(case: Case, broker: Broker) -> list[int]:
    """The versions of a case that the broker offers, newest first."""
    return [version for version in reversed(case.tried) if not broker.lacks(case, version)]


def record(case: Case, broker: Broker) -> dict[str, dict[str, Message]]:
    """The expected replies of a case: by step, by range of versions."""
    found: list[dict[tuple[int, int], Message]] = [{} for _ in case.steps]
    for version in versions_of(case, broker):
        stem = f"frames-{os.urandom(4).hex()}"
        names = {"$topic": f"{stem}-topic", "$group": f"{stem}-group", "$transaction": f"{stem}-transaction"}
        recorder = Recorder(case, broker.variables | names)
        with Connection(broker.bootstrap) as connection:
            play(connection, case, version, recorder.variables, recorder.judge, SETTLE_S)
        for number, step in enumerate(case.steps):
            api, used = apis()[step.api], version if step.version is None else step.version
            merge(found[number], version, recorder.expected[number], api, used)
    return {
        f"{number} {step.api}": {f"{low}-{high}": reply for (low, high), reply in found[number].items()}
        for number, step in enumerate(case.steps)
    }


def merge(known: dict[tuple[int, int], Message], version: int, reply: Message, api: Api, used: int) -> None:
    """Adds a version's reply: to the range above it when that says the same."""
    if known:
        low, high = min(known)
        flexible = used in api.flexible
        if low == version + 1 and project(api.reply, used, known[low, high], flexible) == reply:
            known[version, high] = known.pop((low, high))
            return
    known[version, version] = reply


def main(bootstrap: str, *beginnings: str) -> None:
    """Asks everything, or the cases whose names begin so, and writes the file, a reply a line."""
    broker = Broker(bootstrap)
    known = json.loads(REPLIES.read_text()) if REPLIES.exists() else {}
    lines = []
    for case in all_cases():
        steps = record(case, broker) if case.name.startswith(beginnings or "") else known[case.name]
        if not any(steps.values()):
            print(f"not offered: {case.name}", file=sys.stderr)
            continue
        entries = [
            f"  {json.dumps(step)}: {{\n   "
            + ",\n   ".join(f"{json.dumps(key)}: {json.dumps(reply)}" for key, reply in replies.items())
            + "}"
            for step, replies in steps.items()
        ]
        lines.append(f" {json.dumps(case.name)}: {{\n" + ",\n".join(entries) + "}")
    REPLIES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
