"""A Python class that a setting names as ``module:Class``: authorizer and principal builder."""

from __future__ import annotations

from typing import Any

from pykbroker.config.definitions import ConfigError


def is_named_class(text: str) -> bool:
    """True for a text of the form ``module:Class``; no name of a Java class has a colon."""
    module, colon, class_name = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), class_name))


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
