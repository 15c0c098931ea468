"""The facts that a broker has told members of the new groups and clients of telemetry, for a script's next requests."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import Any

from pykbroker.protocol.messages.consumer_group_heartbeat import TopicPartitions
from pykbroker.protocol.messages.share_fetch import AcknowledgementBatch
from tests.differential.script import Ref

SHARE_SESSION_ERRORS = (122, 123)
"""SHARE_SESSION_NOT_FOUND and INVALID_SHARE_SESSION_EPOCH: the member begins a new session."""
UNKNOWN_SERVER_ERROR = -1
"""The session has counted a request that fails later."""
UNKNOWN_SUBSCRIPTION = 4711


class MembersTold:
    """Answers by member, which is the text "group member", and by client. Requests are those that were sent."""

    KINDS = frozenset(
        (
            "member_epoch",
            "share_epoch",
            "active_tasks",
            "standby_tasks",
            "assigned",
            "acquired",
            "client",
            "subscription",
        )
    )
    """Kinds of references that are known here."""

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}
        self._share_epochs: dict[str, int] = {}
        self._tasks: dict[tuple[str, str], list[Any]] = {}
        self._acquired: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._subscribed: dict[str, dict[str, set[str]]] = defaultdict(dict)
        self._internal: dict[str, set[str]] = defaultdict(set)
        self._drawn: list[bytes] = []
        self._subscriptions: dict[bytes, int] = {}

    @property
    def has_share_sessions(self) -> bool:
        """True once a share session was begun."""
        return bool(self._share_epochs)

    def known(self, ref: Ref, tilde: str) -> Any:
        """The value of a reference of `KINDS`, whose name has the script's own in the place of the tilde."""
        if ref.kind == "member_epoch":
            return self._epochs.get(ref.name, 0) + ref.shift
        if ref.kind == "share_epoch":
            return self._share_epochs.get(ref.name, 0) + ref.shift
        if ref.kind in ("active_tasks", "standby_tasks", "assigned"):
            return self._tasks.get((ref.name, ref.kind), [])
        if ref.kind == "acquired":
            held = sorted(self._acquired.pop(ref.name, ()))
            return [
                AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[ref.number])
                for first, last in held
            ]
        client = hashlib.md5(f"{tilde}{ref.number}".encode()).digest()
        if ref.number < 0 and self._drawn:
            client = self._drawn[-1]
        if ref.kind == "client":
            return client
        assert ref.kind == "subscription"
        return self._subscriptions.get(client, UNKNOWN_SUBSCRIPTION) ^ ref.shift

    def learn_heartbeat(self, request: Any, answer: Any) -> None:
        """The epoch of a member of a consumer group, a share group or a Streams group."""
        if answer.error_code == 0:
            self._epochs[_name(request)] = max(answer.member_epoch, 0)

    def learn_tasks(self, request: Any, answer: Any) -> None:
        """The tasks of a member of a Streams group."""
        for role in ("active_tasks", "standby_tasks"):
            tasks = getattr(answer, role)
            if answer.error_code == 0 and tasks is not None:
                self._tasks[_name(request), role] = tasks

    def learn_assigned(self, request: Any, answer: Any) -> None:
        """The partitions of a member of a consumer group."""
        if answer.error_code == 0 and answer.assignment is not None:
            self._tasks[_name(request), "assigned"] = [
                TopicPartitions(topic_id=topic.topic_id, partitions=topic.partitions)
                for topic in answer.assignment.topic_partitions
            ]

    def learn_share_session(self, request: Any, answer: Any) -> None:
        """The next epoch of a share session, after a ShareFetch or a ShareAcknowledge."""
        epoch = request.share_session_epoch
        if answer.error_code in (0, UNKNOWN_SERVER_ERROR):
            self._share_epochs[_name(request)] = 0 if epoch == -1 else epoch + 1
        elif answer.error_code in SHARE_SESSION_ERRORS:
            self._share_epochs[_name(request)] = 0

    def learn_acquired(self, request: Any, answer: Any, topics: dict[bytes, str]) -> None:
        """The records that a ShareFetch has acquired; `topics` are names by id."""
        for topic in answer.responses:
            for partition in topic.partitions:
                key = f"{_name(request)} {topics.get(topic.topic_id, '')} {partition.partition_index}"
                self._acquired[key] += [(r.first_offset, r.last_offset) for r in partition.acquired_records]

    def learn_subscription(self, answer: Any, *, is_drawn: bool) -> None:
        """A client's subscription; `is_drawn`: the broker drew the client's instance id."""
        if answer.error_code == 0:
            self._subscriptions[answer.client_instance_id] = answer.subscription_id
            if is_drawn:
                self._drawn.append(answer.client_instance_id)

    def share_topics(self, request: Any) -> set[str]:
        """Topics to which members of a share group subscribe, after a heartbeat of one of them."""
        members = self._subscribed[request.group_id]
        if request.member_epoch < 0:
            members.pop(request.member_id, None)
        elif request.subscribed_topic_names is not None:
            members[request.member_id] = set(request.subscribed_topic_names)
        return set().union(*members.values())

    def internal_topics(self, request: Any) -> set[str]:
        """Internal topics of the topologies that members of a Streams group have sent, after another heartbeat."""
        names = self._internal[request.group_id]
        for subtopology in request.topology.subtopologies if request.topology is not None else ():
            internal = (*subtopology.state_changelog_topics, *subtopology.repartition_source_topics)
            names |= {topic.name for topic in internal if topic.name}
        return names


def _name(request: Any) -> str:
    return f"{request.group_id} {request.member_id}"
