"""The client settings that --command-config takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykbroker.cli.client_config import translate
from tests.pykbroker.cli.conftest import Run

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
        (
            {
                "security.protocol": "ssl",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": "ca.pem",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": "client.pem",
                "ssl.key.password": "secret",
                "ssl.endpoint.identification.algorithm": "",
            },
            {
                "security_protocol": "SSL",
                "ssl_cafile": "ca.pem",
                "ssl_certfile": "client.pem",
                "ssl_password": "secret",
                "ssl_check_hostname": False,
            },
        ),
    ],
)
def test_settings(properties: dict[str, str], expected: dict[str, Any]) -> None:
    assert translate(properties) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("security.protocol=TLS", "security.protocol=TLS: expected one of PLAINTEXT, SASL_PLAINTEXT, SSL, SASL_SSL"),
        ("security.protocol=SASL_SSL", "sasl.mechanism=GSSAPI: expected one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        (
            'security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=X required username="a";',
            "sasl.jaas.config has no password",
        ),
        ("ssl.truststore.location=ca.jks", "ssl.truststore.type=JKS: expected PEM"),
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
