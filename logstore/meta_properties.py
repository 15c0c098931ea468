"""Identity of a data directory: its cluster, node and directory ids (`meta.properties`)."""

from __future__ import annotations

from typing import Final

from pykbroker.logstore.errors import CorruptFile, InconsistentDirectory
from pykbroker.logstore.filesystem import FileSystem
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.uuids import uuid_from_text

FILE_NAME: Final = "meta.properties"
_VERSION: Final = "1"
_HOW_TO_REPAIR: Final = (
    "it is damaged; restore it, its lines are version=1, cluster.id=..., node.id=... and directory.id=..."
)


class MetaProperties(NamedTuple):
    """Identity of a data directory. `directory_id` is the 22-character text of a uuid, "" if it has none."""

    cluster_id: str
    node_id: int
    directory_id: str


def read_meta_properties(filesystem: FileSystem, directory: str) -> MetaProperties | None:
    """The identity, None when the directory has none. Raises CorruptFile; InconsistentDirectory for another version."""
    path = f"{directory}/{FILE_NAME}"
    content = filesystem.read_file(path)
    if content is None:
        return None
    fields: dict[str, str] = {}
    for line in content.decode("utf-8", "replace").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith(("#", "!")):
            # Java writes ":" and "=" in values with a backslash before them.
            fields[name.strip()] = value.strip().replace("\\", "")
    version = fields.get("version")
    if version is None:
        raise CorruptFile(path, f"no version: {_HOW_TO_REPAIR}")
    if version != _VERSION:
        raise InconsistentDirectory(
            path, f"version {version!r} is not supported, only {_VERSION!r} is: was it written by newer software?"
        )
    directory_id = fields.get("directory.id", "")
    try:
        if directory_id:
            uuid_from_text(directory_id)
        return MetaProperties(fields["cluster.id"], int(fields["node.id"]), directory_id)
    except (KeyError, ValueError) as error:
        raise CorruptFile(path, f"no valid {error.args[0]}: {_HOW_TO_REPAIR}") from error


def write_meta_properties(filesystem: FileSystem, directory: str, meta: MetaProperties) -> None:
    """Writes the identity, durably."""
    lines = [f"node.id={meta.node_id}", f"version={_VERSION}", f"cluster.id={meta.cluster_id}"]
    if meta.directory_id:
        lines.insert(1, f"directory.id={meta.directory_id}")
    content = "#\n" + "\n".join(lines) + "\n"
    filesystem.write_file(f"{directory}/{FILE_NAME}", content.encode())
