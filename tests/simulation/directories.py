"""An administrator who moves replicas between the log directories of their brokers."""

from __future__ import annotations

import trio

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tests.simulation.client import Client, Unreachable
from tests.simulation.cluster import LOG_DIRECTORIES
from tests.simulation.history import History


class DirectoryAdministrator:
    """Asks for moves until it is told to stop. The logs on the disks tell at the end what has become of them."""

    def __init__(self, client: Client, history: History, brokers: list[int], partitions: list[tuple[str, int]]) -> None:
        self._client = client
        self._history = history
        self._brokers = brokers
        self._partitions = partitions
        self.must_stop = False

    async def run(self) -> None:
        chance = self._client.random
        while not self.must_stop:
            try:
                await self._move(chance.choice(self._brokers), *chance.choice(self._partitions))
            except Unreachable as error:
                self._client.say(f"{error}")
            await trio.sleep(chance.uniform(0.2, 1.5))

    async def _move(self, broker: int, topic: str, partition: int) -> None:
        path = self._client.random.choice(LOG_DIRECTORIES)
        wish = AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[partition])])
        response = await self._client.call(broker, AlterReplicaLogDirsRequest(dirs=[wish]), 3000)
        code = ErrorCode(response.results[0].partitions[0].error_code)
        self._client.say(f"move {topic}-{partition} of broker {broker} to {path}: {code.name}")
        self._history.count("moves between directories answered")
