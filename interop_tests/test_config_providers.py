"""Variables of config providers in settings that are changed while the broker runs (P-324)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from interop_tests.brokers import BrokerProcess
from interop_tests.certificates import Authority
from interop_tests.clients import wait_until
from interop_tests.conftest import StartBroker
from interop_tests.java_tools import CONFIGS, JavaTools
from interop_tests.test_broker_settings import DELETE, INVALID_REQUEST, TAKEN, alter

pytestmark = [pytest.mark.own_broker, pytest.mark.area("settings"), pytest.mark.client("raw frames")]

FILES = "org.apache.kafka.common.config.provider.FileConfigProvider"
ENVIRONMENT = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
OWN = f"config.providers=g | config.providers.g.class={FILES}"
NOT_A_NUMBER = "for configuration num.io.threads: Not a number of type INT"
TIMEOUT_S = 20.0


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("providers") / "secrets.properties"
    path.write_text("threads=6\nms=7200000\nword=nonsense\nold=old-secret\nnew=new-secret\n")
    return path


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker("providers", {"config.providers": "f", "config.providers.f.class": FILES})


@pytest.fixture
def clean(broker: BrokerProcess) -> Iterator[None]:
    yield
    keys = "num.io.threads | log.retention.ms | config.providers | config.providers.g.class"
    for resource in ("1", ""):
        assert alter(broker, keys, resource=resource, operation=DELETE, validate_only=False)[0] == TAKEN


def described(broker: BrokerProcess, key: str) -> str | None:
    """Value of a broker's key in DescribeConfigs."""
    resource = ConfigResource(ResourceType.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    value: str | None = admin.describe_configs([resource])[resource].result(TIMEOUT_S)[key].value
    return value


REFUSED = [
    ("num.io.threads=${f:FILE:threads}", NOT_A_NUMBER),
    (f"{OWN} | num.io.threads=${{f:FILE:threads}}", NOT_A_NUMBER),
    ("config.providers=g | num.io.threads=${g:FILE:threads}", NOT_A_NUMBER),
    (f"{OWN} | num.io.threads=${{g:FILE:word}}", NOT_A_NUMBER),
    (f"{OWN} | num.io.threads=${{g:FILE:nothing}}", NOT_A_NUMBER),
    (f"{OWN} | num.io.threads=${{g:FILE:ms}}", "value should not be greater than double the current value 8"),
    (f"{OWN} | num.io.threads=${{g:/nowhere:x}}", "Could not read properties from file /nowhere"),
    ("ssl.key.password=${f:/nowhere:x}", "only per-listener using the listener prefix"),
    ("listener.name.x.ssl.key.password=${f:/nowhere:x}", "Could not read properties from file /nowhere"),
    (
        "config.providers=g | config.providers.g.class=com.example.No",
        "Invalid value com.example.No for configuration config.providers.g.class: Could not load config provider class",
    ),
    ("log.cleanup.policy=${f:FILE:word}", "String must be one of: compact, delete"),
]


@pytest.mark.parametrize(("changes", "reason"), REFUSED)
def test_changes_that_are_refused(broker: BrokerProcess, secrets: Path, changes: str, reason: str) -> None:
    """P-324: numbers need a provider of the same resource; whatever a provider gives is checked."""
    error, message = alter(broker, changes.replace("FILE", str(secrets)))
    assert (error, reason in message) == (INVALID_REQUEST, True), message


@pytest.mark.parametrize(
    "changes",
    [
        f"{OWN} | num.io.threads=${{g:FILE:threads}}",
        f"{OWN} | num.io.threads=6 | listener.name.x.ssl.key.password=${{g:FILE:word}}",
        f"config.providers=e | config.providers.e.class={ENVIRONMENT} | unknown.key=${{e:HOME}}",
        "listener.name.x.ssl.key.password=${f:FILE:word}",
        "listener.name.x.ssl.key.password=${f:FILE:nothing}",
        "unknown.key=${f:FILE:word}",
        "config.providers=g | num.io.threads=6",
    ],
)
def test_changes_that_are_taken(broker: BrokerProcess, secrets: Path, changes: str) -> None:
    """P-324."""
    assert alter(broker, changes.replace("FILE", str(secrets))) == (TAKEN, "")


@pytest.mark.usefixtures("clean")
def test_values_and_their_descriptions(broker: BrokerProcess, secrets: Path, java_libs: Path) -> None:
    """P-324: the value is what the provider gives, and the synonym is the text as it was set."""
    variables = {
        key: f"${{g:{secrets}:{name}}}" for key, name in (("num.io.threads", "threads"), ("log.retention.ms", "ms"))
    }
    changes = " | ".join([OWN, *(f"{key}={text}" for key, text in variables.items())])
    assert alter(broker, changes, validate_only=False) == (TAKEN, "")
    wait_until(lambda: described(broker, "num.io.threads") == "6", "the new number of threads")
    assert described(broker, "log.retention.ms") == "7200000"
    where = ("--describe", "--all", "--entity-type", "brokers", "--entity-name", "1")
    lines = JavaTools(java_libs, broker.bootstrap).check(CONFIGS, *where).lines
    text = f"{variables['num.io.threads']}, DEFAULT_CONFIG:num.io.threads=8}}"
    (line,) = (line.strip() for line in lines if line.strip().startswith("num.io.threads="))
    assert line == f"num.io.threads=6 sensitive=false synonyms={{DYNAMIC_BROKER_CONFIG:num.io.threads={text}"
    # Without its provider the variable that is set would have no value.
    error, message = alter(broker, "config.providers | config.providers.g.class", operation=DELETE)
    assert (error, NOT_A_NUMBER in message) == (INVALID_REQUEST, True)
    # The provider is one of this broker's settings, and none of those of all brokers.
    error, _ = alter(broker, f"log.retention.ms={variables['log.retention.ms']}", resource="")
    assert error == INVALID_REQUEST


def certificate(broker: BrokerProcess) -> str:
    """The certificate of a broker with TLS; "" if it answers none."""
    host, port = broker.address
    command = ["openssl", "s_client", "-connect", f"{host}:{port}"]
    shown = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout
    return shown.partition("-----BEGIN CERTIFICATE-----")[2].partition("-----END")[0]


@pytest.mark.client("confluent-kafka")
def test_the_password_of_a_key_store(start_broker: StartBroker, secrets: Path, tmp_path: Path) -> None:
    """P-324: the variable of a provider in server.properties is the password of a new key store."""
    authority = Authority(tmp_path)

    def store(name: str, password: str) -> Path:
        pem = authority.issue("broker", hosts="DNS:localhost,IP:127.0.0.1")
        path = tmp_path / f"{name}.p12"
        files = ["-in", str(pem), "-out", str(path)]
        subprocess.run(["openssl", "pkcs12", "-export", *files, "-passout", f"pass:{password}"], check=True)
        return path

    prefix = "listener.name.ssl.ssl.keystore"
    broker = start_broker(
        "providers-tls",
        {
            "config.providers": "f",
            "config.providers.f.class": FILES,
            f"{prefix}.type": "PKCS12",
            f"{prefix}.location": str(store("old", "old-secret")),
            f"{prefix}.password": f"${{f:{secrets}:old}}",
        },
        protocol="SSL",
    )
    client = {"bootstrap.servers": broker.bootstrap, "security.protocol": "ssl"}
    admin = AdminClient({**client, "ssl.ca.location": str(authority.certificate)})
    location = store("new", "new-secret")

    def change(key: str) -> None:
        entries = [
            ConfigEntry(
                f"{prefix}.{name}",
                value,
                ConfigSource.DYNAMIC_BROKER_CONFIG,
                incremental_operation=AlterConfigOpType.SET,
            )
            for name, value in (("location", str(location)), ("password", f"${{f:{secrets}:{key}}}"))
        ]
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    for wrong in ("word", "nothing"):
        with pytest.raises(KafkaException, match="Validation of dynamic config update of SSLFactory failed"):
            change(wrong)
    old = certificate(broker)
    assert old
    change("new")
    wait_until(lambda: certificate(broker) not in ("", old), "the new certificate")
    assert "new-secret" not in broker.log_text()
