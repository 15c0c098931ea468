"""The assignors by name."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.groups.assignors.range import assign_range
from pykbroker.groups.assignors.spec import Assignor
from pykbroker.groups.assignors.uniform import assign_uniform

ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""Assignors of consumer groups."""
