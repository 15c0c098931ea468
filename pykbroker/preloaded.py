"""Importing this imports what every broker of a cluster needs: for a process that is forked into several of them.

A single broker imports late and little (its first answer is what counts); here what is imported once is not imported
in each node.
"""

from __future__ import annotations

import trio

import pykbroker.broker
import pykbroker.listener

__all__ = ["pykbroker", "trio"]
