"""A pytest plugin that makes the packages that `make unit-all` does not install impossible to import."""

from __future__ import annotations

import sys

from unit_all import NOT_FOR_UNIT_TESTS

for package in NOT_FOR_UNIT_TESTS:
    # The import system raises ModuleNotFoundError for a name whose entry is None.
    sys.modules[package.replace("-", "_")] = None  # type: ignore[assignment]
