"""NamedTuple: that of `typing`, in a tenth of the time per class.

`typing` compiles each annotation and a constructor for each class, 0.16 ms a class: 19 ms for the 121 classes that a
broker has when it answers its first request. Here one constructor is compiled per number of fields, and the others are
copies of its code with other names. Type checkers see `typing.NamedTuple`.
"""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NamedTuple as NamedTuple

try:
    from collections import _tuplegetter as field_getter  # type: ignore[attr-defined]
except ImportError:  # pragma: no cover: another Python than CPython
    from operator import itemgetter

    def field_getter(position: int, doc: str) -> Any:
        """A read-only attribute with the element at a position."""
        return property(itemgetter(position), doc=doc)


_GLOBALS: dict[str, Any] = {"_tuple_new": tuple.__new__, "__builtins__": {}, "__name__": __name__}
_constructors: dict[int, CodeType] = {}


def _constructor(name: str, fields: tuple[str, ...], defaults: tuple[Any, ...]) -> Any:
    """`__new__` of a class: takes the fields by position or by name."""
    code = _constructors.get(len(fields))
    if code is None:
        names = "".join(f"f{number}, " for number in range(len(fields)))
        made = eval(f"lambda _cls, {names}: _tuple_new(_cls, ({names}))", _GLOBALS)  # noqa: S307  no foreign text
        code = _constructors[len(fields)] = made.__code__
    own = code.replace(co_varnames=("_cls", *fields), co_name="__new__", co_qualname=f"{name}.__new__")
    return FunctionType(own, _GLOBALS, "__new__", defaults or None)


def _make(cls: Any, iterable: Iterable[Any]) -> Any:
    """Makes a tuple from a sequence or iterable of as many values as there are fields."""
    result = tuple.__new__(cls, iterable)
    if len(result) != len(cls._fields):
        raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(result)}")
    return result


def _replace(self: Any, /, **values: Any) -> Any:
    """A copy with other values in the named fields."""
    elements = list(self)
    positions = self._positions
    try:
        for name, value in values.items():
            elements[positions[name]] = value
    except KeyError:
        unexpected = [name for name in values if name not in positions]
        raise ValueError(f"Got unexpected field names: {unexpected!r}") from None
    return tuple.__new__(type(self), elements)


def _repr(self: Any) -> str:
    values = zip(self._fields, self, strict=True)
    return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in values)})"


def _asdict(self: Any) -> dict[str, Any]:
    """The values by the names of their fields."""
    return dict(zip(self._fields, self, strict=True))


def _getnewargs(self: Any) -> tuple[Any, ...]:
    return tuple(self)


_METHODS: dict[str, Any] = {
    "_make": classmethod(_make),
    "_replace": _replace,
    "__replace__": _replace,
    "_asdict": _asdict,
    "__repr__": _repr,
    "__getnewargs__": _getnewargs,
}


class _Declaration(type):
    """Makes a subclass of tuple from the body of a class statement."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        fields = tuple(body.get("__annotations__", ()))
        with_default = tuple(field for field in fields if field in body)
        if with_default and fields[-len(with_default) :] != with_default:
            raise TypeError(f"{name}: a field without a default follows one with a default")
        defaults = tuple(body.pop(field) for field in with_default)
        made: dict[str, Any] = {**_METHODS, **body}
        made["__slots__"] = ()
        made["__new__"] = _constructor(name, fields, defaults)
        made["_fields"] = made["__match_args__"] = fields
        made["_field_defaults"] = dict(zip(with_default, defaults, strict=True))
        # For `_replace`, whose cost then depends on the number of replaced fields, not of all fields.
        made["_positions"] = {field: position for position, field in enumerate(fields)}
        made.setdefault("__doc__", f"{name}({', '.join(fields)})")
        for position, field in enumerate(fields):
            made[field] = field_getter(position, f"Alias for field number {position}")
        others = tuple(base for base in bases if not isinstance(base, _Declaration))
        return type(name, (tuple, *others), made)


if not TYPE_CHECKING:
    NamedTuple = type.__new__(_Declaration, "NamedTuple", (), {})
