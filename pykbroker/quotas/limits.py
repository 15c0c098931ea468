"""ClientLimits: the limits of one quota, producer_byte_rate for example, by user and client id. Pure."""

from __future__ import annotations

from pykbroker.named_tuple import NamedTuple

DEFAULT = object()
"""The default entity in place of a name; a user may be named "<default>"."""

Name = object
"""Name of a user or a client id, or `DEFAULT`; None if the limit does not depend on it."""


class Place(NamedTuple):
    """User and client id that share one rate: both, or one of them and "" for the other."""

    user: str
    client_id: str


class ClientLimits:
    """The limits that are set, by (user, client id).

    The most specific limit counts, users before client ids: user and client id, user and default client id, user,
    default user and client id, default user and default client id, default user, client id, default client id.
    """

    __slots__ = ("_limits",)

    def __init__(self) -> None:
        self._limits: dict[tuple[Name, Name], float] = {}

    def __bool__(self) -> bool:
        return bool(self._limits)

    def set(self, user: Name | None, client_id: Name | None, limit: float) -> None:
        """Sets one limit; None for a user or client id that it does not depend on."""
        self._limits[user, client_id] = limit

    def find(self, user: str, client_id: str) -> tuple[Place, float] | None:
        """The rate that a client's requests count for, and its limit; None if the client has no limit."""
        place = self._place(user, client_id)
        limit = self.limit_of(place)
        return None if limit is None else (place, limit)

    def _place(self, user: str, client_id: str) -> Place:
        limits = self._limits
        for of_user in (user, DEFAULT):
            if (of_user, client_id) in limits or (of_user, DEFAULT) in limits:
                return Place(user, client_id)
            if (of_user, None) in limits:
                return Place(user, "")
        return Place("", client_id)

    def limit_of(self, place: Place) -> float | None:
        """The limit of a rate; None if none is set any more."""
        # An empty client id is, as in Kafka, the same as none: the client then gets the limit of its user alone.
        user, client_id = place
        users: tuple[Name | None, ...] = (user, DEFAULT) if user else (None,)
        clients: tuple[Name | None, ...] = (client_id, DEFAULT) if client_id else (None,)
        for of_user in users:
            for of_client in clients:
                limit = self._limits.get((of_user, of_client))
                if limit is not None:
                    return limit
        return None
