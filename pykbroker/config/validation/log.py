"""Checks of logs: directories, retention, the cleaner, replicas."""

from __future__ import annotations

import os

from pykbroker.config.definitions import ConfigError
from pykbroker.config.values import ConfigValues

AVAILABLE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The only `replica.selector.class` besides none."""

_MIB = 1 << 20


def check_replica_selector(config: ConfigValues) -> None:
    name = config.replication.selector_class
    if name and name != AVAILABLE_SELECTOR:
        raise ConfigError("replica.selector.class", name, f"only {AVAILABLE_SELECTOR} is available")


def check_topic_times(config: ConfigValues) -> None:
    """Bounds of times that several broker keys set; none of these keys has the bounds by itself."""
    defaults = config.topics.defaults
    if int(defaults["retention.ms"]) == 0:
        text = "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
        raise ConfigError("log.retention.ms", defaults["retention.ms"], "must be -1 (unlimited) or at least 1", text)
    if int(defaults["segment.ms"]) < 1:
        text = "requirement failed: log.roll.ms must be greater than or equal to 1"
        raise ConfigError("log.roll.ms", defaults["segment.ms"], "must be at least 1", text)
    if int(defaults["segment.jitter.ms"]) < 0:
        text = "requirement failed: log.roll.jitter.ms must be greater than or equal to 0"
        raise ConfigError("log.roll.jitter.ms", defaults["segment.jitter.ms"], "must be at least 0", text)


def check_compaction_lags(config: ConfigValues) -> None:
    least, most = (config.topics.defaults[name] for name in ("min.compaction.lag.ms", "max.compaction.lag.ms"))
    if int(least) > int(most):
        raise ConfigError(
            "log.cleaner.min.compaction.lag.ms",
            least,
            f"must not exceed log.cleaner.max.compaction.lag.ms, which is {most}",
        )


def check_directories(config: ConfigValues) -> None:
    """Refuses a directory that is listed twice, also by another path (P-442)."""
    real_paths = [os.path.realpath(path) for path in config.log.dirs]
    if len(set(real_paths)) < len(real_paths):
        raise ConfigError("log.dirs", ",".join(config.log.dirs), "has a directory twice")
    metadata = config.log.metadata_dir
    if metadata is not None and metadata not in config.log.dirs and os.path.realpath(metadata) in real_paths:
        raise ConfigError(
            "metadata.log.dir", metadata, "is one of log.dirs by another path: write it as it is in log.dirs"
        )


def check_cleaner(config: ConfigValues) -> None:
    """Kafka's cleaner needs more than 1 MiB of buffer for each thread; checked also if it is turned off."""
    size_key, threads_key = "log.cleaner.dedupe.buffer.size", "log.cleaner.threads"
    size, threads = config.value(size_key), config.value(threads_key)
    if threads < 1:
        raise ConfigError(threads_key, threads, "must be at least 1", "/ by zero")
    if size // threads <= _MIB:
        reason = f"must be more than 1 MiB ({_MIB}) for each of the {threads} threads of {threads_key}"
        text = f"requirement failed: {size_key} must be at least 1MB per cleaner thread."
        if size_key in config.static_properties:
            raise ConfigError(size_key, size, reason, text)
        raise ConfigError(threads_key, threads, f"{size_key}, which is {size}, {reason}", text)


def check_cordoned(config: ConfigValues) -> None:
    key = "cordoned.log.dirs"
    cordoned = config.value(key)
    if cordoned == ["*"] or not config.is_broker:
        return
    if "*" in cordoned:
        reason = "* stands for all directories and must be alone"
        text = f"requirement failed: When {key} is set to *, it must not contain other values"
        raise ConfigError(key, config.static_properties[key], reason, text)
    missing = [directory for directory in cordoned if directory not in config.log.dirs]
    if missing:
        text = f"requirement failed: All entries in {key} must be present in log.dirs or log.dir. Missing entries : "
        raise ConfigError(key, missing[0], "must be one of log.dirs", text + ", ".join(missing))


def check_local_retention_of_tiers(config: ConfigValues) -> None:
    if config.value("remote.log.storage.system.enable"):
        check_local_retention(config)


def check_local_retention(config: ConfigValues) -> None:
    """Local retention must be within the retention of the whole log.

    Kafka checks it at the start if remote storage is enabled, and at each dynamic change of a setting of logs.

    Raises:
        ConfigError: local retention is -1 (all), or more than that of the whole log.
    """
    hours, minutes = config.value("log.retention.hours"), config.value("log.retention.minutes")
    whole_ms = config.value("log.retention.ms")
    if whole_ms is None:
        whole_ms = hours * 3_600_000 if minutes is None else minutes * 60_000
    for key, whole, name in (
        ("log.local.retention.ms", whole_ms, "log.retention.ms"),
        ("log.local.retention.bytes", config.value("log.retention.bytes"), "log.retention.bytes"),
    ):
        local = config.value(key)
        if whole < 0 or local == -2:
            continue
        if local == -1:
            raise ConfigError(key, local, f"Value must not be -1 as {name} value is set as {whole}.")
        if local > whole:
            raise ConfigError(key, local, f"Value must not be more than {name} property value: {whole}")


CHECKS = (check_replica_selector, check_topic_times, check_directories, check_cleaner, check_cordoned)
START_CHECKS = (check_compaction_lags, check_local_retention_of_tiers)
"""Checks that Kafka does not make at a dynamic change."""
