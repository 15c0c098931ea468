"""The identity of a parked request."""

from __future__ import annotations

Waiter = object
"""Identifies one parked request; compared by identity, its attributes are not used."""
