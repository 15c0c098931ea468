"""`python -m pykbroker ...` is the same as `pykbroker ...`."""

from __future__ import annotations

import sys

from pykbroker.cli import main

if __name__ == "__main__":
    sys.exit(main())
