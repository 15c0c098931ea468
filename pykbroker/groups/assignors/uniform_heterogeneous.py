"""The uniform assignor for members with different subscriptions.

Members keep what they may have, the free partitions go to the subscriber with the fewest, and then partitions move from
the most to the least loaded subscribers of each topic, until no move makes it better or `ROUNDS_MAX` is reached.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from pykbroker.groups.assignors.spec import Assignment, MemberSpec, TopicSpec

ROUNDS_MAX = 16
"""Rounds over all topics; with overlapping subscriptions each halves the imbalance about."""

NO_OWNER = -1


def assign_heterogeneous(members: Mapping[str, MemberSpec], topics: Mapping[bytes, TopicSpec]) -> dict[str, Assignment]:
    """Target assignments by member id."""
    return _Balancer(members, topics).assign()


class _Balancer:
    def __init__(self, members: Mapping[str, MemberSpec], topics: Mapping[bytes, TopicSpec]) -> None:
        self._members = list(members.items())
        self._sizes = [0] * len(members)
        self._subscribers: dict[bytes, list[int]] = {}
        for index, (_, member) in enumerate(self._members):
            for topic_id in member.topic_ids:
                self._subscribers.setdefault(topic_id, []).append(index)
        self._owners = {topic_id: [NO_OWNER] * topics[topic_id].partition_count for topic_id in self._subscribers}
        self._order = sorted(
            self._subscribers,
            key=lambda topic_id: (
                -topics[topic_id].partition_count / len(self._subscribers[topic_id]),
                len(self._subscribers[topic_id]),
                topic_id,
            ),
        )

    def assign(self) -> dict[str, Assignment]:
        self._keep()
        for topic_id in self._order:
            self._give_free(topic_id)
        self._balance()
        targets: dict[str, dict[bytes, list[int]]] = {member_id: {} for member_id, _ in self._members}
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                targets[self._members[owner][0]].setdefault(topic_id, []).append(partition)
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in target.items()}
            for member_id, target in targets.items()
        }

    def _keep(self) -> None:
        for index, (_, member) in enumerate(self._members):
            for topic_id, partitions in member.assigned.items():
                if topic_id not in member.topic_ids:
                    continue
                owners = self._owners[topic_id]
                for partition in partitions:
                    if partition < len(owners) and owners[partition] == NO_OWNER:
                        owners[partition] = index
                        self._sizes[index] += 1

    def _give_free(self, topic_id: bytes) -> None:
        owners = self._owners[topic_id]
        free = [partition for partition, owner in enumerate(owners) if owner == NO_OWNER]
        if not free:
            return
        heap = [(self._sizes[index], index) for index in self._subscribers[topic_id]]
        heapq.heapify(heap)
        for partition in free:
            size, index = heap[0]
            owners[partition] = index
            self._sizes[index] = size + 1
            heapq.heapreplace(heap, (size + 1, index))

    def _balance(self) -> None:
        shared = [topic_id for topic_id in self._order if len(self._subscribers[topic_id]) > 1]
        for _ in range(ROUNDS_MAX):
            moves = [self._balance_topic(topic_id) for topic_id in shared]
            if not any(moves):
                return

    def _balance_topic(self, topic_id: bytes) -> bool:
        """Moves partitions of a topic from its most to its least loaded subscribers; True if one was moved."""
        sizes, owners = self._sizes, self._owners[topic_id]
        subscribers = self._subscribers[topic_id]
        loads = [sizes[index] for index in subscribers]
        if max(loads) - min(loads) <= 1:
            return False
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            owned.setdefault(owner, []).append(partition)
        least = [(sizes[index], index) for index in subscribers]
        most = [(-sizes[index], -index) for index in owned]
        heapq.heapify(least)
        heapq.heapify(most)
        has_moved = False
        while most:
            load, negative = most[0]
            giver = -negative
            if -load != sizes[giver]:
                heapq.heapreplace(most, (-sizes[giver], negative))
                continue
            if not owned[giver]:
                heapq.heappop(most)
                continue
            size, taker = least[0]
            if size != sizes[taker]:
                heapq.heapreplace(least, (sizes[taker], taker))
                continue
            if sizes[giver] - size <= 1:
                break
            partition = owned[giver].pop()
            owners[partition] = taker
            owned.setdefault(taker, [])
            sizes[giver] -= 1
            sizes[taker] += 1
            heapq.heapreplace(least, (sizes[taker], taker))
            heapq.heapreplace(most, (-sizes[giver], negative))
            has_moved = True
        return has_moved
