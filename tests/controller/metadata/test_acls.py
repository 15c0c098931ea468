"""CreateAcls and DeleteAcls as commands: what is refused, what a filter matches, what the metadata log gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.controller.metadata.acls import AclFilter, CreateAcls, DeleteAcls
from pykbroker.controller.metadata.commands import RECORD_COUNT_MAX, CommandRefused
from pykbroker.controller.metadata.image import EMPTY_IMAGE, Acl
from pykbroker.controller.metadata.image_builder import apply_records
from pykbroker.controller.metadata.snapshot import image_to_records
from pykbroker.protocol.acl_codes import (
    ALL,
    ALLOW,
    ANY,
    CLUSTER,
    DENY,
    DESCRIBE,
    GROUP,
    LITERAL,
    MATCH,
    PREFIXED,
    READ,
    TOPIC,
    UNKNOWN,
    WRITE,
)
from pykbroker.protocol.error_codes import ErrorCode
from tests.controller.world import World

OK = (ErrorCode.NONE, None)
NO_COLON = (
    "Could not parse principal from `alice` (no colon is present separating the principal type from the principal name)"
)


def acl(
    name: str = "t",
    pattern_type: int = LITERAL,
    *,
    resource_type: int = TOPIC,
    principal: str = "User:alice",
    host: str = "*",
    operation: int = READ,
    permission_type: int = ALLOW,
) -> Acl:
    return Acl(resource_type, name, pattern_type, principal, host, operation, permission_type)


def world_with(*acls: Acl) -> World:
    world = World()
    assert world.do(CreateAcls(acls)) == [OK] * len(acls)
    return world


def test_what_is_created_is_in_the_image_and_in_a_snapshot() -> None:
    entries = [acl(), acl("p", PREFIXED, operation=WRITE, permission_type=DENY, host="10.0.0.1")]
    world = world_with(*entries)
    assert list(world.image.acls.values()) == entries
    records = list(image_to_records(world.image))
    image = world.image
    again = apply_records(EMPTY_IMAGE, records, offset=image.offset, epoch=image.epoch, timestamp_ms=image.timestamp_ms)
    assert again.acls == image.acls


def test_an_entry_is_never_there_twice() -> None:
    """Creating what exists, or the same entry twice in a request, succeeds and writes nothing more."""
    world = world_with(acl(), acl())
    assert len(world.image.acls) == 1
    offset = world.image.offset
    assert world.do(CreateAcls([acl()])) == [OK]
    assert world.image.offset == offset


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (acl(resource_type=ANY), "Invalid resourceType ANY"),
        (acl(pattern_type=ANY), "Invalid patternType ANY"),
        (acl(pattern_type=MATCH), "Invalid patternType MATCH"),
        (acl(operation=ANY), "Invalid operation ANY"),
        (acl(permission_type=ANY), "Invalid permissionType ANY"),
        (acl(""), "Resource name should not be empty"),
        (acl(principal="alice"), NO_COLON),
    ],
)
def test_a_bad_entry_is_refused_alone(bad: Acl, reason: str) -> None:
    world = World()
    assert world.do(CreateAcls([bad, acl("good")])) == [(ErrorCode.INVALID_REQUEST, reason), OK]
    assert list(world.image.acls.values()) == [acl("good")]


def test_deleting_answers_each_filter_with_all_that_it_matched() -> None:
    """An entry that matches two filters is deleted once, and is in the results of both."""
    entries = [acl("a"), acl("b"), acl("a", resource_type=GROUP)]
    world = world_with(*entries)
    results = world.do(DeleteAcls([AclFilter(resource_name="a"), AclFilter(resource_type=TOPIC), AclFilter(host="x")]))
    assert [(error.code, set(acls)) for error, acls in results] == [
        (ErrorCode.NONE, {entries[0], entries[2]}),
        (ErrorCode.NONE, {entries[0], entries[1]}),
        (ErrorCode.NONE, set()),
    ]
    assert world.image.acls == {}


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (AclFilter(resource_type=UNKNOWN), "Unknown patternFilter."),
        (AclFilter(pattern_type=UNKNOWN), "Unknown patternFilter."),
        (AclFilter(operation=UNKNOWN), "Unknown entryFilter."),
        (AclFilter(permission_type=UNKNOWN), "Unknown entryFilter."),
    ],
)
def test_a_filter_of_an_unknown_kind_is_refused_alone(wanted: AclFilter, text: str) -> None:
    world = world_with(acl("a"), acl("b"))
    refused, done = world.do(DeleteAcls([wanted, AclFilter(resource_name="a")]))
    assert refused == ((ErrorCode.INVALID_REQUEST, text), ())
    assert (done.error, list(done.acls)) == (OK, [acl("a")])
    assert len(world.image.acls) == 1


def test_more_than_ten_thousand_at_once_are_refused_whole() -> None:
    world = World()
    many = [acl(str(number)) for number in range(RECORD_COUNT_MAX)]
    with pytest.raises(CommandRefused):
        world.do(CreateAcls([*many, acl("one more")]))
    assert world.do(CreateAcls(many)) == [OK] * RECORD_COUNT_MAX
    world.do(CreateAcls([acl("one more")]))
    with pytest.raises(CommandRefused, match="Cannot remove more than 10000 acls in a single delete operation"):
        world.do(DeleteAcls([AclFilter()]))
    assert len(world.image.acls) == RECORD_COUNT_MAX + 1


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (AclFilter(), {"foo", "fo", "*", "f"}),
        (AclFilter(resource_name="foo"), {"foo"}),
        (AclFilter(resource_name="*"), {"*"}),
        (AclFilter(resource_name="fo", pattern_type=LITERAL), set()),
        (AclFilter(resource_name="fo", pattern_type=PREFIXED), {"fo"}),
        (AclFilter(pattern_type=PREFIXED), {"fo", "f"}),
        (AclFilter(resource_name="foo", pattern_type=MATCH), {"foo", "fo", "*", "f"}),
        (AclFilter(resource_name="fa", pattern_type=MATCH), {"*", "f"}),
        (AclFilter(resource_name="*", pattern_type=MATCH), {"*"}),
        (AclFilter(pattern_type=MATCH), {"foo", "fo", "*", "f"}),
        (AclFilter(resource_type=CLUSTER), set()),
        (AclFilter(principal="User:bob"), {"f"}),
        (AclFilter(principal="User:*"), set()),
        (AclFilter(host="10.0.0.1"), {"fo"}),
        (AclFilter(operation=DESCRIBE), {"*"}),
        (AclFilter(operation=ALL), set()),
        (AclFilter(permission_type=DENY), {"foo"}),
    ],
)
def test_what_a_filter_matches(wanted: AclFilter, names: set[str]) -> None:
    """KIP-290's MATCH is by resource name, ANY by pattern name; the other elements are compared as texts."""
    entries = [
        acl("foo", permission_type=DENY),
        acl("fo", PREFIXED, host="10.0.0.1"),
        acl("*", operation=DESCRIBE),
        acl("f", PREFIXED, principal="User:bob"),
    ]
    assert {entry.resource_name for entry in entries if wanted.matches(entry)} == names


texts = st.sampled_from(["", "*", "a", "ab", "abc", "b"])
entries = st.builds(
    Acl,
    st.integers(2, 7),
    texts.filter(bool),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:*", "User:a", "User:b"]),
    st.sampled_from(["*", "h"]),
    st.integers(2, 15),
    st.sampled_from([ALLOW, DENY]),
)


@given(st.lists(entries, unique=True), st.lists(entries))
def test_a_filter_of_all_elements_is_for_one_entry(existing: list[Acl], gone: list[Acl]) -> None:
    """Deleting entries by filters of all their elements leaves the others, in the image and in the records."""
    world = world_with(*existing)
    world.do(DeleteAcls([AclFilter(*entry) for entry in gone]))
    assert set(world.image.acls.values()) == set(existing) - set(gone)


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "ab", "*"]), st.sampled_from([LITERAL, PREFIXED])), unique=True),
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "ab", "c", "*", None]), st.sampled_from([LITERAL, PREFIXED, ANY, MATCH])),
        max_size=6,
    ),
)
def test_several_filters_delete_what_each_of_them_matches(
    existing: list[tuple[str, int]], wanted: list[tuple[str | None, int]]
) -> None:
    """Filters of one name look only at the entries with it, which are in the order of all entries."""
    world = World()
    world.do(CreateAcls([acl(name, kind) for name, kind in existing]))
    before = list(world.image.acls.values())
    filters = [AclFilter(TOPIC, name, kind) for name, kind in wanted]
    results = world.do(DeleteAcls(filters))
    assert [list(result.acls) for result in results] == [[a for a in before if f.matches(a)] for f in filters]
    assert list(world.image.acls.values()) == [a for a in before if not any(f.matches(a) for f in filters)]


def test_the_names_of_all_entries_are_noted_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tasks run meanwhile; each filter then compares only the entries with its name."""
    monkeypatch.setattr("pykbroker.controller.metadata.acls.PIECE", 1)
    world = World()
    world.do(CreateAcls([acl("a"), acl("b"), acl("c")]))
    wanted = AclFilter(TOPIC, "b", LITERAL, None, None, ANY, ANY)
    steps = DeleteAcls([wanted]).plan_in_steps(world.image, world.context())
    # One for each entry, one for that of the name, and one for the filter.
    assert sum(1 for _ in steps) == 5
    (deletion,) = world.do(DeleteAcls([wanted]))
    assert [entry.resource_name for entry in deletion.acls] == ["b"]
