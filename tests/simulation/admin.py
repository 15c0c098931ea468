"""Administrators: what they have in common, and one for topics, which come and go, partitions, leaders and settings."""

from __future__ import annotations

from typing import Generic, TypeVar

import trio

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker.protocol.messages.elect_leaders import ElectLeadersRequest
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker.protocol.messages.metadata import MetadataRequest
from tests.simulation.client import Client, Unreachable
from tests.simulation.history import History

TOPIC_RESOURCE = 2
LOOKS = 100

Key = TypeVar("Key", int, str)


class Administrator(Generic[Key]):
    """Makes changes until it is told to stop. Of what was acknowledged the cluster at the end must tell."""

    WHAT: str
    PAUSE_S: tuple[float, float]

    def __init__(self, client: Client, history: History) -> None:
        self._client = client
        self._history = history
        # Whether each is there, of those of which that is certain.
        self._expected: dict[Key, bool] = {}
        self._looks_left = LOOKS
        self.must_stop = False

    async def run(self) -> None:
        client = self._client
        while not self.must_stop:
            try:
                await self._change()
            except Unreachable as error:
                client.say(f"{error}")
            await trio.sleep(client.random.uniform(*self.PAUSE_S))
        while True:
            try:
                await self._check()
                return
            except Unreachable:
                await client.pause()

    async def _change(self) -> None:
        """Asks for one change. Raises Unreachable when there is no answer."""
        raise NotImplementedError

    async def _there(self) -> set[Key]:
        """Keys of the things that exist now. Raises Unreachable."""
        raise NotImplementedError

    async def _check(self) -> None:
        # A node that has just started may be behind: who is asked here is to have what was answered long ago.
        there = await self._there()
        wrong = [key for key, exists in self._expected.items() if (key in there) != exists]
        if wrong:
            self._looks_left -= 1
            if self._looks_left <= 0:
                self._client.world.broken(
                    f"{self.WHAT} are not as was answered: {sorted(wrong)} of {self._expected}; there: {sorted(there)}"
                )
                return
            raise Unreachable("not yet")


class TopicAdministrator(Administrator[str]):
    """Creates, deletes, moves, elects, configures."""

    WHAT = "topics"
    PAUSE_S = (0.2, 1.5)

    def __init__(self, client: Client, history: History, brokers: list[int], partitions: list[tuple[str, int]]) -> None:
        super().__init__(client, history)
        self._brokers = brokers
        self._partitions = partitions
        self._number = 0

    async def _change(self) -> None:
        works = (self._create, self._create, self._delete, self._move, self._elect, self._configure)
        await self._client.random.choice(works)()

    def _acknowledged(self, what: str, code: int) -> bool:
        self._client.say(f"{what}: {ErrorCode(code).name}")
        self._history.count("admin requests answered")
        return code == ErrorCode.NONE

    async def _create(self) -> None:
        self._number += 1
        name = f"scratch-{self._number}"
        new = CreatableTopic(
            name=name, num_partitions=self._client.random.choice((1, 2)), replication_factor=min(3, len(self._brokers))
        )
        response = await self._client.call_any(CreateTopicsRequest(topics=[new], timeout_ms=2000), 3000)
        if self._acknowledged(f"create {name}", response.topics[0].error_code):
            self._expected[name] = True

    async def _delete(self) -> None:
        names = [name for name, exists in self._expected.items() if exists]
        if not names:
            return
        name = self._client.random.choice(names)
        # Until it is answered nobody knows.
        del self._expected[name]
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=2000)
        response = await self._client.call_any(request, 3000)
        if self._acknowledged(f"delete {name}", response.responses[0].error_code):
            self._expected[name] = False

    async def _move(self) -> None:
        topic, partition = self._client.random.choice(self._partitions)
        replicas = self._client.random.sample(self._brokers, min(3, len(self._brokers)))
        part = ReassignablePartition(partition_index=partition, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=2000, topics=[ReassignableTopic(name=topic, partitions=[part])]
        )
        response = await self._client.call_any(request, 3000)
        code = response.error_code or response.responses[0].partitions[0].error_code
        self._acknowledged(f"move {topic}-{partition} to {replicas}", code)

    async def _elect(self) -> None:
        response = await self._client.call_any(
            ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=2000), 3000
        )
        self._acknowledged("elect preferred leaders", response.error_code)

    async def _configure(self) -> None:
        topic, _ = self._client.random.choice(self._partitions)
        value = str(self._client.random.choice((60_000, 600_000)))
        change = AlterableConfig(name="delete.retention.ms", config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[change])
        response = await self._client.call_any(IncrementalAlterConfigsRequest(resources=[resource]), 3000)
        self._acknowledged(f"configure {topic}", response.responses[0].error_code)

    async def _there(self) -> set[str]:
        response = await self._client.call_any(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        return {topic.name for topic in response.topics}
