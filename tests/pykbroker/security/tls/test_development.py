"""Certificates and client settings that `start --tls` makes."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from pykbroker.config.properties_file import parse_properties
from pykbroker.security.tls import development
from tests.pykbroker.security.tls.certificates import listener_tls

FILES = ("tls-ca.pem", "tls-ca-key.pem", "tls-broker.pem", "tls-client.pem")


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def test_files_are_kept_until_they_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data"
    development.prepare(str(folder), ["localhost", "::1"])
    first = contents(folder)
    development.prepare(str(folder), ["localhost"])
    assert contents(folder) == first
    development.prepare(str(folder), ["localhost", "more.example"])
    second = contents(folder)
    assert [name for name in FILES if second[name] != first[name]] == ["tls-broker.pem"]
    # A certificate that is about to expire is made again; an authority's together with all that it has issued.
    monkeypatch.setattr(development, "RENEWED_DAYS", development.VALID_DAYS + 1)
    development.prepare(str(folder), ["localhost", "more.example"])
    assert all(contents(folder)[name] != second[name] for name in FILES)


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    development.prepare(str(tmp_path), ["localhost"])
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in FILES}
    assert modes["tls-ca-key.pem"] == modes["tls-broker.pem"] == modes["tls-client.pem"] == 0o600
    assert not any(path.name.endswith(".new") for path in tmp_path.iterdir())


def test_what_an_earlier_start_or_somebody_else_has_left_is_not_written_to(tmp_path: Path) -> None:
    """A file with other permissions, or a link to a file that other users can read."""
    (tmp_path / "tls-broker.pem.new").write_text("")
    (tmp_path / "tls-broker.pem.new").chmod(0o644)
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "tls-ca-key.pem.new").symlink_to(elsewhere)
    development.prepare(str(tmp_path), ["localhost"])
    assert stat.S_IMODE((tmp_path / "tls-broker.pem").stat().st_mode) == 0o600
    assert not elsewhere.exists()
    assert not (tmp_path / "tls-ca-key.pem").is_symlink()


def test_a_directory_whose_name_is_not_ascii(tmp_path: Path) -> None:
    folder = tmp_path / "Dätä 😀 \\"
    development.prepare(str(folder), ["localhost"])
    paths = development.write_client_files(str(folder), "localhost:9092")
    java = Path(paths["Java"]).read_bytes().decode("ascii")
    assert "D\\u00e4t\\u00e4 \\ud83d\\ude00 \\\\/tls-ca.pem" in java
    assert f"ssl.ca.location={folder}/tls-ca.pem\n" in Path(paths["librdkafka"]).read_text()
    assert json.loads(Path(paths["Python"]).read_text())["ssl_cafile"] == f"{folder}/tls-ca.pem"


def test_settings_of_clients(tmp_path: Path) -> None:
    development.prepare(str(tmp_path), ["localhost"])
    paths = development.write_client_files(str(tmp_path), "localhost:9092")
    java = parse_properties(Path(paths["Java"]).read_text())
    assert java["bootstrap.servers"] == "localhost:9092"
    client = listener_tls(java)
    broker = listener_tls(
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(tmp_path / development.BROKER_FILE)}
    )
    assert client.server is not None
    assert broker.server is not None
    librdkafka = parse_properties(Path(paths["librdkafka"]).read_text())
    assert librdkafka["ssl.ca.location"] == str(tmp_path / "tls-ca.pem")
    assert json.loads(Path(paths["Python"]).read_text())["security_protocol"] == "SSL"


def test_a_certificate_that_was_removed_is_made_again(tmp_path: Path) -> None:
    """The authority stays, so that clients need no new files."""
    development.prepare(str(tmp_path), ["localhost"])
    before = contents(tmp_path)
    (tmp_path / "tls-client.pem").unlink()
    development.prepare(str(tmp_path), ["localhost"])
    assert [name for name in FILES if contents(tmp_path)[name] != before[name]] == ["tls-client.pem"]
