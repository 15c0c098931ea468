"""The topic id of a partition's directory (`partition.metadata`)."""

from __future__ import annotations

from pykbroker.logstore.errors import CorruptFile
from pykbroker.logstore.filesystem import FileSystem
from pykbroker.protocol.uuids import uuid_from_text, uuid_to_text

FILE_NAME = "partition.metadata"
_HOW_TO_REPAIR = "if it is damaged, delete it: the topic is known by the directory's name"


def read_topic_id(filesystem: FileSystem, directory: str) -> bytes | None:
    """The topic id of a partition's directory; None without one. Raises CorruptFile."""
    path = f"{directory}/{FILE_NAME}"
    content = filesystem.read_file(path)
    if not content or not content.strip(b"\0"):
        # The name of the file was durable before its content when power was lost.
        return None
    fields = dict(line.split(": ", 1) for line in content.decode("utf-8", "replace").splitlines() if ": " in line)
    if fields.get("version") != "0":
        raise CorruptFile(path, f"version {fields.get('version')!r} where '0' was expected: {_HOW_TO_REPAIR}")
    try:
        return uuid_from_text(fields["topic_id"].strip())
    except (KeyError, ValueError) as error:
        raise CorruptFile(path, f"no valid topic_id: {_HOW_TO_REPAIR}") from error


def write_topic_id(filesystem: FileSystem, directory: str, topic_id: bytes) -> None:
    """Writes the topic id. The last line has no line end, as in Kafka."""
    content = f"version: 0\ntopic_id: {uuid_to_text(topic_id)}"
    filesystem.write_file(f"{directory}/{FILE_NAME}", content.encode(), durable=False)
