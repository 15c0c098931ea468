"""Version ranges, the base of messages, and Kafka's texts of ids."""

from __future__ import annotations

import pytest

from pykbroker.protocol.fields import Message, version_range
from pykbroker.protocol.uuids import uuid_from_text, uuid_to_text


def test_version_ranges_are_values() -> None:
    assert version_range("2-5") == version_range("2-5")
    assert version_range("2-5") != version_range("2+")
    assert version_range("2-5") != "2-5"
    assert len({version_range("2-5"), version_range("2-5"), version_range("3")}) == 2
    assert [version for version in range(8) if version in version_range("2-5")] == [2, 3, 4, 5]


def test_the_base_of_messages_is_no_message() -> None:
    with pytest.raises(TypeError, match="base of messages"):
        Message()


@pytest.mark.parametrize(
    ("text", "reason"),
    [("AAECAwQFBgcICQoLDA0O", "15 bytes instead of 16"), ("AAECAwQFBgcICQoLDA0ODxA", "not a Kafka UUID")],
)
def test_an_id_has_sixteen_bytes(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        uuid_from_text(text)
    assert uuid_from_text(uuid_to_text(bytes(range(16)))) == bytes(range(16))
