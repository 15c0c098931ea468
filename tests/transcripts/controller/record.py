"""Records what Apache Kafka's controller answers and writes: `python -m tests.transcripts.controller.record FOLDER`.

It starts a controller from the jars that PYKBROKER_KAFKA_LIBS names, in a folder that is empty; twice, without and with
eligible leader replicas (KIP-966).
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

from interop_tests.ports import free_port
from pykbroker.controller.metadata.record_framing import decode_record
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from pykbroker.protocol.records.batch import iter_batches
from tests.support.apache_kafka import START_SECONDS_MAX, java
from tests.support.transcripts import Client, to_json
from tests.transcripts.controller.script import CLUSTER_ID, NODE_ID, SETTINGS, Ask, Checkpoint, Script, plain_records

WITH_ELIGIBLE_REPLICAS = {False: "", True: "_eligible"}
"""Ends of the names of the two recordings."""


def main(folder: Path, *, with_eligible_replicas: bool) -> None:
    folder.mkdir()
    port = free_port()
    settings = {
        "process.roles": "controller",
        "node.id": NODE_ID,
        "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{port}",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / "data",
        **SETTINGS,
        # For the checkpoint; the log from its beginning on is still there then.
        "metadata.log.max.snapshot.interval.ms": "5000",
    }
    file = folder / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    level = f"eligible.leader.replicas.version={int(with_eligible_replicas)}"
    subprocess.run(
        java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file), "--feature", level), check=True
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
        script, answers = ask_all(
            client, Script(with_eligible_replicas=with_eligible_replicas), folder / "data" / "__cluster_metadata-0"
        )
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    write(script, answers, read_log(folder / "data" / "__cluster_metadata-0"))


def leads(client: Client) -> bool:
    """True if the controller answers and is the active one."""
    try:
        answer: Any = client.call(AllocateProducerIdsRequest(broker_id=9, broker_epoch=1), 0)
    except ConnectionRefusedError:
        return False
    return answer is not None and answer.error_code == ErrorCode.STALE_BROKER_EPOCH


def newest_checkpoint(log: Path) -> tuple[int, int]:
    """End offset and epoch; waits for the first."""
    while True:
        names = sorted(path.stem for path in log.glob("*.checkpoint"))
        if names and not names[-1].startswith("0" * 20):
            end_offset, epoch = names[-1].split("-")
            return int(end_offset), int(epoch)
        time.sleep(0.2)


def ask_all(client: Client, script: Script, log: Path) -> tuple[Script, list[tuple[str, int, Any]]]:
    steps = script.run()
    answers: list[tuple[str, int, Any]] = []
    try:
        step = next(steps)
        while True:
            if isinstance(step, Ask):
                answer = client.call(step.request, step.version)
                answers.append((step.label, step.version, answer))
                step = steps.send(answer)
            elif isinstance(step, Checkpoint):
                step = steps.send(newest_checkpoint(log))
            else:
                time.sleep(step.seconds)
                step = next(steps)
    except StopIteration:
        pass
    return script, answers


def write(script: Script, answers: list[tuple[str, int, Any]], records: Iterator[Any]) -> None:
    end = WITH_ELIGIBLE_REPLICAS[script.with_eligible_replicas]
    with Path(__file__).with_name(f"answers{end}.jsonl").open("w") as file:
        for label, version, answer in answers:
            plain = None if answer is None else script.names.plain(to_json(answer))
            print(json.dumps({"label": label, "version": version, "answer": plain}), file=file)
    with Path(__file__).with_name(f"records{end}.jsonl").open("w") as file:
        for entry in plain_records(records, script.names):
            print(json.dumps(entry), file=file)


def read_log(log: Path) -> Iterator[Any]:
    """All metadata records."""
    for segment in sorted(log.glob("*.log")):
        for batch in iter_batches(segment.read_bytes()):
            if not batch.is_control:
                yield from (decode_record(one.value) for one in batch.records())


if __name__ == "__main__":
    for is_with in WITH_ELIGIBLE_REPLICAS:
        main(Path(sys.argv[1]) / f"eligible_{is_with}", with_eligible_replicas=is_with)
