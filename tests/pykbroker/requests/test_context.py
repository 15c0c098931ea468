"""Refusals of a request: the names that the client may not use, for the response and the audit log."""

from __future__ import annotations

import trio

from pykbroker.protocol.acl_codes import DESCRIBE, READ, TOPIC
from pykbroker.requests.context import REFUSALS_MAX, RequestContext
from pykbroker.requests.share_requests import refused_topics
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.admin import make_context, make_services
from tests.support.services import Services

NAMES = [f"topic-{number * 7 % 60}" for number in range(60)]


def _context() -> RequestContext[Services]:
    """A request of a client that may do nothing."""
    return make_context(services=make_services().replaced(authorizer=StandardAuthorizer(dict, frozenset(), False)))


def test_refused_names_keep_their_order() -> None:
    assert list(_context().refused(DESCRIBE, TOPIC, (*NAMES, *NAMES))) == NAMES
    assert list(trio.run(_context().refused_in_turns, DESCRIBE, TOPIC, (*NAMES, *NAMES))) == NAMES


def test_topics_of_share_requests_are_refused_in_their_order() -> None:
    """Each is refused once, so that the audit log, which has a limited number of them, has the first ones."""
    context = _context()
    assert trio.run(refused_topics, context, [*NAMES, None, *NAMES]) == frozenset(NAMES)
    assert context.refusals == [(READ, TOPIC, name) for name in NAMES]
    assert len(NAMES) < REFUSALS_MAX
