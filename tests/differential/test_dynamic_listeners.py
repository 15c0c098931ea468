"""P-484: `listeners` and their protocols, changed while brokers run: the same errors and texts, the same open ports."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import pytest

from interop_tests.brokers import ApacheKafkaProcess, BrokerProcess, PykbrokerProcess
from interop_tests.java_tools import JavaTools
from interop_tests.ports import free_port, free_ports
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker.protocol.messages.metadata import MetadataRequest
from tests.support.kafka_jars import kafka_libs
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.java

BROKER = 4
LISTENERS, MAP = "listeners", "listener.security.protocol.map"
PROTOCOLS = "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT,SPARE:PLAINTEXT"
NAMES = ("PLAINTEXT", "INTERNAL", "CONTROLLER")
TIMEOUT_S = 30.0
# Ports are the numbers of the broker's own ones.
PLAINTEXT, INTERNAL, CONTROLLER = OWN = tuple(f"{name}://127.0.0.1:{{{i}}}" for i, name in enumerate(NAMES))
ALL = ",".join(OWN)

CASES: list[Mapping[str, str | None]] = [
    {LISTENERS: f"{ALL},EXTRA://127.0.0.1:1"},
    {LISTENERS: f"{ALL},SPARE://127.0.0.1:1"},
    {LISTENERS: f"{ALL},spare://127.0.0.1:1"},
    {LISTENERS: f"{ALL},SPARE://127.0.0.1:"},
    {LISTENERS: f"{ALL},SPARE://127.0.0.1"},
    *(
        {LISTENERS: f"{ALL},SPARE://127.0.0.1:{port}"}
        for port in (
            "-1",
            "01",
            "65536",
            str(2**31 - 1),
            str(2**31),
            str(-(2**31) - 1),
            "+1",
            "\N{ARABIC-INDIC DIGIT ONE}",
        )
    ),
    {LISTENERS: f"{ALL},SPARE://:1"},
    {LISTENERS: f"{ALL},SPARE://[::1]:1"},
    {LISTENERS: f"{ALL},SPARE:127.0.0.1:1"},
    {LISTENERS: f"{ALL},://127.0.0.1:1"},
    {LISTENERS: f"{ALL},SPARE://ho st:1"},
    {LISTENERS: f"{ALL},SP_ARE-1.x://host:1"},
    {LISTENERS: f"{ALL},foo"},
    {LISTENERS: f"{ALL},,"},
    {LISTENERS: f"{ALL}, SPARE://127.0.0.1:1"},
    {LISTENERS: f"{ALL},{ALL}"},
    {LISTENERS: f"{ALL},PLAINTEXT://127.0.0.1:1"},
    {LISTENERS: f"{ALL},plaintext://127.0.0.1:1"},
    {LISTENERS: f"{ALL},SPARE://127.0.0.1:{{0}}"},
    {LISTENERS: f"{ALL},SPARE://[::1]:{{0}}"},
    {LISTENERS: f"{ALL},SPARE://127.0.0.1:{{0}},S2://127.0.0.1:{{0}}"},
    {LISTENERS: f"{PLAINTEXT},{CONTROLLER}"},
    {LISTENERS: f"{INTERNAL},{CONTROLLER}"},
    {LISTENERS: f"{CONTROLLER},{INTERNAL}"},
    {LISTENERS: INTERNAL},
    {LISTENERS: f"{PLAINTEXT},{INTERNAL}"},
    {LISTENERS: f"{PLAINTEXT},{INTERNAL},SPARE://127.0.0.1:1"},
    {LISTENERS: f"{CONTROLLER},{INTERNAL},{PLAINTEXT}"},
    {LISTENERS: ""},
    {LISTENERS: " "},
    {LISTENERS: ","},
    {LISTENERS: f"PLAINTEXT://127.0.0.1:1,{INTERNAL},{CONTROLLER}"},
    *({MAP: text} for text in ("", "x", "x:y", "PLAINTEXT:PLAINTEXT", f"{PROTOCOLS},", f"{PROTOCOLS},,X:SSL")),
    *({MAP: f"{PROTOCOLS},{text}"} for text in ("x:y", "X", "X:", ":SSL", "X:ssl", "X: SSL", "a:b:SSL", "spare:SSL")),
    {MAP: PROTOCOLS.replace("PLAINTEXT:PLAINTEXT", "PLAINTEXT:SSL")},
    {MAP: PROTOCOLS.replace("INTERNAL:PLAINTEXT", "INTERNAL:SASL_PLAINTEXT")},
    {MAP: PROTOCOLS.replace("CONTROLLER:PLAINTEXT", "CONTROLLER:SSL")},
    {MAP: PROTOCOLS.replace("CONTROLLER:PLAINTEXT", "X:SSL")},
    {MAP: PROTOCOLS.replace("SPARE:PLAINTEXT", "SPARE:SSL")},
    {LISTENERS: f"{ALL},EXTRA://127.0.0.1:1", MAP: f"{PROTOCOLS},EXTRA:SSL"},
    {LISTENERS: f"{ALL},EXTRA://127.0.0.1:1", MAP: f"{PROTOCOLS},EXTRA:SASL_SSL"},
    {LISTENERS: f"{ALL},SPARE://127.0.0.1:1", "listener.name.spare.max.connections": "0"},
    {LISTENERS: f"{ALL},SPARE://127.0.0.1:1", "listener.name.spare.num.network.threads": "100"},
    {LISTENERS: f"{ALL},SPARE://127.0.0.1:1", "listener.name.spare.ssl.client.auth": "x"},
    {LISTENERS: f"{ALL},SPARE://127.0.0.1:1", "listener.name.spare.socket.send.buffer.bytes": "1000"},
    {LISTENERS: f"{ALL},SPARE://127.0.0.1:1", "listener.name.plaintext.socket.send.buffer.bytes": "1000"},
    {LISTENERS: f"{ALL},SPARE://127.0.0.1:1", "advertised.listeners": ALL},
    {LISTENERS: f"{ALL},SPARE://127.0.0.1:1", "inter.broker.listener.name": "SPARE"},
]


class Running:
    """A broker with its ports."""

    def __init__(self, process: BrokerProcess) -> None:
        self.client = WireClient(process.address)
        self.ports = [text.rpartition(":")[2] for text in self.describe()[LISTENERS][0].split(",")]

    def describe(self) -> dict[str, tuple[str, bool, int]]:
        """Value, whether it cannot be changed, and source of both settings."""
        resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=[LISTENERS, MAP])
        result = self.client.call(DescribeConfigsRequest(resources=[resource]), 4).results[0]
        return {
            config.name: (self.plain(config.value), config.read_only, config.config_source) for config in result.configs
        }

    def alter(
        self, settings: Mapping[str, str | None], level: str = "1", *, is_check: bool = True
    ) -> tuple[int, str | None]:
        """Error code and text, which has numbers in place of the broker's own ports."""
        configs = [
            AlterableConfig(
                name=name, config_operation=1 if text is None else 0, value=text and text.format(*self.ports)
            )
            for name, text in settings.items()
        ]
        resource = AlterConfigsResource(resource_type=BROKER, resource_name=level, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=is_check)
        result = self.client.call(request, 1).responses[0]
        return result.error_code, result.error_message and self.plain(result.error_message)

    def plain(self, text: str) -> str:
        for number, port in enumerate(getattr(self, "ports", ())):
            text = text.replace(port, f"{{{number}}}")
        return text


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Running]]:
    folder = tmp_path_factory.mktemp("listeners")
    kafka = ApacheKafkaProcess(folder / "kafka", folder / "kafka.log", {MAP: PROTOCOLS}, JavaTools(kafka_libs()))
    ports = free_ports(3)
    own = [text.format(*ports) for text in OWN]
    settings = {
        LISTENERS: ",".join(own),
        "advertised.listeners": ",".join(own[:2]),
        "inter.broker.listener.name": "INTERNAL",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{ports[2]}",
        "process.roles": "broker,controller",
        "node.id": "1",
        MAP: PROTOCOLS,
    }
    ours = PykbrokerProcess(folder / "pykbroker", folder / "pykbroker.log", settings)
    ours.bootstrap = f"127.0.0.1:{ports[0]}"
    processes: tuple[BrokerProcess, ...] = kafka, ours
    try:
        for process in processes:
            process.start()
        found = Running(kafka), Running(ours)
        yield found
        for running in found:
            running.client.close()
    finally:
        for process in processes:
            process.stop()


def test_changes_of_listeners_are_refused_in_the_same_words(both: tuple[Running, Running]) -> None:
    kafka, ours = both
    differ = [
        f"{level or 'all brokers'} {settings}\n  Kafka {theirs}\n  ours  {own}"
        for settings in CASES
        for level in ("1", "")
        if (theirs := kafka.alter(settings, level)) != (own := ours.alter(settings, level))
    ]
    assert not differ, f"{len(differ)} differ\n" + "\n".join(differ)


def test_a_listener_is_added_used_and_removed_alike(both: tuple[Running, Running]) -> None:
    seen = [life_of_a_listener(running) for running in both]
    assert seen[0] == seen[1]


def life_of_a_listener(running: Running) -> list[object]:
    """The answers to a client about a listener that comes and goes."""
    port = free_port()
    found: list[object] = [running.describe()]
    found.append(running.alter({LISTENERS: f"{ALL},SPARE://127.0.0.1:{port}"}, is_check=False)[0])
    client = connected(port)
    metadata = client.call(MetadataRequest(topics=None), 8)
    found += [metadata.brokers, metadata.topics]
    # Its settings are compared with those of the start; without a change of listeners anything is taken.
    found.append(running.alter({"listener.name.spare.socket.send.buffer.bytes": "1000"}))
    changed: dict[str, str | None] = {
        "listener.name.spare.socket.send.buffer.bytes": "1000",
        MAP: f"{PROTOCOLS},NEW:SSL",
    }
    found.append(running.alter(changed))
    found.append(running.alter({MAP: PROTOCOLS.replace("SPARE:PLAINTEXT", "SPARE:SSL")}))
    code, text = running.alter({MAP: PROTOCOLS.replace(",SPARE:PLAINTEXT", "")})
    found += [code, text and text.replace(str(port), "SPARE")]
    found.append(running.alter({LISTENERS: None}, is_check=False))
    found += [is_closed(client), running.describe()]
    assert ErrorCode.INVALID_REQUEST in found
    return found


def connected(port: int) -> WireClient:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return WireClient(("127.0.0.1", port))
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def is_closed(client: WireClient) -> bool:
    """True once the broker has closed the connection."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            client.call(MetadataRequest(topics=[]), 8)
        except (EOFError, OSError):
            client.close()
            return True
        time.sleep(0.05)
    return False
