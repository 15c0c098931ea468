"""What the ACL APIs say while there is no authorizer (P-155)."""

from __future__ import annotations

NO_AUTHORIZER = "No Authorizer is configured on the broker"
"""Kafka's text; consoles look for the error code and show it."""
