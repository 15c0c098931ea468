"""Settings from `KAFKA_*` environment variables, by the convention of Apache Kafka's container image."""

from __future__ import annotations

from collections.abc import Mapping

PREFIX = "KAFKA_"

# Variables with the prefix that speak to Kafka's scripts and its Java machine, not to the broker.
_NOT_SETTINGS = frozenset(
    {
        "KAFKA_VERSION",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_PORT",
        "KAFKA_DEBUG",
        "KAFKA_HOME",
        "KAFKA_MODE",
    }
)


def properties_from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Configuration keys and values: `KAFKA_ADVERTISED_LISTENERS` becomes `advertised.listeners`.

    As in the image, advertised listeners without listeners make the broker listen on all addresses at the same ports.
    In a name, "___" stands for "-", "__" for "_", "_" for "."; letters become lower case.
    """
    properties: dict[str, str] = {}
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or variable == PREFIX:
            continue
        if variable not in _NOT_SETTINGS:
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


def cluster_id_from_environment(environment: Mapping[str, str]) -> str | None:
    """The cluster id that a new data directory gets, from `CLUSTER_ID`; None when it is not given."""
    return environment.get("CLUSTER_ID", "").strip() or None
