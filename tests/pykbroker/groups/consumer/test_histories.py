"""Consumer groups under random histories: owners, targets, and what another coordinator reads from the log."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.shard import GroupShard
from tests.pykbroker.groups.consumer.rig import Client, Rig, settle
from tests.pykbroker.groups.histories import run_to_the_end
from tests.pykbroker.groups.shard_rig import GROUP

TOPICS = ("t", "u", "v")


def owners(group: ConsumerGroup) -> None:
    """No partition has two members that own it or have yet to give it up."""
    seen: dict[tuple[bytes, int], str] = {}
    for member_id, member in group.members.items():
        for owned in (member.assigned, member.pending_revocation):
            for topic, partitions in owned.items():
                for number in partitions:
                    assert seen.setdefault((topic, number), member_id) == member_id
    for (topic, number), member_id in seen.items():
        assert group.owner_epoch(topic, number) == group.members[member_id].member_epoch


def stored_state(shard: GroupShard) -> Any:
    """All that must be the same for another coordinator."""
    return {
        group_id: (
            group.epoch,
            group.metadata_hash,
            group.assignment_epoch,
            group.assignment_timestamp_ms,
            group.members,
            {member_id: dict(target) for member_id, target in group.targets.items()},
            group.static_ids,
            group.resolved,
            group.subscriptions.by_name,
            group.subscriptions.by_regex,
            group.subscriptions.regexes,
            group.classic_member_count,
        )
        for group_id, group in shard.consumer.by_id.items()
    }


class History:
    """Clients of one group that join, leave, stop, change their minds and miss responses by chance."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        interval_ms = self.random.choice((0, 1_000))
        is_replicated = self.random.random() < 0.3
        self.rig = Rig({"t": 5, "u": 3}, is_replicated=is_replicated, assignment_interval_ms=interval_ms)
        self.members: list[Client] = []
        self.count = 0

    def step(self) -> None:
        choice = self.random.random()
        rig, clients = self.rig, self.members
        if choice < 0.1 and len(clients) < 6:
            self.join()
        elif choice < 0.13 and clients:
            clients.pop(self.random.randrange(len(clients))).leave()
        elif choice < 0.15 and clients:
            clients.pop(self.random.randrange(len(clients)))  # it stops without a word
        elif choice < 0.19 and clients:
            client = self.random.choice(clients)
            if client.epoch > 0 and client.topics is not None:
                client.subscribe(self.some_topics())
        elif choice < 0.22:
            rig.set_topics(**{self.random.choice(TOPICS): self.random.randrange(0, 8)})
        elif choice < 0.3 and clients:
            client = self.random.choice(clients)
            client.holds = not client.holds
        elif choice < 0.4:
            rig.advance(self.random.choice((100, 1_000, 5_000, 20_000)))
        elif choice < 0.5:
            rig.resolve_regexes()
            rig.replicate()
        elif clients:
            client = self.random.choice(clients)
            epoch, owned = client.epoch, client.owned
            client.beat()
            if self.random.random() < 0.05:
                client.epoch, client.owned = epoch, owned  # the response was lost
        if GROUP in rig.shard.consumer.by_id:
            owners(rig.group)
            self.check_clients()

    def join(self) -> None:
        self.count += 1
        options: dict[str, str | None] = {}
        if self.random.random() < 0.3:
            options["instance_id"] = f"instance-{self.random.randrange(3)}"
        if self.random.random() < 0.2:
            options["assignor"] = self.random.choice(("uniform", "range"))
        topics: list[str] | None = self.some_topics()
        if self.random.random() < 0.2:
            topics, options["regex"] = None, self.random.choice(("[tu]", ".*", "v"))
        self.members.append(Client(self.rig, f"member-{self.count}", topics, **options))

    def some_topics(self) -> list[str]:
        return self.random.sample(TOPICS, self.random.randrange(1, 4))

    def settle(self) -> None:
        settle(*self.members, rounds=2)

    def check_clients(self) -> None:
        """Two clients that the coordinator still knows never work on the same partition."""
        seen: dict[tuple[str, int], str] = {}
        for client in self.members:
            member = self.rig.group.members.get(client.member_id)
            if member is None or client.epoch < 1:
                continue
            for place in client.partitions:
                assert seen.setdefault(place, client.member_id) == client.member_id


@pytest.mark.parametrize("seed", range(150))
def test_every_history_ends_in_its_target(seed: int) -> None:
    history = History(seed)
    live = run_to_the_end(history, lambda shard: shard.consumer.by_id, stored_state)
    if not live:
        return
    rig = history.rig
    wanted = {(topic, number) for topic in rig.group.subscriptions.topics for number in range(rig.topics.get(topic, 0))}
    owned = [place for client in live for place in client.partitions]
    assert sorted(owned) == sorted(wanted)
