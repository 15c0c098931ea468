"""Config providers (KIP-297, KIP-421): values of settings from files and the environment.

A value may contain ``${name:path:key}`` or ``${name:key}``, where `config.providers` has the name and
`config.providers.<name>.class` Kafka's class, FileConfigProvider, DirectoryConfigProvider or EnvVarConfigProvider. The
names file, dir and env stand for these without a class; another name without one has no effect. A variable without a
value stays as it is, as in Kafka.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping

from pykbroker.config.definitions import PROVIDERS_KEY, ProviderError
from pykbroker.config.properties_file import PropertiesError, parse_properties

log = logging.getLogger(__name__)

_VARIABLE = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")
_PACKAGE = "org.apache.kafka.common.config.provider."

Provider = Callable[[str, str], "str | None"]
"""Function from path and key to a value; None if there is none."""


def replace_variables(properties: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The properties with the values of variables; those of `config.providers` themselves are kept.

    Raises:
        ProviderError: an unknown class of a provider, or a file that cannot be read.
    """
    providers = _providers(properties, environment)

    def value_of(found: re.Match[str]) -> str:
        provider = providers.get(found[1])
        value = provider(found[3] or "", found[4]) if provider is not None else None
        return found[0] if value is None else value

    return {
        key: text if key.startswith(PROVIDERS_KEY) else _VARIABLE.sub(value_of, text)
        for key, text in properties.items()
    }


def replace_own_variables(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Dynamic settings of one resource as a broker checks them (P-324).

    Variables of providers that are among the settings are replaced; the settings of providers are left out.

    Raises:
        ProviderError: as `replace_variables`.
    """
    replaced = replace_variables(settings, environment) if settings.get(PROVIDERS_KEY) else settings
    return {key: text for key, text in replaced.items() if not key.startswith(PROVIDERS_KEY)}


def _providers(properties: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, Provider]:
    found: dict[str, Provider] = {}
    for name in filter(None, (part.strip() for part in properties[PROVIDERS_KEY].split(","))):
        prefix = f"{PROVIDERS_KEY}.{name}."
        settings = {
            key.removeprefix(prefix + "param."): text for key, text in properties.items() if key.startswith(prefix)
        }
        kind = properties.get(prefix + "class", name).strip().removeprefix(_PACKAGE)
        if kind in ("FileConfigProvider", "file"):
            found[name] = _file_provider(settings.get("allowed.paths"))
        elif kind in ("DirectoryConfigProvider", "dir"):
            found[name] = _directory_provider(settings.get("allowed.paths"))
        elif kind in ("EnvVarConfigProvider", "env"):
            found[name] = _environment_provider(environment, settings.get("allowlist.pattern"))
        elif f"{prefix}class" in properties:
            given = f"Invalid value {properties[f'{prefix}class']} for configuration {prefix}class"
            reason = "there is no such config provider"
            raise ProviderError(f"{given}: Could not load config provider class or one of its dependencies", reason)
    return found


def _file_provider(allowed: str | None) -> Provider:
    files: dict[str, dict[str, str]] = {}

    def value(path: str, key: str) -> str | None:
        if not path or not _is_allowed(path, allowed):
            return None
        if path not in files:
            try:
                with open(path, encoding="utf-8") as file:
                    files[path] = parse_properties(file.read())
            except (OSError, UnicodeDecodeError, PropertiesError) as error:
                # The texts of the last two kinds have parts of the file.
                reason = str(error.strerror) if isinstance(error, OSError) else "it is not a properties file"
                raise ProviderError(f"Could not read properties from file {path}", reason) from None
        return files[path].get(key)

    return value


def _directory_provider(allowed: str | None) -> Provider:
    def value(path: str, key: str) -> str | None:
        full_path = os.path.join(path, key)
        is_inside = os.path.dirname(os.path.normpath(full_path)) == os.path.normpath(path)
        if not path or not is_inside or not _is_allowed(path, allowed) or not os.path.isfile(full_path):
            return None
        try:
            with open(full_path, encoding="utf-8") as file:
                return file.read()
        except (OSError, UnicodeDecodeError) as error:
            reason = str(error.strerror) if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ProviderError(f"Could not read file {full_path}", reason) from None

    return value


def _environment_provider(environment: Mapping[str, str], pattern: str | None) -> Provider:
    try:
        allowed = re.compile(pattern or ".*", re.DOTALL)
    except re.error as error:
        raise ProviderError(f"allowlist.pattern {pattern} is not a regular expression: {error}") from None

    def value(path: str, key: str) -> str | None:
        if path:
            raise ProviderError(f"Path of the environment must be empty, and is {path}")
        return environment.get(key) if allowed.fullmatch(key) else None

    return value


def _is_allowed(path: str, allowed: str | None) -> bool:
    """True if the path is in one of the directories or files of `allowed.paths`, which all are if it is not set."""
    if not allowed:
        return True
    wanted = os.path.realpath(path)
    for part in filter(None, (text.strip() for text in allowed.split(","))):
        directory = os.path.realpath(part)
        if wanted == directory or wanted.startswith(directory.rstrip(os.sep) + os.sep):
            return True
    log.error("the path %s is not in allowed.paths of its config provider", path)
    return False
