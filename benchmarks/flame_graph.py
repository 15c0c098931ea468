"""Stacks of a sampling profiler: the top functions, and a flame graph as SVG.

The raw format of py-spy has one line for each stack: frames from the outermost, with semicolons between them, a space,
and the number of samples.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Stacks = list[tuple[tuple[str, ...], int]]
WIDTH, ROW, LETTER = 1400.0, 16, 6.5


def stacks_in(raw: str) -> Stacks:
    """Frames and samples of each line; lines that are no stack are left out."""
    found = []
    for line in raw.splitlines():
        frames, _, count = line.rpartition(" ")
        if frames and count.isdigit():
            found.append((tuple(frames.split(";")), int(count)))
    return found


def function_of(frame: str) -> str:
    """A frame without its line number: `read (log.py:12)` is `read (log.py)`."""
    name, colon, line = frame.rpartition(":")
    return f"{name})" if colon and line.rstrip(")").isdigit() else frame


def top_functions(stacks: Iterable[tuple[tuple[str, ...], int]]) -> tuple[Counter[str], Counter[str]]:
    """Samples of each function: those where it ran itself, and those where it or what it called ran."""
    by_self: Counter[str] = Counter()
    cumulative: Counter[str] = Counter()
    for frames, count in stacks:
        names = [function_of(frame) for frame in frames]
        by_self[names[-1]] += count
        # A function that called itself ran once.
        for name in set(names):
            cumulative[name] += count
    return by_self, cumulative


@dataclass(slots=True)
class Node:
    """A function with the samples in which it was on this stack, and what it called."""

    samples: int = 0
    called: dict[str, Node] = field(default_factory=dict)


def tree(stacks: Iterable[tuple[tuple[str, ...], int]]) -> Node:
    """All stacks as one tree."""
    root = Node()
    for frames, count in stacks:
        node = root
        node.samples += count
        for frame in frames:
            node = node.called.setdefault(function_of(frame), Node())
            node.samples += count
    return root


def svg(stacks: Stacks, title: str) -> str:
    """A flame graph, the callers on top; a box's tooltip has its name and share."""
    root = tree(stacks)
    depth = max((len(frames) for frames, _ in stacks), default=0)
    height = ROW * (depth + 3)
    view = f"0 0 {WIDTH:.0f} {height}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view}" font-family="monospace" font-size="11">',
        f'<text x="4" y="{ROW}">{escape(title)}, {root.samples} samples</text>',
    ]
    # Nodes with the left edge and the row of their boxes.
    waiting = [(root, 0.0, 1)]
    while waiting:
        node, left, row = waiting.pop()
        for name, child in node.called.items():
            width = WIDTH * child.samples / root.samples
            # Thinner ones cannot be seen, and are most of a file.
            if width >= 0.5:
                lines.append(box(name, left, row, width, child.samples / root.samples))
                waiting.append((child, left, row + 1))
            left += width
    return "\n".join([*lines, "</svg>"]) + "\n"


def box(name: str, left: float, row: int, width: float, share: float) -> str:
    """One function's box, in a colour that its name decides."""
    hue = sum(name.encode()) % 50 + 10
    shown = escape(name[: int(width / LETTER)]) if width > 4 * LETTER else ""
    top = ROW * row + 6
    return (
        f'<g><title>{escape(name)}: {share:.1%}</title><rect x="{left:.1f}" y="{top}" width="{width:.1f}" '
        f'height="{ROW - 1}" fill="hsl({hue},80%,65%)"/><text x="{left + 2:.1f}" y="{top + 12}">{shown}</text></g>'
    )
