"""Checks of heartbeats that are the same for each type of modern groups."""

from __future__ import annotations

from typing import Any

from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.group import EpochGroup
from pykbroker.java_order import is_blank
from pykbroker.protocol.error_codes import ErrorCode


def check_not_blank(*fields: tuple[str, str | None]) -> None:
    """Refuses a request with a blank field; (Kafka's name, value) each, None for a field that may be left out.

    Raises:
        GroupError: INVALID_REQUEST.
    """
    for name, value in fields:
        if value is not None and is_blank(value):
            raise GroupError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")


def check_room(group: EpochGroup[Any, Any], group_type: str, max_size: int) -> None:
    """Refuses a new member of a full group.

    Raises:
        GroupError: GROUP_MAX_SIZE_REACHED.
    """
    if len(group.members) >= max_size:
        message = f"The {group_type} group has reached its maximum capacity of {max_size} members."
        raise GroupError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)


def fenced_member_epoch(group_type: str, epoch: int, known_epoch: int, addition: str = "") -> GroupError:
    """FENCED_MEMBER_EPOCH: the member epoch of a request is one that the group does not accept.

    Args:
        group_type: type of the group.
        epoch: member epoch of the request.
        known_epoch: member epoch that the group has.
        addition: further words about the epochs.
    """
    order = "greater" if epoch > known_epoch else "smaller"
    return GroupError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The {group_type} group member has a {order} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({known_epoch}){addition}. The member must abandon all its partitions and rejoin.",
    )
