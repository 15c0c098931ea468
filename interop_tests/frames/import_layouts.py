"""Writes layouts.txt from the message definitions in Kafka's published jar.

    python -m interop_tests.frames.import_layouts kafka-clients-4.3.1.jar

Only facts are taken: names, types, versions, defaults and tags. The format is read by `layouts.py`.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

from interop_tests.frames.layouts import LAYOUTS

HEAD = """\
# The messages of Kafka's protocol, as Apache Kafka's published jar defines them (see import_layouts.py).
# api KEY NAME VERSIONS flexible VERSIONS, then its request and its reply, a field a line:
# name, type, versions; `null` versions in which it may be null; `tag` number and versions; `=` its default.
"""


def main(jar: str) -> None:
    """Reads the jar and writes the file."""
    with zipfile.ZipFile(jar) as archive:
        found = [
            json.loads(re.sub(r"(?m)^\s*//.*$|(?<=[,\[{ ])//\s.*$", "", archive.read(name).decode()))
            for name in archive.namelist()
            if re.fullmatch(r"common/message/\w+(Request|Response)\.json", name)
        ]
    replies = {message["apiKey"]: message for message in found if message["type"] == "response"}
    requests = sorted((m for m in found if m["type"] == "request"), key=lambda message: message["apiKey"])
    lines = [HEAD]
    for request in requests:
        if "broker" not in request.get("listeners", ()) or request["validVersions"] == "none":
            continue
        key, name = request["apiKey"], request["name"].removesuffix("Request")
        first, _, last = request["validVersions"].partition("-")
        if request.get("latestVersionUnstable"):  # a broker offers it only when told to
            last = str(int(last) - 1)
        versions = first if last in ("", first) else f"{first}-{last}"
        lines.append(f"api {key} {name} {versions} flexible {request['flexibleVersions']}")
        for title, message in (("request", request), ("reply", replies[key])):
            structs = {struct["name"]: struct["fields"] for struct in message.get("commonStructs", [])}
            lines += [f" {title}", *lines_of(message["fields"], structs, "  ")]
    LAYOUTS.write_text("\n".join(lines) + "\n")


def lines_of(fields: list[dict[str, Any]], structs: dict[str, Any], indent: str) -> Iterator[str]:
    """The lines of the fields of a message or of a struct in it."""
    for field in fields:
        kind = field["type"]
        inner = kind.removeprefix("[]")
        members = field.get("fields") or structs.get(inner)
        # A few are spelled with a small letter in the definitions.
        name = field["name"][0].upper() + field["name"][1:]
        words = [name, kind.replace(inner, "struct") if members else kind, field["versions"]]
        if "nullableVersions" in field:
            words += ["null", field["nullableVersions"]]
        if "tag" in field:
            words += ["tag", str(field["tag"]), field["taggedVersions"]]
        if "default" in field:
            words += ["=", str(field["default"]) or '""']
        yield indent + " ".join(words)
        if members:
            yield from lines_of(members, structs, indent + " ")


if __name__ == "__main__":
    main(sys.argv[1])
