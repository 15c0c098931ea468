"""JAAS texts as in `sasl.jaas.config`: ``module required option="value" ...;``, read as Kafka's JaasConfig reads them.

A file of them has entries with names: ``KafkaServer { module required option="value" ...; };`` (`login_entries`).

That takes the words of Java's StreamTokenizer: quoted values have C's escapes, a slash outside of quotes begins a
comment, and what begins with a digit, a dot or a minus sign is a number, which is no value of an option unless quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pykbroker.named_tuple import NamedTuple

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
MODULES = (PLAIN_MODULE, SCRAM_MODULE, OAUTH_MODULE, KERBEROS_MODULE)
USER_PREFIX = "user_"

_CONTROL_FLAGS = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
_BETWEEN = re.compile(r"[\0-\x20]+|/\*.*?(?:\*/|\Z)|/(?:[^*][^\n\r]*)?", re.DOTALL)
_NUMBER = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]*)")
_WORD = re.compile(r"[A-Za-z_$\xa0-\U0010ffff][-A-Za-z0-9._$\xa0-\U0010ffff]*")
_QUOTED = {quote: re.compile(rf"{quote}((?:\\(?:.|\Z)|[^\\\n\r{quote}])*){quote}?", re.DOTALL) for quote in ('"', "'")}
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasError(ValueError):
    """A text that Kafka refuses, with Kafka's words if it has some. No text has values of options."""


class LoginModule(NamedTuple):
    """A login module: the name of its class, and its options."""

    name: str
    options: Mapping[str, str]


class _Token(NamedTuple):
    """kind: a word or number, the character itself, or its quotation mark; value: its text, None for a character."""

    kind: str
    value: str | None


def login_module(text: str) -> LoginModule:
    """The only login module of a text.

    Raises:
        JaasError: the text has another form, or another number of modules.
    """
    tokens = _tokens(text)
    modules = [_module(token, tokens) for token in tokens]
    if not modules:
        raise JaasError("Login module not specified in JAAS config")
    if len(modules) != 1:
        raise JaasError(f"JAAS config property contains {len(modules)} login modules, should be 1 module")
    return modules[0]


def login_entries(text: str) -> dict[str, list[LoginModule]]:
    """Login modules by the name of their entry, of a file as Java's `Configuration` reads it; `${...}` stays as it is.

    Raises:
        JaasError: the text has another form, or two entries have the same name.
    """
    tokens = _tokens(text)
    entries: dict[str, list[LoginModule]] = {}
    for name in tokens:
        if not name.value or name.value in entries:
            raise JaasError(f"expected the name of another entry instead of '{name.value or name.kind}'")
        modules = entries[name.value] = []
        _expect("{", f"after the name '{name.value}'", tokens)
        for token in tokens:
            if token.kind == "}":
                break
            modules.append(_module(token, tokens))
        else:
            raise JaasError(f"entry '{name.value}' not closed by '}}'")
        _expect(";", f"after entry '{name.value}'", tokens)
    return entries


def _expect(kind: str, place: str, tokens: Iterator[_Token]) -> None:
    token = next(tokens, None)
    if token is None or token.kind != kind:
        raise JaasError(f"expected '{kind}' {place}")


def text_of(module: LoginModule) -> str:
    """The text of a login module, of which `login_module` makes the same one."""
    options = (f' "{_escaped(name)}"="{_escaped(value)}"' for name, value in module.options.items())
    return f"{module.name} required{''.join(options)};"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")


def jaas_options(text: str) -> Mapping[str, str]:
    """Options of the login module of a text; none for "".

    Raises:
        JaasError: as `login_module`.
    """
    return login_module(text).options if text else {}


def checked_module(text: str) -> LoginModule:
    """As `login_module`, for a class that is available.

    Raises:
        JaasError: also for a class that is not available.
    """
    module = login_module(text)
    if module.name not in MODULES:
        raise JaasError(f"No LoginModule found for {module.name}; {', '.join(MODULES)} are available")
    return module


def passwords_of(module: LoginModule) -> dict[str, str]:
    """Passwords by user name, of a ``PlainLoginModule required user_alice="secret" ...;``; none of another module."""
    if module.name != PLAIN_MODULE:
        return {}
    options = module.options.items()
    return {name.removeprefix(USER_PREFIX): value for name, value in options if name.startswith(USER_PREFIX)}


def _module(first: _Token, tokens: Iterator[_Token]) -> LoginModule:
    flag = next(tokens, None)
    if flag is None:
        raise JaasError("Login module control flag not specified in JAAS config")
    if flag.value is None:
        raise JaasError("Login module control flag is not available in the JAAS config")
    if flag.value.upper() not in _CONTROL_FLAGS:
        raise JaasError(f"Invalid login module control flag '{flag.value}' in JAAS config")
    options: dict[str, str] = {}
    for key in tokens:
        if key.kind == ";":
            break
        equals, value = next(tokens, None), None
        if equals is not None and equals.kind == "=":
            value = next(tokens, None)
        if value is None or value.value is None:
            raise JaasError(f"Value not specified for key {_error_place(key, options)} in JAAS config")
        if key.value is not None:
            options[key.value] = value.value
    else:
        raise JaasError("JAAS config entry not terminated by semi-colon")
    if not first.value:
        raise JaasError("the login module in JAAS config has no name")
    return LoginModule(first.value, options)


def _error_place(key: _Token, options: Mapping[str, str]) -> str:
    """Place of a key, for an error. After an option it has that option's name: the key may be a part of a password."""
    return f"after '{list(options)[-1]}'" if options else f"'{key.value or 'null'}'"


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        if between := _BETWEEN.match(text, position):
            position = between.end()
            continue
        kind, value = text[position], None
        if number := _NUMBER.match(text, position):
            kind, position = "number", number.end()
        elif word := _WORD.match(text, position):
            kind, value, position = "word", word[0], word.end()
        elif kind in _QUOTED:
            quoted = _QUOTED[kind].match(text, position)
            assert quoted is not None
            value, position = _ESCAPE.sub(_unescaped, quoted[1]), quoted.end()
        else:
            position += 1
        yield _Token(kind, value)


def _unescaped(escape: re.Match[str]) -> str:
    character = escape[1]
    if character[0] in "01234567":
        return chr(int(character, 8))
    return _ESCAPED.get(character, character)
