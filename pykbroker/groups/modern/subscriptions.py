"""Numbers of members that subscribe to each topic and to each regular expression of a group; their sets of topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Subscriber(Protocol):
    """The part of a member that is counted."""

    @property
    def subscribed_topic_names(self) -> frozenset[str]: ...

    @property
    def subscribed_topic_regex(self) -> str | None: ...


class Subscriptions:
    """Counts by name, and by the resolved regular expressions that match a topic; entries of zero are not kept.

    Attributes:
        by_name: topic -> number of members that name it.
        by_regex: topic -> number of resolved regular expressions of the group that match it.
        regexes: regular expression -> number of members that use it.
    """

    __slots__ = ("by_name", "by_regex", "regexes")

    def __init__(self) -> None:
        self.by_name: dict[str, int] = {}
        self.by_regex: dict[str, int] = {}
        self.regexes: dict[str, int] = {}

    def copy(self) -> Subscriptions:
        """An independent copy."""
        other = Subscriptions()
        other.by_name = dict(self.by_name)
        other.by_regex = dict(self.by_regex)
        other.regexes = dict(self.regexes)
        return other

    @property
    def topics(self) -> set[str]:
        """Names of all topics that the group subscribes to, whether or not they exist."""
        return self.by_name.keys() | self.by_regex.keys()

    def __contains__(self, topic: str) -> bool:
        return topic in self.by_name or topic in self.by_regex

    def replace_member(self, old: Subscriber | None, new: Subscriber | None) -> None:
        """Counts a member that joins (no old), changes, or leaves (no new)."""
        old_names = frozenset() if old is None else old.subscribed_topic_names
        new_names = frozenset() if new is None else new.subscribed_topic_names
        if old_names != new_names:
            _add_to_counts(self.by_name, old_names, -1)
            _add_to_counts(self.by_name, new_names, 1)
        old_regex = None if old is None else old.subscribed_topic_regex
        new_regex = None if new is None else new.subscribed_topic_regex
        if old_regex != new_regex:
            _add_to_counts(self.regexes, (old_regex,) if old_regex else (), -1)
            _add_to_counts(self.regexes, (new_regex,) if new_regex else (), 1)

    def replace_resolved(self, old: Iterable[str], new: Iterable[str]) -> None:
        """Counts the topics of a regular expression that was resolved again."""
        _add_to_counts(self.by_regex, old, -1)
        _add_to_counts(self.by_regex, new, 1)

    def are_homogeneous(self, member_count: int) -> bool:
        """True if all members subscribe to the same topics, by name or by one regular expression."""
        if not self.regexes:
            for count in self.by_name.values():
                if count != member_count:
                    return False
            # The topics of an expression that no member uses any more count until the expression is removed.
            return not self.by_regex or self.by_regex.keys() <= self.by_name.keys()
        if next(iter(self.regexes.values())) != member_count:
            return False
        return not self.by_name and all(count == 1 for count in self.by_regex.values())


class SharedNames:
    """The sets of topic names of a group's members: equal sets are one object.

    The members of a large group subscribe to the same topics, and each request has names of its own. Sets of 5,000
    names, 500 kB each, would be kept by each member, and compared by name each time that members are.
    """

    __slots__ = ("_users",)

    def __init__(self) -> None:
        # Set -> that object, and the number of members that have it.
        self._users: dict[frozenset[str], tuple[frozenset[str], int]] = {}

    def __len__(self) -> int:
        return len(self._users)

    def take(self, names: frozenset[str]) -> frozenset[str]:
        """The set that is equal to `names`, for one more member."""
        shared, count = self._users.get(names, (names, 0))
        self._users[shared] = shared, count + 1
        return shared

    def release(self, names: frozenset[str]) -> None:
        """A member no longer has the set."""
        shared, count = self._users[names]
        if count > 1:
            self._users[shared] = shared, count - 1
        else:
            del self._users[names]


def _add_to_counts(counts: dict[str, int], names: Iterable[str], change: int) -> None:
    for name in names:
        count = counts.get(name, 0) + change
        if count > 0:
            counts[name] = count
        else:
            counts.pop(name, None)
