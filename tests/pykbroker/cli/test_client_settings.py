"""The client settings that --command-config takes."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import SaslAuthenticationFailedError
from kafka.net.sasl import SASL_MECHANISMS

from pykbroker.cli.client.client_settings import translate
from pykbroker.cli.client.login import login_settings
from pykbroker.security.scram import (
    ScramCredential,
    ScramCredentials,
    ScramExchange,
    TokenCredential,
    credential_of_password,
)
from tests.pykbroker.cli.conftest import Run
from tests.pykbroker.security.tls.certificates import authority, client, file_texts

LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="al\\"ice" password=pw;'


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, {"security_protocol": "PLAINTEXT"}),
        ({"linger.ms": "5"}, {"security_protocol": "PLAINTEXT"}),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": LOGIN},
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "SCRAM-SHA-256",
                "sasl_plain_username": 'al"ice',
                "sasl_plain_password": "pw",
            },
        ),
    ],
)
def test_settings(properties: dict[str, str], expected: dict[str, Any]) -> None:
    assert translate(properties) == expected


def test_oauthbearer(tmp_path: Path) -> None:
    """Tokens are those of the file, read again for each login; extensions are sent with them."""
    path = tmp_path / "token"
    path.write_text("first\n")
    translated = translate(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": path.as_uri(),
            "sasl.jaas.config": 'OAuthBearerLoginModule required extension_team="a b";',
        }
    )
    assert translated["sasl_mechanism"] == "OAUTHBEARER"
    tokens = translated["sasl_oauth_token_provider"]
    path.write_text("second")
    assert (tokens.token(), tokens.token(), tokens.extensions()) == ("first", "second", {"team": "a b"})


KERBEROS = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.kerberos.service.name": "kafka",
    "sasl.jaas.config": 'Krb5LoginModule required useKeyTab=true keyTab="%s" principal="alice@REALM";',
}


def test_gssapi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key table is used before tickets of others; the Kerberos library finds it by the environment."""
    key_table = tmp_path / "alice.keytab"
    monkeypatch.setenv("KRB5CCNAME", "FILE:/of/another")
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", "FILE:/of/another")
    properties = {**KERBEROS, "sasl.jaas.config": KERBEROS["sasl.jaas.config"] % key_table}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="the package gssapi is missing"):
        translate(properties)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    with pytest.raises(ValueError, match=r"keyTab=.*alice.keytab: no such file"):
        translate(properties)
    key_table.touch()
    cached = {**properties, "sasl.jaas.config": properties["sasl.jaas.config"].replace(";", " useTicketCache=true;")}
    expected = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
    }
    assert translate(cached) == expected
    assert (os.environ["KRB5CCNAME"], os.environ["KRB5_CLIENT_KTNAME"]) == ("FILE:/of/another", f"FILE:{key_table}")
    assert translate(properties) == expected
    assert os.environ["KRB5CCNAME"] == "MEMORY:pykbroker"


def test_certificates(tmp_path: Path) -> None:
    """Kafka's settings and librdkafka's give the same context."""
    found = file_texts(tmp_path, client(), authority())
    (tmp_path / "alone.pem").write_text(client().certificate_pem)
    librdkafka = {
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.certificate.location": str(tmp_path / "alone.pem"),
        "ssl.key.location": str(tmp_path / "key.pem"),
    }
    for properties in (found, librdkafka, {"ssl.ca.pem": authority().certificate_pem}):
        translated = translate({"security.protocol": "ssl", **properties})
        assert translated["security_protocol"] == "SSL"
        context = translated["ssl_context"]
        assert context.check_hostname
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert [dict(pair for (pair,) in each["subject"])["commonName"] for each in context.get_ca_certs()] == [
            "test CA"
        ]
    unchecked = {"security.protocol": "SSL", **found, "ssl.endpoint.identification.algorithm": ""}
    assert not translate(unchecked)["ssl_context"].check_hostname


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("security.protocol=TLS", "security.protocol=TLS: expected one of PLAINTEXT, SASL_PLAINTEXT, SSL, SASL_SSL"),
        ("security.protocol=SASL_SSL", "sasl.kerberos.service.name is missing"),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=X",
            "sasl.mechanism=X: expected one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI",
        ),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=file:/no/token",
            "No such file or directory",
        ),
        (
            'security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=X required username="a";',
            "sasl.jaas.config has no password",
        ),
        (
            "security.protocol=SSL\nssl.truststore.location=none.jks",
            "Failed to load SSL truststore of type JKS: No such",
        ),
        ("security.protocol=SSL\nssl.ca.location=none.pem", "ssl.ca.location=none.pem: No such file or directory"),
        ("security.protocol=SSL\nenable.ssl.certificate.verification=false", "without verification are not made"),
        (
            "security.protocol=SSL\nssl.ca.location=x\nssl.endpoint.identification.algorithm=none",
            "ssl.endpoint.identification.algorithm=none: leave the value empty, as Kafka has it",
        ),
        ("a=\\u12", "line 1: malformed"),
    ],
)
def test_a_file_that_is_not_understood_is_wrong_usage(run: Run, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(text)
    code, _, errors = run("topic", "list", "--command-config", str(path))
    assert code == 2
    assert f"{path}: " in errors
    assert words in errors
    assert run("topic", "list", "--command-config", str(tmp_path / "none"))[0] == 2


def scram_of_command_line(monkeypatch: pytest.MonkeyPatch, options: str) -> Any:
    """The mechanism with which the client library logs in."""
    for name in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        monkeypatch.setitem(SASL_MECHANISMS, name, SASL_MECHANISMS[name])
    jaas = f"org.apache.kafka.common.security.scram.ScramLoginModule required {options};"
    settings = login_settings({"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas})
    return SASL_MECHANISMS["SCRAM-SHA-256"](host="h", **settings)


def server(credential: ScramCredential) -> ScramExchange:
    """A server with the user "a,b" and the delegation token "id"."""
    token = TokenCredential("owner", 1 << 50, credential)
    known = ScramCredentials({"a,b": credential}.get, {"id": token}.get, lambda name: credential)
    return ScramExchange("SCRAM-SHA-256", known, "nonce")


@pytest.mark.parametrize(
    ("options", "user"),
    [('username="a,b" password="pw"', "a,b"), ('username="id" password="pw" tokenauth="true"', "owner")],
)
def test_scram_of_the_command_line(monkeypatch: pytest.MonkeyPatch, options: str, user: str) -> None:
    """P-252: by password and by delegation token."""
    client, other = scram_of_command_line(monkeypatch, options), server(credential_of_password("sha256", "pw", b"s"))
    while not client.is_done():
        client.receive(other.evaluate(client.auth_bytes()))
    assert client.is_authenticated()
    assert other.result is not None
    assert other.result.user == user


@pytest.mark.parametrize("answer", [b"r=%s,s=cw==,i=4095", b"r=%s,s=cw==,i=1000001", b"r=x,s=cw==,i=4096", b"e=x"])
def test_scram_of_the_command_line_refuses_a_server(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    """With too few iterations a server could find out the password by guessing."""
    client = scram_of_command_line(monkeypatch, 'username="a" password="pw"')
    nonce = client.auth_bytes().partition(b"r=")[2]
    with pytest.raises(SaslAuthenticationFailedError):
        client.receive(answer.replace(b"%s", nonce + b"x"))
