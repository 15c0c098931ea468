"""A Python class that a setting names as ``module:Class``: authorizer and principal builder."""

from __future__ import annotations

import re
from typing import Any

_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class ClassUnavailable(ValueError):
    """The setting names no class that can be imported; the text is for the administrator."""


def is_named_class(text: str) -> bool:
    """True for a text of the form ``module:Class``, which no name of a Java class has."""
    return _NAME.fullmatch(text) is not None


def load_class(text: str) -> type[Any]:
    """Imports the class.

    Raises:
        ClassUnavailable: there is no such module, or no such class in it.
    """
    from importlib import import_module

    module_name, _, class_name = text.partition(":")
    try:
        found = getattr(import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise ClassUnavailable(f"{text} cannot be imported: {error}") from error
    if not isinstance(found, type):
        raise ClassUnavailable(f"{text} is not a class")
    return found
