"""`python -m spark_jobs list | run NAME | check NAME`, or `python spark_jobs ...` from anywhere; see the README."""

from __future__ import annotations

import sys
from pathlib import Path

# The jobs are programs that import what lies beside them, as when Python runs one of them by its path.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from pipeline.command_line import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
