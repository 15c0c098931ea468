"""Client settings of the command line, from a file in the format of the --command-config option of Kafka's tools.

The option is not a parameter of the commands: its settings are for every connection that a command makes, and are
taken from `client_settings`.
"""

from __future__ import annotations

import re
from typing import Any

import click

from pykbroker.config.properties_file import PropertiesError, parse_properties

_META_KEY = "pykbroker.client_settings"
_JAAS_OPTION = re.compile(r'\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;]+))')
_PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_SIMPLE = {
    "ssl.truststore.location": "ssl_cafile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.key.password": "ssl_password",
}


def command_config_option(command: Any) -> Any:
    """Add `--command-config` to a command."""
    return click.option(
        "--command-config",
        type=click.Path(exists=True, dir_okay=False),
        envvar="PYKBROKER_COMMAND_CONFIG",
        show_envvar=True,
        metavar="FILE",
        expose_value=False,
        is_eager=True,
        callback=_read,
        help="Client settings as Kafka's tools take them: security.protocol, sasl..., ssl... (PEM files).",
    )(command)


def client_settings() -> dict[str, Any]:
    """Return the client library's settings for the running command, without addresses and timeouts."""
    context = click.get_current_context(silent=True)
    return dict(context.meta.get(_META_KEY, {})) if context else {}


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
    """Turn Kafka's security settings into the client library's; all other settings are left out.

    Raises:
        ValueError: a setting has an unsupported value; the text has the setting and the expected values.
    """
    found: dict[str, Any] = {}
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ValueError(f"security.protocol={protocol}: expected one of {', '.join(_PROTOCOLS)}")
    found["security_protocol"] = protocol
    if protocol.startswith("SASL_"):
        mechanism = properties.get("sasl.mechanism", "GSSAPI")
        if mechanism not in _MECHANISMS:
            raise ValueError(f"sasl.mechanism={mechanism}: expected one of {', '.join(_MECHANISMS)}")
        options = {
            name: re.sub(r"\\(.)", r"\1", quoted) if quoted else bare
            for name, quoted, bare in _JAAS_OPTION.findall(properties.get("sasl.jaas.config", ""))
        }
        missing = [name for name in ("username", "password") if name not in options]
        if missing:
            raise ValueError(f"sasl.jaas.config has no {missing[0]}")
        found |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": options["username"],
            "sasl_plain_password": options["password"],
        }
    for store in ("truststore", "keystore"):
        kind = properties.get(f"ssl.{store}.type", "JKS")
        if f"ssl.{store}.location" in properties and kind != "PEM":
            raise ValueError(f"ssl.{store}.type={kind}: expected PEM")
    found |= {ours: properties[key] for key, ours in _SIMPLE.items() if key in properties}
    if properties.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl_check_hostname"] = False
    return found
