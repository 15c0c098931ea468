"""JAAS texts as in `sasl.jaas.config`: ``module required option="value" ...;``.

A text of another form is no error, as in Java's JaasConfig: it has no options, or those parts that look like options.
"""

from __future__ import annotations

import re

_OPTION = re.compile(
    r"""(?<![\w."'])([A-Za-z_][\w.\-]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""", re.DOTALL
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
USER_PREFIX = "user_"


def jaas_options(text: str) -> dict[str, str]:
    """Options of a login module; a backslash in a quoted value keeps the next character as it is."""
    options: dict[str, str] = {}
    for name, double, single, bare in _OPTION.findall(text):
        options[name] = bare or _ESCAPE.sub(r"\1", double or single)
    return options


def passwords_of(text: str) -> dict[str, str]:
    """Passwords by user name, of a ``PlainLoginModule required user_alice="secret" ...;``."""
    return {
        name.removeprefix(USER_PREFIX): value
        for name, value in jaas_options(text).items()
        if name.startswith(USER_PREFIX)
    }
