"""Parts of a node that its settings decide."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.config.listener_addresses import ListenerAddress
from pykbroker.node.node_parts import sasl_maker


def test_a_listener_may_have_a_frame_size_of_its_own_before_the_login() -> None:
    """P-7."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice=a;"
    config = BrokerConfig.from_properties(
        {
            "listeners": "OPEN://localhost:0,CLIENT://localhost:0,OTHER://localhost:0",
            "advertised.listeners": "OPEN://localhost:9,CLIENT://localhost:10,OTHER://localhost:11",
            "listener.security.protocol.map": (
                "OPEN:PLAINTEXT,CLIENT:SASL_PLAINTEXT,OTHER:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "inter.broker.listener.name": "OPEN",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.client.plain.sasl.jaas.config": login,
            "listener.name.other.plain.sasl.jaas.config": login,
            "listener.name.client.sasl.server.max.receive.size": "2000",
            "sasl.server.max.receive.size": "1000",
        }
    )
    assert not config.ineffective_keys
    image, metadata = SimpleNamespace(), SimpleNamespace(config=config)
    parts: Any = SimpleNamespace(
        config=config, metadata=metadata, controller=SimpleNamespace(image=image), host=SimpleNamespace()
    )
    sizes = []
    for name in ("CLIENT", "OTHER"):
        make = sasl_maker(parts, ListenerAddress(name, "localhost", 0, "SASL_PLAINTEXT"), is_controller=False)
        assert make is not None
        sizes.append(make().frame_size_max(1 << 20))
    assert sizes == [2000, 1000]
