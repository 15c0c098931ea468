"""Regular expressions of subscriptions: when they are resolved, and what a resolution changes (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum

from pykbroker.coordination.re2_pattern import InvalidPattern, compile_pattern
from pykbroker.groups.consumer.context import HeartbeatContext
from pykbroker.groups.consumer.group import ConsumerGroup, ResolvedRegex
from pykbroker.groups.consumer.member import ConsumerMember
from pykbroker.groups.consumer.records import epoch_record, regex_record, regex_tombstone
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.result import GroupResult, LogRecord, RegexRefresh, ResolvedRegexes
from pykbroker.java_order import TABLE_SIZE_DEFAULT, hash_order, table_size_for
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.steps import PIECE, Steps

REFRESH_MIN_INTERVAL_MS = 10_000
"""Least time, in ms, between two resolutions of a group; not configurable."""


class RegexChange(Enum):
    """Effect of a heartbeat on the member's regular expression."""

    NONE = "none"
    CHANGED = "changed"
    CHANGED_AND_RESOLVED = "changed and resolved"


def change_regex(
    group: ConsumerGroup, old: ConsumerMember, new: ConsumerMember, records: list[LogRecord]
) -> RegexChange:
    """Checks a member's new regular expression, and removes the old one if no other member uses it.

    Raises:
        GroupError: INVALID_REGULAR_EXPRESSION.
    """
    if old.subscribed_topic_regex == new.subscribed_topic_regex:
        return RegexChange.NONE
    users = group.subscriptions.regexes
    if old.subscribed_topic_regex and users.get(old.subscribed_topic_regex) == 1:
        records.append(regex_tombstone(group.group_id, old.subscribed_topic_regex))
    if new.subscribed_topic_regex:
        if new.subscribed_topic_regex not in users:
            _check_syntax(new.subscribed_topic_regex)
        elif new.subscribed_topic_regex in group.resolved:
            return RegexChange.CHANGED_AND_RESOLVED
    elif old.subscribed_topic_regex:
        return RegexChange.CHANGED_AND_RESOLVED
    return RegexChange.CHANGED


def _check_syntax(regex: str) -> None:
    try:
        compile_pattern(regex)
    except InvalidPattern as error:
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
        raise GroupError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None


def refresh_needed(
    group: ConsumerGroup,
    old: ConsumerMember,
    new: ConsumerMember,
    context: HeartbeatContext,
) -> RegexRefresh | None:
    """The resolution that is due at a heartbeat of a member, which changes from `old` to `new`.

    One is due if a regular expression is not resolved, topics were created since, or the last resolution is older than
    the interval; but not while one is running, and not within `REFRESH_MIN_INTERVAL_MS` of the last one.
    """
    if (not group.subscriptions.regexes and not new.subscribed_topic_regex) or group.soft_state.is_resolving:
        return None
    users = dict(group.subscriptions.regexes)
    is_new = bool(new.subscribed_topic_regex) and new.subscribed_topic_regex not in users
    last = next(iter(group.resolved.values()), None)
    if last is not None and context.now_ms <= last.timestamp_ms + REFRESH_MIN_INTERVAL_MS:
        return None
    if old.subscribed_topic_regex != new.subscribed_topic_regex:
        if old.subscribed_topic_regex and users.get(old.subscribed_topic_regex) == 1:
            del users[old.subscribed_topic_regex]
        if new.subscribed_topic_regex:
            users[new.subscribed_topic_regex] = 1
    is_due = (
        is_new
        or last is None
        or len(users) != len(group.resolved)
        or last.version < context.topics.version_with_new_topics
        or context.now_ms > last.timestamp_ms + context.settings.regex_refresh_interval_ms
    )
    if not is_due or not users:
        return None
    group.soft_state.is_resolving = True
    # Kafka copies the group's HashMap, and puts the results into another one, which is made for so many.
    known = len(group.subscriptions.regexes)
    ordered = hash_order(users, table_size_for(int(known / 0.75) + 1) if known else TABLE_SIZE_DEFAULT)
    return RegexRefresh(group.group_id, hash_order(ordered, table_size_for(len(ordered))), context.may_describe)


def matching_topics(
    regexes: Iterable[str], topics: GroupTopics, may_describe: Callable[[str], bool]
) -> Steps[dict[str, frozenset[str]]]:
    """The present topics that match each regular expression as a whole, and that the client may DESCRIBE.

    None match one that cannot be compiled. The hashes of the topics, which `resolved` needs, are computed on the way.
    """
    names = list(topics.names)
    found = {}
    for regex in regexes:
        try:
            matches = compile_pattern(regex)
        except InvalidPattern:
            # Heartbeats with it are refused, but the log of another broker may have it.
            found[regex] = frozenset[str]()
            continue
        matching = []
        for count, name in enumerate(names, 1):
            if matches(name) and may_describe(name):
                matching.append(name)
                topics.prepare_hash(name)
            if not count % PIECE:
                yield
        found[regex] = frozenset(matching)
    return found


def resolved(group: ConsumerGroup, found: ResolvedRegexes, topics: GroupTopics, now_ms: int) -> Steps[GroupResult]:
    """Records of a finished resolution; the group epoch is raised if the subscribed topics have changed.

    The group and the topics must not change between the steps.

    Args:
        group: the group.
        found: the topics that match.
        topics: the topics of the cluster.
        now_ms: time.
    """
    result = GroupResult(applies_at_append=True)
    subscriptions = group.subscriptions.copy()
    is_changed = False
    for regex, names in found.matches.items():
        if regex not in group.subscriptions.regexes:
            continue
        old = group.resolved.get(regex, _UNRESOLVED)
        if old.topics != names:
            is_changed = True
            subscriptions.replace_resolved(old.topics, names)
        yield
        result.records.append(regex_record(group.group_id, regex, names, found.version, found.started_ms))
        yield
    subscribed = subscriptions.topics
    if len(subscribed) > PIECE:
        yield from topics.prepare_hashes(subscribed)
    metadata_hash = topics.hash_of(subscribed)
    if is_changed or metadata_hash != group.metadata_hash:
        epoch = group.epoch + 1
        result.records.append(epoch_record(group.group_id, epoch, metadata_hash))
        result.notes.append(
            f"group {group.group_id}: epoch {epoch}, its regular expressions match other topics than before"
        )
        group.set_refreshed(now_ms, epoch)
    return result


_UNRESOLVED = ResolvedRegex(frozenset(), -1, -1)
