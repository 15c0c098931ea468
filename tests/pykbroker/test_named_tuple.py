"""The project's NamedTuple is that of typing, in everything that its classes are used for."""

from __future__ import annotations

import copy
import pickle
import typing
from typing import Any, Generic, TypeVar

import pytest

from pykbroker.named_tuple import NamedTuple

T = TypeVar("T")


class Point(NamedTuple):
    """A place."""

    x: int
    y: int = 2
    z: list[int] | None = None

    @property
    def total(self) -> int:
        """The sum."""
        return self.x + self.y

    @classmethod
    def zero(cls) -> Point:
        """The origin."""
        return cls(0, 0)


class Standard(typing.NamedTuple):
    x: int
    y: int = 2
    z: list[int] | None = None


class Box(NamedTuple, Generic[T]):
    content: T


class Empty(NamedTuple):
    pass


def test_values() -> None:
    point = Point(1, z=[3])
    assert tuple(point) == (1, 2, [3])
    assert point.__eq__(Standard(1, z=[3]))
    assert (point.x, point.y, point.z, point.total) == (1, 2, [3], 3)
    assert hash(Point(1)) == hash((1, 2, None))
    assert repr(point) == "Point(x=1, y=2, z=[3])"
    assert Point.zero() == (0, 0, None)
    assert Box(5).content == 5
    assert Empty() == ()
    assert Point.__doc__ == "A place."
    assert Box.__doc__ == "Box(content)"


def test_what_namedtuple_has() -> None:
    ours: Any = Point
    for name in ("_fields", "_field_defaults", "__match_args__", "__slots__"):
        assert getattr(ours, name) == getattr(Standard, name)
    point = Point(1)
    assert point._replace(x=7, z=[]) == (7, 2, [])
    assert type(point._replace(x=7)) is Point
    assert point._asdict() == {"x": 1, "y": 2, "z": None}
    assert Point._make([4, 5, None]) == (4, 5, None)
    with pytest.raises(TypeError, match="Expected 3 arguments, got 1"):
        Point._make([4])
    with pytest.raises(ValueError, match="unexpected field names"):
        point._replace(w=1)  # type: ignore[call-arg]
    assert pickle.loads(pickle.dumps(point)) == point == copy.copy(point)
    assert type(copy.deepcopy(point)) is Point
    match point:
        case Point(x, 2, z=None):
            assert x == 1
        case _:
            pytest.fail("does not match")


def test_refusals() -> None:
    make: Any = Point
    for arguments, named in (((), {}), ((1, 2, None, 4), {}), ((1,), {"x": 1}), ((1,), {"w": 1})):
        with pytest.raises(TypeError, match=r"__new__\(\)"):
            make(*arguments, **named)
    with pytest.raises(AttributeError):
        setattr(Point(1), "x", 2)  # noqa: B010
    with pytest.raises(AttributeError):
        setattr(Point(1), "w", 2)  # noqa: B010
    with pytest.raises(TypeError, match="without a default"):
        exec("class Wrong(NamedTuple):\n    x: int = 1\n    y: int\n", {"NamedTuple": NamedTuple, "__name__": __name__})
