"""Regular expressions for transactional ids, matched in linear time: no pattern of a client stalls the broker.

Kafka uses RE2/J for them. Python's `re` backtracks, and a pattern such as ``(a+)+b`` would block the whole process for
years. This module follows all paths through a pattern at the same time, as RE2 does, and accepts the usual part of
RE2's syntax: literals, ``.``, classes, groups, ``|``, the quantifiers with their lazy form, ``^`` and ``$``, ``\\d \\w
\\s`` and their opposites, ``\\Q...\\E``. Flags, named groups, Unicode classes and word boundaries are refused as
malformed, as are back references and look-around, which RE2 does not have either.
"""

from __future__ import annotations

import string
from collections.abc import Callable

MAX_STATES = 2_000
"""Largest number of states of a compiled pattern; ``x{1000}`` has a thousand."""

MAX_CACHED_SETS = 1_000
"""Largest number of cached steps; with the cache ordinary patterns cost one look-up per character."""

MAX_WORK = 2_000_000
"""States that a pattern may visit in all, over all the ids it is matched with: less than a second of work."""

Test = Callable[[str], bool]


class InvalidPattern(ValueError):
    """The pattern is malformed, uses syntax that is not supported, or costs too much."""


class _Builder:
    """States of the automaton: each has a test and one successor, or no test and empty transitions to others."""

    def __init__(self) -> None:
        self.tests: list[Test | None] = []
        self.ways: list[list[int]] = []

    def state(self, test: Test | None = None) -> int:
        if len(self.tests) >= MAX_STATES:
            raise InvalidPattern("the pattern is too large")
        self.tests.append(test)
        self.ways.append([])
        return len(self.tests) - 1


# A parsed piece is a function that adds its states after `start` and returns the state at its end.
_Piece = Callable[[_Builder, int], int]


class IdPattern:
    """A compiled pattern.

    Raises:
        InvalidPattern: the pattern is malformed or not supported, see the module's docstring.
    """

    def __init__(self, text: str) -> None:
        piece = _Parser(text).parse()
        builder = _Builder()
        self._start = builder.state()
        self._end = piece(builder, self._start)
        self._tests, self._ways = builder.tests, builder.ways
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._work = 0
        self._initial = self._closure({self._start})

    def matches(self, text: str) -> bool:
        """True if the pattern matches the whole text.

        Raises:
            InvalidPattern: all matches of the pattern so far have cost more than `MAX_WORK`.
        """
        current = self._initial
        for character in text:
            found = self._steps.get((current, character))
            if found is None:
                found = self._step(current, character)
                if len(self._steps) >= MAX_CACHED_SETS:
                    self._steps.clear()
                self._steps[current, character] = found
            current = found
            if not current:
                return False
        return self._end in current

    def _step(self, current: frozenset[int], character: str) -> frozenset[int]:
        reached: set[int] = set()
        self._work += len(current)
        for state in current:
            test = self._tests[state]
            if test is not None and test(character):
                reached.update(self._ways[state])
        return self._closure(reached)

    def _closure(self, states: set[int]) -> frozenset[int]:
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            if self._tests[state] is None:
                for way in self._ways[state]:
                    if way not in states:
                        states.add(way)
                        waiting.append(way)
        self._work += len(states) + 1
        if self._work > MAX_WORK:
            raise InvalidPattern("the pattern costs too much")
        return frozenset(states)


class _Parser:
    """Recursive descent over a pattern; the deepest nesting is bounded."""

    MAX_DEPTH = 50

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0

    def parse(self) -> _Piece:
        piece = self._alternatives()
        if self._position < len(self._text):
            raise InvalidPattern(f"unmatched {self._text[self._position]!r} at {self._position}")
        return piece

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise InvalidPattern("the pattern ends too early")
        self._position += 1
        return character

    def _alternatives(self) -> _Piece:
        self._depth += 1
        if self._depth > self.MAX_DEPTH:
            raise InvalidPattern("groups are nested too deeply")
        branches = [self._sequence()]
        while self._peek() == "|":
            self._position += 1
            branches.append(self._sequence())
        self._depth -= 1
        return branches[0] if len(branches) == 1 else _either(branches)

    def _sequence(self) -> _Piece:
        pieces: list[_Piece] = []
        while self._peek() not in ("", "|", ")"):
            pieces.append(self._quantified(self._atom(is_first=not pieces)))
        return _sequence(pieces)

    def _quantified(self, piece: _Piece) -> _Piece:
        character = self._peek()
        bounds: tuple[int, int | None]
        if character == "{":
            bounds = self._bounds()
        elif character and character in "*+?":
            self._position += 1
            bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}[character]
        else:
            return piece
        if self._peek() == "?":
            self._position += 1  # lazy: makes no difference for a match of the whole text
        elif self._peek() and self._peek() in "*+{":
            raise InvalidPattern(f"a quantifier follows a quantifier at {self._position}")
        return _repeated(piece, *bounds)

    def _bounds(self) -> tuple[int, int | None]:
        end = self._text.find("}", self._position)
        lowest, comma, highest = self._text[self._position + 1 : max(end, 0)].partition(",")
        if end < 0 or not (lowest.isdecimal() and (highest == "" or highest.isdecimal())) or len(lowest + highest) > 9:
            raise InvalidPattern(f"malformed repetition at {self._position}")
        self._position = end + 1
        least = int(lowest)
        most = (int(highest) if highest else None) if comma else least
        if most is not None and most < least:
            raise InvalidPattern(f"malformed repetition before {self._position}")
        return least, most

    def _atom(self, *, is_first: bool) -> _Piece:
        character = self._take()
        if character == "(":
            return self._group()
        if character == "[":
            return _single(self._class())
        if character == ".":
            return _single(lambda c: c not in "\n\r\u0085\u2028\u2029")
        if character == "\\":
            return self._escaped()
        if character in "*+?{":
            raise InvalidPattern(f"nothing to repeat at {self._position - 1}")
        if character == "^":
            if not is_first or self._depth > 1:
                raise InvalidPattern("^ is available at the beginning only")
            return _sequence([])
        if character == "$":
            if self._peek() not in ("", "|") or self._depth > 1:
                raise InvalidPattern("$ is available at the end only")
            return _sequence([])
        return _single(lambda c: c == character)

    def _group(self) -> _Piece:
        if self._peek() == "?":
            if self._text[self._position : self._position + 2] != "?:":
                raise InvalidPattern(f"this kind of group is not available, at {self._position}")
            self._position += 2
        piece = self._alternatives()
        if self._peek() != ")":
            raise InvalidPattern("a group is not closed")
        self._position += 1
        return piece

    def _escaped(self) -> _Piece:
        if self._peek() == "Q":
            end = self._text.find("\\E", self._position)
            end = len(self._text) if end < 0 else end
            quoted = self._text[self._position + 1 : end]
            self._position = min(end + 2, len(self._text))
            return _sequence([_single(_equals(character)) for character in quoted])
        return _single(self._escape())

    def _escape(self) -> Test:
        character = self._take()
        if character in _KINDS:
            return _KINDS[character]
        if character in _CONTROLS:
            return _equals(_CONTROLS[character])
        if character in string.ascii_letters + string.digits:
            raise InvalidPattern(f"\\{character} is not available")
        return _equals(character)

    def _class(self) -> Test:
        is_negated = self._peek() == "^"
        self._position += is_negated
        tests: list[Test] = []
        while self._peek() != "]" or not tests:
            character = self._take()
            if character == "[" or self._text[self._position - 1 : self._position + 1] == "&&":
                raise InvalidPattern("classes within classes are not available")
            test = self._escape() if character == "\\" else _equals(character)
            if self._peek() == "-" and self._text[self._position + 1 : self._position + 2] not in ("", "]"):
                self._position += 1
                last = self._take()
                if character == "\\" or last in "\\[" or last < character:
                    raise InvalidPattern(f"malformed range before {self._position}")
                test = _between(character, last)
            tests.append(test)
        self._position += 1
        return lambda c: any(test(c) for test in tests) is not is_negated


_KINDS: dict[str, Test] = {
    "d": lambda c: c in string.digits,
    "D": lambda c: c not in string.digits,
    "w": lambda c: c in string.ascii_letters + string.digits + "_",
    "W": lambda c: c not in string.ascii_letters + string.digits + "_",
    "s": lambda c: c in " \t\n\x0b\f\r",
    "S": lambda c: c not in " \t\n\x0b\f\r",
}
"""Classes of ASCII characters alone, as in Java."""

_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _equals(expected: str) -> Test:
    return lambda character: character == expected


def _between(first: str, last: str) -> Test:
    return lambda character: first <= character <= last


def _single(test: Test) -> _Piece:
    def add(builder: _Builder, start: int) -> int:
        state, end = builder.state(test), builder.state()
        builder.ways[start].append(state)
        builder.ways[state].append(end)
        return end

    return add


def _sequence(pieces: list[_Piece]) -> _Piece:
    def add(builder: _Builder, start: int) -> int:
        for piece in pieces:
            start = piece(builder, start)
        return start

    return add


def _either(branches: list[_Piece]) -> _Piece:
    def add(builder: _Builder, start: int) -> int:
        end = builder.state()
        for branch in branches:
            first = builder.state()
            builder.ways[start].append(first)
            builder.ways[branch(builder, first)].append(end)
        return end

    return add


def _next(builder: _Builder, start: int) -> int:
    """Adds a state for each repetition, so that the limit of states also bounds the work for empty repetitions."""
    state = builder.state()
    builder.ways[start].append(state)
    return state


def _repeated(piece: _Piece, least: int, most: int | None) -> _Piece:
    def add(builder: _Builder, start: int) -> int:
        for _ in range(least):
            start = piece(builder, _next(builder, start))
        if most is None:
            loop, end = builder.state(), builder.state()
            builder.ways[start].append(loop)
            builder.ways[loop].append(end)
            builder.ways[piece(builder, loop)].append(loop)
            return end
        end = builder.state()
        for _ in range(most - least):
            builder.ways[start].append(end)
            start = piece(builder, _next(builder, start))
        builder.ways[start].append(end)
        return end

    return add
