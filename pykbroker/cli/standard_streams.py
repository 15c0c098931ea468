"""Standard input, output and error of a process that was forked and not started anew."""

from __future__ import annotations

import os
import sys


def take_standard_streams(stdin: int, output: int) -> None:
    """Make descriptors 0, 1 and 2, and the files of `sys` on them, those of this process; lines are written at once."""
    for source, target in ((stdin, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    for descriptor in (stdin, output):
        if descriptor > 2:
            os.close(descriptor)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
