"""A Python class that a setting names as ``module:Class``: authorizer and principal builder."""

from __future__ import annotations

import re
from typing import Any

from pykbroker.config.definitions import ConfigError

_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_named_class(text: str) -> bool:
    """True for a text of the form ``module:Class``, which no name of a Java class has."""
    return _NAME.fullmatch(text) is not None


def load_class(key: str, text: str) -> type[Any]:
    """Imports the class that the setting `key` names.

    Raises:
        ConfigError: there is no such module, or no such class in it.
    """
    from importlib import import_module

    module_name, _, class_name = text.partition(":")
    try:
        found = getattr(import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(key, text, f"it cannot be imported: {error}") from error
    if not isinstance(found, type):
        raise ConfigError(key, text, "it is not a class")
    return found
