"""Exceptions for bytes that break the protocol and for values that cannot be encoded.

Kafka's error codes are data in responses (`error_codes`). A `ProtocolError` that reaches a connection closes that
connection only.
"""

from __future__ import annotations


class ProtocolError(Exception):
    """The bytes break Kafka's protocol; base of everything raised by `pykbroker.protocol`."""


class DecodeError(ProtocolError):
    """Bytes that are not the expected message.

    Attributes:
        message_name: the message's name, such as ``FetchRequest``.
        version: its version.
        field: path of the field that could not be read, such as ``topics[2].partitions[0].fetch_offset``.
        position: byte position in the decoded buffer at which that field begins.
        reason: what is wrong there.
    """

    def __init__(self, message_name: str, version: int, field: str, position: int, reason: str) -> None:
        super().__init__(f"{message_name} v{version}: field {field or '-'} at byte {position}: {reason}")
        self.message_name = message_name
        self.version = version
        self.field = field
        self.position = position
        self.reason = reason


class EncodeError(ProtocolError):
    """A value that this version of the message cannot have; a bug of the caller."""


class FrameTooLarge(ProtocolError):
    """A frame whose announced size is negative or above the limit (P-7)."""


class UnsupportedVersion(ProtocolError):
    """A version outside the declared range of a message."""
