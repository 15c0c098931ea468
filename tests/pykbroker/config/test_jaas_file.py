"""Login modules from the JAAS file that `KAFKA_OPTS` names (P-310)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pykbroker.cli.errors import CliError
from pykbroker.cli.start.config import broker_properties
from pykbroker.cli.start.options import parse_start_options
from pykbroker.config.broker_config import BrokerConfig
from pykbroker.config.jaas import (
    KERBEROS_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    JaasError,
    LoginModule,
    login_entries,
    login_module,
    passwords_of,
    text_of,
)
from pykbroker.config.jaas_file import jaas_file_path, login_settings
from tests.support.java_programs import ask

FILE = f"""
KafkaServer {{
    {PLAIN_MODULE} required
    username="admin"  // of this node
    password="admin-secret" user_admin="admin-secret" user_alice="a\\"b;";
    {SCRAM_MODULE} required username=node password="x";
}};
/* not for a broker */
Client{{}};
"secure.KafkaServer" {{ {PLAIN_MODULE} required user_bob=secret; }};
"""
SASL = {
    "KAFKA_LISTENERS": "INSIDE://127.0.0.1:9092,SECURE://127.0.0.1:9093,OUTSIDE://127.0.0.1:9094",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INSIDE:PLAINTEXT,SECURE:SASL_PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "INSIDE",
    "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN,SCRAM-SHA-512",
}


def started(environment: dict[str, str], *words: str) -> dict[str, str]:
    return broker_properties(parse_start_options([*words]), environment)


def with_file(path: Path) -> dict[str, str]:
    return SASL | {"KAFKA_OPTS": f"-Xmx1g -Djava.security.auth.login.config={path} -Dother=1"}


def test_listeners_without_a_module_have_that_of_the_file(tmp_path: Path) -> None:
    """An entry of the listener comes first, and each mechanism has the module of its kind."""
    file = tmp_path / "kafka_jaas.conf"
    file.write_text(FILE)
    environment = with_file(file) | {
        "KAFKA_LISTENER_NAME_OUTSIDE_SCRAM___SHA___512_SASL_JAAS_CONFIG": f"{SCRAM_MODULE} required;"
    }
    config = BrokerConfig.from_properties(started(environment))
    texts = {key: text for key, text in config.static_properties.items() if key.endswith("sasl.jaas.config")}
    assert {key: login_module(text) for key, text in texts.items()} == {
        "listener.name.secure.plain.sasl.jaas.config": LoginModule(PLAIN_MODULE, {"user_bob": "secret"}),
        "listener.name.secure.scram-sha-512.sasl.jaas.config": LoginModule(PLAIN_MODULE, {"user_bob": "secret"}),
        "listener.name.outside.plain.sasl.jaas.config": login_entries(FILE)["KafkaServer"][0],
        "listener.name.outside.scram-sha-512.sasl.jaas.config": LoginModule(SCRAM_MODULE, {}),
    }
    outside = login_module(texts["listener.name.outside.plain.sasl.jaas.config"])
    assert passwords_of(outside) == {"admin": "admin-secret", "alice": 'a"b;'}


def test_a_login_at_other_nodes(tmp_path: Path) -> None:
    """Also by a mechanism that the listeners of this node do not offer."""
    file = tmp_path / "kafka_jaas.conf"
    file.write_text(FILE)
    environment = with_file(file) | {
        "KAFKA_SASL_MECHANISM_CONTROLLER_PROTOCOL": "SCRAM-SHA-256",
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "2@127.0.0.1:9095",
    }
    environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"] += ",CONTROLLER:SASL_PLAINTEXT"
    login = BrokerConfig.from_properties(started(environment)).security.node_logins["CONTROLLER"]
    assert (login.mechanism, login.options["username"]) == ("SCRAM-SHA-256", "node")


def test_the_file_is_read_only_if_a_module_is_missing(tmp_path: Path) -> None:
    absent = with_file(tmp_path / "absent")
    with pytest.raises(CliError, match=r"java\.security\.auth\.login\.config=.*absent: No such file or directory"):
        started(absent)
    started(absent | {"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INSIDE:PLAINTEXT,SECURE:SSL,OUTSIDE:PLAINTEXT"})
    started(absent | {"KAFKA_SASL_JAAS_CONFIG": f"{PLAIN_MODULE} required;"})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"KafkaServer", "expected '{' after the name 'KafkaServer'"),
        (b"{};", "expected the name of another entry instead of '{'"),
        (b"A {}; A {};", "expected the name of another entry instead of 'A'"),
        (b"A { x required;", "entry 'A' not closed by '}'"),
        (b"A { x required; }", "expected ';' after entry 'A'"),
        (b"A { x needed; };", "Invalid login module control flag 'needed' in JAAS config"),
        (b"\xff", "not UTF-8 text"),
    ],
)
def test_a_file_that_java_refuses(text: bytes, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "kafka_jaas.conf"
    file.write_bytes(text)
    with pytest.raises(CliError) as refused:
        started(with_file(file))
    assert str(refused.value) == f"KAFKA_OPTS: java.security.auth.login.config={file}: {reason}"


def test_an_entry_that_is_missing_leaves_the_settings_as_they_are() -> None:
    """The node then says which entry it looked for."""
    assert login_settings([("SECURE", "PLAIN")], login_entries("Client {x required;}; KafkaServer {};")) == {}
    modules = login_entries(f"KafkaServer {{ x required; {KERBEROS_MODULE} required; }};")
    key = "listener.name.secure.gssapi.sasl.jaas.config"
    assert login_module(login_settings([("SECURE", "GSSAPI")], modules)[key]).name == KERBEROS_MODULE


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ("", None),
        ("-Dx=1", None),
        ("-Djava.security.auth.login.config=/a -Djava.security.auth.login.config==/b", "/b"),
        ("-Djava.security.auth.login.config=file:/a", "/a"),
    ],
)
def test_where_the_file_is(options: str, path: str | None) -> None:
    assert jaas_file_path({"KAFKA_OPTS": options}) == path


@pytest.mark.parametrize("value", ["", "a", 'a"b', "\\", "\\n", "\n\r\t\0", "é€", "//", "1", "a'b;"])
def test_a_module_as_text(value: str) -> None:
    module = LoginModule(PLAIN_MODULE, {"user_a": value, "c d": value})
    assert login_module(text_of(module)) == module


# Not ', which Java takes for no value in a file but for one in `sasl.jaas.config`, and is a value in both here.
PIECES = [
    *("A", "B", "{", "}", "};", "required", "x", "=", ";", " ", "\n", "a=b", 'c="d"', '"', "\\", "\\101"),
    *("/", "//", "/*", "*/", "-", "-1", ".", "7", "_", "$", "A {", "x required", "x required a=b;"),
]


@pytest.mark.java
def test_as_java() -> None:
    chance = random.Random(310)
    texts = [
        "",
        FILE.replace("KafkaServer", "A").replace("secure.A", "B"),
        "A{};",
        'A {"a b" optional; x required c=d;};',
    ]
    for _ in range(3000):
        body = "".join(chance.choice(PIECES) for _ in range(chance.randrange(9)))
        texts.append(f"A {{ x required a=b; {body} }}; B {{}};" if chance.random() < 0.6 else f"{body};")
    differing = [
        (text, theirs, ours)
        for text, theirs, ours in zip(texts, ask("JaasFileCheck", texts), map(_verdict, texts), strict=True)
        if theirs != ours
    ]
    assert differing == []


def _verdict(text: str) -> object:
    try:
        entries = login_entries(text)
    except JaasError:
        return "refused"
    return {name: [[module.name, dict(module.options)] for module in entries.get(name, [])] for name in ("A", "B")}
