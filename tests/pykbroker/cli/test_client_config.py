"""The client settings that --command-config takes."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from pykbroker.cli.client_config import translate
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
        ("security.protocol=SASL_SSL", "sasl.mechanism=GSSAPI: expected one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
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
