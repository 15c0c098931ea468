"""Settings from `KAFKA_*` environment variables, by the convention of Apache Kafka's container image."""

from __future__ import annotations

import re
from collections.abc import Mapping

PREFIX = "KAFKA_"

# Variables with the prefix that are not for the broker. All other variables count as settings, also if Kafka has no
# such key: so a typing error is reported, and a plugin gets its own settings (KAFKA_SUPER_USERS).
_NOT_SETTINGS = frozenset(
    {
        # Left out by Apache Kafka's image (KafkaDockerWrapper), or read by its scripts and those of bin/.
        "KAFKA_DEBUG",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_PORT",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_SSL_KEYSTORE_CREDENTIALS",
        "KAFKA_SSL_KEYSTORE_FILENAME",
        "KAFKA_SSL_KEY_CREDENTIALS",
        "KAFKA_SSL_TRUSTSTORE_CREDENTIALS",
        "KAFKA_SSL_TRUSTSTORE_FILENAME",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        # Paths of a distribution, in other images and on build machines.
        "KAFKA_BASE_DIR",
        "KAFKA_BIN_PATH",
        "KAFKA_CONF_DIR",
        "KAFKA_CONFIG_DIR",
        "KAFKA_CONFIG_PATH",
        "KAFKA_INSTALL_DIR",
        "KAFKA_INSTALL_ROOT",
        "KAFKA_LIBS_DIR",
        "KAFKA_PID_DIR",
        # Settings of clients; one file of variables is often used for clients and the broker.
        "KAFKA_BOOTSTRAP_SERVER",
        "KAFKA_BOOTSTRAP_SERVERS",
        "KAFKA_BROKER_LIST",
        "KAFKA_BROKER_URL",
        "KAFKA_CLIENT_CERT",
        "KAFKA_CLIENT_CERT_KEY",
        "KAFKA_CLIENT_ID",
        "KAFKA_CLUSTER_ID",
        "KAFKA_CONSUMER_GROUP",
        "KAFKA_GROUP_ID",
        "KAFKA_SASL_MECHANISM",
        "KAFKA_SASL_PASSWORD",
        "KAFKA_SASL_USERNAME",
        "KAFKA_SECURITY_PROTOCOL",
        "KAFKA_TOPIC_NAME",
        "KAFKA_TRUSTED_CERT",
    }
)

# Endings that no key of Kafka has: KAFKA_HEAP_OPTS, KAFKA_SCALA_VERSION.
_NOT_SETTINGS_ENDINGS = ("_HOME", "_OPTS", "_VERSION")

# Variables that Kubernetes sets in every container for a service named kafka or kafka-something, and those that Docker
# sets in a container linked to one of that name.
_SERVICE_LINK = re.compile(
    r"""KAFKA (_\w+)? _
        ( SERVICE_HOST | SERVICE_PORT (_\w+)? | PORT_[0-9]+_(TCP|UDP|SCTP) (_ADDR|_PORT|_PROTO)? )
      | KAFKA_\w+_PORT | KAFKA_ENV_\w+""",
    re.VERBOSE,
)


def _is_setting(variable: str) -> bool:
    if variable in _NOT_SETTINGS or variable.endswith(_NOT_SETTINGS_ENDINGS) or _SERVICE_LINK.fullmatch(variable):
        return False
    # Each key of Kafka but `listeners` has a dot. Not settings: KAFKA_PORT, KAFKA_MODE, KAFKA_URL, KAFKA_BROKERS.
    word = variable.removeprefix(PREFIX)
    return "_" in word or word.startswith("LISTEN")


def properties_from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Configuration keys and values: `KAFKA_ADVERTISED_LISTENERS` becomes `advertised.listeners`.

    As in the image, advertised listeners without listeners make the broker listen on all addresses at the same ports.
    In a name "___" means "-", "__" means "_" and "_" means "."; letters become lower case.
    """
    properties: dict[str, str] = {}
    for variable in sorted(environment):
        if variable.startswith(PREFIX) and _is_setting(variable):
            properties[key_of_variable(variable)] = environment[variable]
    advertised = properties.get("advertised.listeners")
    if advertised and "listeners" not in properties:
        # The image listens on every address at the ports that are advertised.
        properties["listeners"] = ",".join(
            f"{name}://0.0.0.0:{address.rpartition(':')[2]}"
            for name, _, address in (text.strip().partition("://") for text in advertised.split(","))
        )
    return properties


def key_of_variable(variable: str) -> str:
    """The configuration key of a `KAFKA_*` variable's name."""
    name = variable.removeprefix(PREFIX).lower()
    return name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def variable_of_key(key: str) -> str:
    """Name of the `KAFKA_*` variable that sets a configuration key."""
    return PREFIX + key.upper().replace("_", "__").replace("-", "___").replace(".", "_")


def cluster_id_from_environment(environment: Mapping[str, str]) -> str | None:
    """Cluster id for a new data directory, from `CLUSTER_ID`; None if it is not set."""
    return environment.get("CLUSTER_ID", "").strip() or None
