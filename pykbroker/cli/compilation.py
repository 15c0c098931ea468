"""State of this installation's hot loops, compiled or interpreted: pip does not report that they were not compiled."""

from __future__ import annotations

from importlib.util import find_spec

MODULE = "pykbroker.protocol.records.record_scan"
"""The one module that `setup.py` compiles."""

ADVICE = (
    "the loop over the records of produced batches runs as Python, which is slower and otherwise the same. To compile "
    "it, install a C compiler and Python's headers, then pykbroker again with PYKBROKER_COMPILE=1 in the environment "
    "(pip install --force-reinstall --no-deps --no-cache-dir): pip then shows why it cannot be compiled"
)


def is_compiled() -> bool:
    """True if the module is compiled; it is not imported for the check."""
    spec = find_spec(MODULE)
    return spec is not None and not (spec.origin or ".py").endswith((".py", ".pyc"))


def compilation_text() -> str:
    """`compiled`, or `interpreted` and what to do about it."""
    return "compiled" if is_compiled() else f"interpreted: {ADVICE}"
