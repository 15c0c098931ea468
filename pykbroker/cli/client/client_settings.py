"""Client settings of the command line, from a file in the format of the --command-config option of Kafka's tools.

The option is not a parameter of the commands: its settings are for every connection that a command makes, and are
taken from `client_settings`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pykbroker.config.properties_file import PropertiesError, parse_properties

if TYPE_CHECKING:
    import ssl

_META_KEY = "pykbroker.client_settings"
_PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
_LIBRDKAFKA = {
    "ssl.ca.location": "truststore",
    "ssl.ca.pem": "truststore",
    "ssl.certificate.location": "keystore",
    "ssl.certificate.pem": "keystore",
    "ssl.key.pem": "keystore",
}
"""Keys of librdkafka, whose files are PEM, and the stores of Kafka's settings that they stand for."""


def command_config_option(command: Any) -> Any:
    """Adds `--command-config` to a command."""
    return click.option(
        "--command-config",
        type=click.Path(exists=True, dir_okay=False),
        envvar="PYKBROKER_COMMAND_CONFIG",
        show_envvar=True,
        metavar="FILE",
        expose_value=False,
        is_eager=True,
        callback=_read,
        help="Client settings as Kafka's tools take them: security.protocol, sasl..., ssl... (PEM, PKCS12, JKS).",
    )(command)


def client_settings() -> dict[str, Any]:
    """Returns the client library's settings for the running command, without addresses and timeouts."""
    context = click.get_current_context(silent=True)
    return dict(context.meta.get(_META_KEY, {})) if context else {}


def connection_settings(bootstrap_servers: str, timeout_s: float) -> dict[str, Any]:
    """Returns the settings of a client of kafka-python that the running command opens."""
    return {
        "bootstrap_servers": bootstrap_servers.split(","),
        "client_id": "pykbroker-cli",
        "bootstrap_timeout_ms": timeout_ms(timeout_s),
        **client_settings(),
    }


def timeout_ms(timeout_s: float) -> int:
    """Returns a timeout in ms, at least 1."""
    return max(1, round(timeout_s * 1000))


def _read(ctx: click.Context, param: click.Parameter, path: str | None) -> None:
    if path is None:
        return
    try:
        with open(path, encoding="utf-8") as file:
            properties = {key: value.strip() for key, value in parse_properties(file.read()).items()}
        ctx.meta[_META_KEY] = translate(properties)
    except (OSError, UnicodeDecodeError, PropertiesError, ValueError) as error:
        raise click.BadParameter(f"{path}: {error}") from None


def translate(properties: dict[str, str]) -> dict[str, Any]:
    """Turns Kafka's security settings into the client library's; all other settings are left out.

    Raises:
        ValueError: a setting has an unsupported value; the text has the setting and the expected values.
    """
    found: dict[str, Any] = {}
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ValueError(f"security.protocol={protocol}: expected one of {', '.join(_PROTOCOLS)}")
    found["security_protocol"] = protocol
    if protocol.startswith("SASL_"):
        from pykbroker.cli.client.login import login_settings

        found |= login_settings(properties)
    if protocol.endswith("SSL"):
        found["ssl_context"] = _ssl_context(properties)
    return found


def _ssl_context(properties: dict[str, str]) -> ssl.SSLContext:
    """Context of a client from Kafka's settings, or from librdkafka's.

    Raises:
        ValueError: a store cannot be read, or a combination of settings is refused.
    """
    from pykbroker.security.tls.contexts import Stores, client_context
    from pykbroker.security.tls.settings import TlsSettings

    texts = {"ssl.endpoint.identification.algorithm": "https", **_from_librdkafka(properties), **properties}
    settings = TlsSettings.read(texts.get)
    return client_context(settings, Stores(settings))


def _from_librdkafka(properties: dict[str, str]) -> dict[str, str]:
    """librdkafka's settings of certificates under Kafka's names. Key and certificate may be in two files."""
    texts = {f"ssl.{_LIBRDKAFKA[key]}.type": "PEM" for key in properties if key in _LIBRDKAFKA}
    if properties.get("enable.ssl.certificate.verification", "true").lower() == "false":
        raise ValueError("enable.ssl.certificate.verification=false: connections without verification are not made")
    if properties.get("ssl.endpoint.identification.algorithm", "").lower() == "none":
        raise ValueError("ssl.endpoint.identification.algorithm=none: leave the value empty, as Kafka has it")
    for name, key in (("ssl.truststore.certificates", "ssl.ca"), ("ssl.keystore.certificate.chain", "ssl.certificate")):
        text = _pem_text(properties, key)
        if text is not None:
            texts[name] = text
    key_text = _pem_text(properties, "ssl.key")
    if key_text is not None:
        texts["ssl.keystore.key"] = key_text
    return texts


def _pem_text(properties: dict[str, str], key: str) -> str | None:
    """PEM text of `<key>.pem`, or that of the file `<key>.location`."""
    if f"{key}.location" not in properties:
        return properties.get(f"{key}.pem")
    path = properties[f"{key}.location"]
    try:
        with open(path, encoding="latin-1") as file:
            return file.read()
    except OSError as error:
        raise ValueError(f"{key}.location={path}: {error.strerror}") from None
