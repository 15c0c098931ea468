"""The version of this package, for modules below `pykbroker` itself, which names the test helpers above them."""

from __future__ import annotations

__version__ = "0.1.0"
