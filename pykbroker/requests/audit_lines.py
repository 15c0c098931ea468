"""Lines of the audit log about one request, after its handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pykbroker.protocol.steps import Steps
    from pykbroker.requests.context import NodeContext


def audit(context: NodeContext, request: Any, response: Any) -> Steps[None]:
    """Logs what was refused to the client, and what it has changed."""
    from pykbroker.security.audit import CHANGES, audit_change, audit_refusals

    if context.refusals and response is not None:
        audit_refusals(context.connection, context.api_key, context.refusals, request, response)
    if context.api_key in CHANGES and response is not None:
        yield from audit_change(context.connection, context.api_key, request, response)
