"""Makes broker properties from the options of `pykbroker start`, a file and the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pykbroker.cli.errors import EXIT_USAGE, CliError
from pykbroker.cli.start.options import StartOptions
from pykbroker.config.environment import properties_from_environment, variable_of_key
from pykbroker.config.properties_file import PropertiesError, parse_properties

DEFAULT_LISTENERS = "PLAINTEXT://localhost:9092"
"""Kafka's default is every address of the machine. Here other machines reach a broker only if it is configured so, as
it has no authentication by default."""

DEFAULT_DATA_DIR = "pykbroker-data"

DEVELOPMENT_DEFAULTS = {
    # Kafka's 3000 waits for more members before a new group gets its first assignment: the first poll of every test
    # with a group takes 3 s. Kafka's own config/broker.properties sets 0 for development and tests, with that reason.
    "group.initial.rebalance.delay.ms": "0",
    # Kafka's 500 writes to the disk of an idle machine twice a second.
    "metadata.max.idle.interval.ms": "0",
}
"""Settings of a broker that was started without a `--config` file. A file is read as Kafka reads it: settings that it
does not have get Kafka's defaults. DescribeConfigs shows these as static settings, as if a file had them."""


def broker_properties(options: StartOptions, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the broker's properties: file < environment < --override < --data-dir, --host and --port.

    Without a file DEVELOPMENT_DEFAULTS take its place.

    Raises:
        CliError: the file, one of a config provider or a JAAS file cannot be read, `--host`/`--port` do not fit the
            listeners that are configured, or the certificates of `--tls` cannot be made.
    """
    properties = dict(DEVELOPMENT_DEFAULTS)
    if options.config_file is not None:
        properties = read_properties_file(options.config_file)
    properties |= properties_from_environment(environment)
    properties = _with_variables(properties | options.overrides)
    if options.data_dir is not None:
        properties.pop("log.dir", None)
        properties["log.dirs"] = options.data_dir
    elif not properties.get("log.dirs") and not properties.get("log.dir"):
        properties["log.dirs"] = DEFAULT_DATA_DIR
    if options.tls:
        from pykbroker.cli.start import tls
        from pykbroker.security.tls.development import LISTENERS

        tls.check_settings(properties)
        properties["listeners"] = LISTENERS
    properties.setdefault("listeners", DEFAULT_LISTENERS)
    if "java.security.auth.login.config" in environment.get("KAFKA_OPTS", ""):
        properties |= _logins_of_file(properties, environment)
    if options.host is not None or options.port is not None:
        controller_names = properties.get("controller.listener.names", "CONTROLLER")
        properties["listeners"] = with_address(properties["listeners"], options.host, options.port, controller_names)
    _check_metadata_directory(properties)
    for key in ("log.dirs", "log.dir", "metadata.log.dir", "cordoned.log.dirs"):
        if properties.get(key) and properties[key] != "*":
            # An absolute path in the log or on the screen is clear without the working directory.
            properties[key] = ",".join(_absolute_paths(key, properties[key]))
    if options.tls:
        properties |= tls.tls_properties(properties)
        if options.nodes is None:
            properties |= tls.ONE_NODE_PROPERTIES
    return properties


def _logins_of_file(properties: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Settings of the login modules of the JAAS file in `KAFKA_OPTS`; as Kafka, reads it only if one is missing."""
    from pykbroker.config.jaas import JaasError, login_entries
    from pykbroker.config.jaas_file import jaas_file_path, login_settings, logins_without_module

    path, logins = jaas_file_path(environment), logins_without_module(properties)
    if path is None or not logins:
        return {}
    source = f"KAFKA_OPTS: java.security.auth.login.config={path}"
    try:
        with open(path, encoding="utf-8") as file:
            return login_settings(logins, login_entries(file.read()))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise CliError(f"{source}: {reason}") from None
    except JaasError as error:
        raise CliError(f"{source}: {error}") from None


def _check_metadata_directory(properties: Mapping[str, str]) -> None:
    """Raises CliError if `metadata.log.dir` is another spelling of a log directory: Kafka takes it for one more."""
    metadata = properties.get("metadata.log.dir", "").strip()
    texts = [path.strip() for path in (properties.get("log.dirs") or properties.get("log.dir") or "").split(",")]
    if not metadata or metadata in texts:
        return
    other = next((text for text in texts if text and os.path.abspath(text) == os.path.abspath(metadata)), None)
    if other is not None:
        raise CliError(f"metadata.log.dir={metadata}: {other} and {metadata} are the same directory", EXIT_USAGE)


def _absolute_paths(key: str, paths: str) -> list[str]:
    """The directories of a list. As in Kafka the same text may come twice, and counts once.

    Raises:
        CliError: two texts are the same directory, which Kafka finds out when it opens them.
    """
    texts: dict[str, str] = {}
    for text in dict.fromkeys(path.strip() for path in paths.split(",")):
        # An empty one is left as it is, and refused with the other settings.
        other = texts.setdefault(text and os.path.abspath(text), text)
        if other != text:
            raise CliError(f"{key}={paths}: {other} and {text} are the same directory", EXIT_USAGE)
    return list(texts)


def _with_variables(properties: dict[str, str]) -> dict[str, str]:
    """The properties with ``${provider:path:key}`` replaced, if `config.providers` names providers."""
    if not properties.get("config.providers"):
        return properties
    from pykbroker.config.config_providers import replace_variables
    from pykbroker.config.definitions import ProviderError

    try:
        return replace_variables(properties, os.environ)
    except ProviderError as error:
        raise CliError(str(error)) from None


def read_properties_file(path: str) -> dict[str, str]:
    """Reads a server.properties file.

    Raises:
        CliError: it is not there, not readable or malformed.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return parse_properties(file.read())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise CliError(f"--config {path}: {reason}") from None
    except PropertiesError as error:
        raise CliError(f"--config {path}: {error}") from None


def described_setting(
    key: str, value: object, properties: Mapping[str, str], options: StartOptions, environment: Mapping[str, str]
) -> str:
    """Returns a refused setting with its source, for the message to the user.

    A value that follows from other settings (log.retention.ms from log.retention.hours) has no source of its own.
    """
    from pykbroker.config.broker_config import default_text, shown_value

    text = f"{key}={shown_value(key, value)}"
    if key not in properties:
        if str(value) in ("", default_text(key)):
            return f"{key} is not set" + (f", and its default is {value}" if str(value) else "")
        return text
    if key in options.overrides:
        return f"{text} (from --override)"
    variable = variable_of_key(key)
    if variable in environment:
        return f"{text} (from the environment, {variable})"
    if options.config_file is not None and key in read_properties_file(options.config_file):
        return f"{text} (from {options.config_file})"
    return text


def with_address(listeners: str, host: str | None, port: int | None, controller_names: str) -> str:
    """Returns the `listeners` text with another host or port in its first listener for clients.

    Raises:
        CliError: there is no listener for clients, or its text has no port to replace.
    """
    controllers = {name.strip().upper() for name in controller_names.split(",")}
    parts = [part.strip() for part in listeners.split(",")]
    for index, part in enumerate(parts):
        name, separator, address = part.partition("://")
        old_host, colon, old_port = address.rpartition(":")
        if name.upper() in controllers:
            continue
        if not separator or not colon:
            raise CliError(
                f"listeners={listeners}: expected NAME://host:port, for example {DEFAULT_LISTENERS}", EXIT_USAGE
            )
        new_host = old_host if host is None else host
        if ":" in new_host and not new_host.startswith("["):
            new_host = f"[{new_host}]"
        parts[index] = f"{name}://{new_host}:{old_port if port is None else port}"
        return ",".join(parts)
    raise CliError(f"listeners={listeners} has no listener for clients whose host or port could be set", EXIT_USAGE)
