"""Texts of `sasl.jaas.config`, and what Kafka's JaasConfig makes of the same texts."""

from __future__ import annotations

import random

import pytest

from pykbroker.config.jaas import JaasError, LoginModule, checked_module, jaas_options, login_module, passwords_of
from tests.support.java_programs import ask

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('username="x" user_alice="a;\\"b" user_bob=c;', {"username": "x", "user_alice": 'a;"b', "user_bob": "c"}),
        ('a=\'"\' b="\'" "c d"=e;', {"a": '"', "b": "'", "c d": "e"}),
        (r'a="\101\7x\t\n\\\q";', {"a": "A\x07x\t\n\\q"}),
        ("a=b//c;\n/* d=e; */;", {"a": "b"}),
        ("7=a;", {}),
        ("a=x-1.y_$;", {"a": "x-1.y_$"}),
        ("é=ü;", {"é": "ü"}),
        ('a="not closed\n;', {"a": "not closed"}),
    ],
)
def test_options(text: str, options: dict[str, str]) -> None:
    """P-310: words and quoted values as Java's StreamTokenizer reads them."""
    assert login_module(f"{PLAIN} required {text}") == LoginModule(PLAIN, options)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "Login module not specified in JAAS config"),
        (" // x required;", "Login module not specified in JAAS config"),
        ("x", "Login module control flag not specified in JAAS config"),
        ("x ;", "Login module control flag is not available in the JAAS config"),
        ("x needed;", "Invalid login module control flag 'needed' in JAAS config"),
        ("x required a=b", "JAAS config entry not terminated by semi-colon"),
        ("x required a b;", "Value not specified for key 'a' in JAAS config"),
        ("x required a=", "Value not specified for key 'a' in JAAS config"),
        ("x required a=7;", "Value not specified for key 'a' in JAAS config"),
        ("x required a=-b;", "Value not specified for key 'a' in JAAS config"),
        ("x required a=.5;", "Value not specified for key 'a' in JAAS config"),
        ("x required; y required;", "JAAS config property contains 2 login modules, should be 1 module"),
        ("7 required;", "the login module in JAAS config has no name"),
    ],
)
def test_what_is_refused(text: str, error: str) -> None:
    """P-310: with Kafka's texts."""
    with pytest.raises(JaasError, match=error):
        login_module(text)


def test_no_error_has_a_part_of_a_password() -> None:
    """P-310: a quote inside a password ends it, and what follows is a key. Kafka's text has that key."""
    with pytest.raises(JaasError, match="Value not specified for key after 'user_a'") as refused:
        login_module(f'{PLAIN} required user_a="se"cret";')
    assert "cret" not in str(refused.value)


def test_a_class_that_is_not_there() -> None:
    """P-310."""
    assert checked_module(f"{PLAIN} optional;").name == PLAIN
    with pytest.raises(JaasError, match=r"No LoginModule found for com\.example\.Module"):
        checked_module("com.example.Module required;")


def test_users() -> None:
    module = login_module(f'{PLAIN} required username="x" user_alice="a" user_="b";')
    assert passwords_of(module) == {"alice": "a", "": "b"}
    assert passwords_of(module._replace(name="Other")) == {}
    assert jaas_options("") == {}


PIECES = [
    *("x", "a.B", "required", "optional", "=", ";", " ", "\n", "\r\n", "a=b", 'c="d"', "'", '"', "\\", "\\n", "\\101"),
    *("\\4", "/", "//", "/*", "*/", "-", "-1", ".", "1.5", "7", "_", "$", "é", "\x7f", "\x85", "\u20ac", "{", ","),
]


@pytest.mark.java
def test_as_kafka() -> None:
    """P-310: texts by chance, each read by Kafka's JaasContext and here."""
    chance = random.Random(310)
    texts = ["", "x required;", 'x required a="b";', "x required 7=a;", "x required 'q'=\"open\n;"]
    for _ in range(4000):
        body = "".join(chance.choice(PIECES) for _ in range(chance.randrange(12)))
        texts.append(f"x required a=b {body};" if chance.random() < 0.7 else body)
    differing = [
        (text, theirs, ours)
        for text, theirs, ours in zip(texts, ask("JaasCheck", texts), map(_verdict, texts), strict=True)
        if theirs != ours
    ]
    assert differing == []


def _verdict(text: str) -> list[object]:
    try:
        module = login_module(text)
    except JaasError as error:
        # Where the two differ on purpose: no key after the first option is named, and a module without a name, for
        # which Java has no text, has one.
        words = str(error)
        if words.startswith("Value not specified"):
            words = "Value not specified"
        return ["" if words.endswith("has no name") else words]
    return [module.name, dict(module.options)]
