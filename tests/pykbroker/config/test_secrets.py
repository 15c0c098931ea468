"""Settings that are refused: no error shows a password or a key, whatever is wrong with it."""

from __future__ import annotations

import pytest

from pykbroker.config.broker_config import BrokerConfig, ConfigError
from pykbroker.config.definitions import PASSWORD
from pykbroker.config.definitions.broker import BROKER_CONFIGS
from pykbroker.controller.metadata.image import EMPTY_IMAGE
from pykbroker.node.host import Host
from pykbroker.node.sasl_mechanisms import ListenerMechanisms
from pykbroker.security.tls import development
from pykbroker.security.tls.node_tls import NodeTls

SECRET = "Tr0ub4dor"
MODULE = "org.apache.kafka.common.security"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI")
VALUES = (
    SECRET,
    f'{MODULE}.plain.PlainLoginModule required password="{SECRET}',
    f'{MODULE}.scram.ScramLoginModule required username="a" password="{SECRET}" other;',
    f'x required user_a="{SECRET}" user_b;',
    f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
)
SECRETS = sorted(key for key, definition in BROKER_CONFIGS.items() if definition.type == PASSWORD)


STORE = development.issue("broker", hosts=["localhost"])


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL", "SSL"])
@pytest.mark.parametrize("key", SECRETS)
def test_no_error_and_no_log_shows_a_secret(key: str, protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    texts = []
    for mechanism in MECHANISMS:
        for prefix in ("", "listener.name.secure.", f"listener.name.secure.{mechanism.lower()}."):
            for value in VALUES:
                try:
                    config = BrokerConfig.from_properties(settings(protocol, mechanism) | {prefix + key: value})
                    texts.append(repr(config))
                    if protocol.endswith("SSL"):
                        NodeTls(config)
                    if protocol.startswith("SASL"):
                        ListenerMechanisms(config, "SECURE", lambda: EMPTY_IMAGE, Host.real(), is_controller=False)
                except ConfigError as error:
                    texts.append(f"{error} {error!r}")
    assert len(texts) >= len(MECHANISMS) * len(VALUES)
    assert not [text for text in (*texts, caplog.text) if SECRET in text]


def settings(protocol: str, mechanism: str) -> dict[str, str]:
    """A broker whose listeners have a security protocol, a mechanism and a key store that can be used."""
    return {
        "log.dirs": "/nowhere",
        "listeners": "SECURE://127.0.0.1:0",
        "listener.security.protocol.map": f"SECURE:{protocol},CONTROLLER:{protocol}",
        "inter.broker.listener.name": "SECURE",
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "sasl.mechanism.controller.protocol": mechanism,
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": STORE.certificate_pem,
        "ssl.keystore.certificate.chain": STORE.certificate_pem,
        "ssl.keystore.key": STORE.key_pem,
    }
