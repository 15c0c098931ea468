"""Records what Apache Kafka's controller answers and writes: `python -m tests.transcripts.controller.record FOLDER`.

It starts a controller from the jars that PYKBROKER_KAFKA_LIBS names, in a folder that is empty.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pykbroker.controller.metadata.record_framing import decode_record
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages import fetch
from pykbroker.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from pykbroker.protocol.records.batch import iter_batches
from pykbroker.protocol.uuids import METADATA_TOPIC_ID
from tests.support.apache_kafka import START_SECONDS_MAX, free_port, java
from tests.support.transcripts import Client, to_json
from tests.transcripts.controller.script import CLUSTER_ID, NODE_ID, SETTINGS, Ask, Script, plain_records

ANSWERS = Path(__file__).with_name("answers.jsonl")
RECORDS = Path(__file__).with_name("records.jsonl")


def main(folder: Path) -> None:
    port = free_port()
    settings = {
        "process.roles": "controller",
        "node.id": NODE_ID,
        "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{port}",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / "data",
        **SETTINGS,
    }
    file = folder / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    without_elr = ["--feature", "eligible.leader.replicas.version=0"]
    subprocess.run(
        java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file), *without_elr), check=True
    )
    with (folder / "kafka.log").open("w") as log:
        process = subprocess.Popen(java("kafka.Kafka", str(file)), stdout=log, stderr=log)
    try:
        client = Client("127.0.0.1", port)
        deadline = time.monotonic() + START_SECONDS_MAX
        while not leads(client):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        record(client)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def leads(client: Client) -> bool:
    """Whether the controller answers, and is the active one."""
    try:
        answer: Any = client.call(AllocateProducerIdsRequest(broker_id=9, broker_epoch=1), 0)
    except ConnectionRefusedError:
        return False
    return answer is not None and answer.error_code == ErrorCode.STALE_BROKER_EPOCH


def record(client: Client) -> None:
    script = Script()
    steps = script.run()
    answers: list[tuple[str, int, Any]] = []
    try:
        step = next(steps)
        while True:
            if isinstance(step, Ask):
                answer = client.call(step.request, step.version)
                answers.append((step.label, step.version, answer))
                step = steps.send(answer)
            else:
                time.sleep(step.seconds)
                step = next(steps)
    except StopIteration:
        pass
    with ANSWERS.open("w") as file:
        for label, version, answer in answers:
            plain = None if answer is None else script.names.plain(to_json(answer))
            print(json.dumps({"label": label, "version": version, "answer": plain}), file=file)
    with RECORDS.open("w") as file:
        for entry in plain_records(read_log(client), script.names):
            print(json.dumps(entry), file=file)


def read_log(client: Client) -> Iterator[Any]:
    """All metadata records, as an observer fetches them."""
    offset = epoch = 0
    leader_epoch = 1
    while True:
        partition = fetch.FetchPartition(
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=epoch,
            partition_max_bytes=1 << 20,
        )
        topic = fetch.FetchTopic(topic="__cluster_metadata", topic_id=METADATA_TOPIC_ID, partitions=[partition])
        request = fetch.FetchRequest(
            cluster_id=CLUSTER_ID,
            replica_state=fetch.ReplicaState(replica_id=999),
            max_bytes=1 << 20,
            topics=[topic],
        )
        answer: Any = client.call(request, 17)
        found = answer.responses[0].partitions[0]
        if found.error_code:
            leader_epoch = found.current_leader.leader_epoch
            continue
        batches = list(iter_batches(found.records or b""))
        if not batches:
            return
        for batch in batches:
            if not batch.is_control:
                yield from (decode_record(one.value) for one in batch.records())
            offset, epoch = batch.next_offset, batch.partition_leader_epoch


if __name__ == "__main__":
    main(Path(sys.argv[1]))
