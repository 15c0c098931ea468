"""The tools are programs, not a package: their folder is what Python puts on the path when it runs one of them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
