"""What the coordinators of groups and of transactions share: their partitions, their topics, their logs."""

from __future__ import annotations
