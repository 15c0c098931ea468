"""Feature levels of the options of `pykbroker format`, with the rules of Kafka's storage tool."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pykbroker.cli.errors import EXIT_USAGE, CliError
from pykbroker.controller.formatting import BOOTSTRAP_FILE, write_first_levels
from pykbroker.controller.metadata.features import (
    KRAFT_VERSION,
    default_levels,
    supported_features,
    unmet_dependency,
)
from pykbroker.controller.metadata.metadata_versions import METADATA_VERSION, level_of_release, not_supported
from pykbroker.logstore.errors import StorageError
from pykbroker.logstore.filesystem import OsFileSystem

if TYPE_CHECKING:
    from pykbroker.cli.start.options import StartOptions
    from pykbroker.config.broker_config import BrokerConfig


def levels_of_options(
    release_version: str | None, features: Sequence[str], *, is_dynamic: bool, unstable: bool
) -> dict[str, int]:
    """Levels that a new cluster begins with, from --release-version and the --feature options.

    Args:
        release_version: a release such as 3.9 or 3.9-IV0; the newest by default.
        features: NAME=LEVEL each; a feature that is not named gets the level that the release has.
        is_dynamic: True if the quorum's voters can change, which needs kraft.version 1.
        unstable: `unstable.feature.versions.enable`: the newest level is one that may still change.

    Raises:
        CliError: a level or name is unknown, or the options contradict one another.
    """
    supported = supported_features(unstable=unstable)
    given = dict(_name_and_level(feature, supported) for feature in features)
    lowest, highest = supported[METADATA_VERSION]
    if release_version is not None and METADATA_VERSION in given:
        raise CliError(f"use --release-version instead of --feature {METADATA_VERSION}=X, not both", EXIT_USAGE)
    level = given.pop(METADATA_VERSION, highest)
    if release_version is not None:
        try:
            level = level_of_release(release_version, highest)
        except ValueError as unknown:
            raise CliError(f"--release-version: {unknown}", EXIT_USAGE) from None
    elif not lowest <= level <= highest:
        raise CliError(f"--feature: {not_supported(level, highest)}", EXIT_USAGE)
    if given.pop(KRAFT_VERSION, int(is_dynamic)) != is_dynamic:
        raise CliError(
            f"--feature {KRAFT_VERSION}: it is 1 where the voters can change (no controller.quorum.voters), else 0",
            EXIT_USAGE,
        )
    levels = {**default_levels(level), **given}
    for name, number in levels.items():
        dependency = unmet_dependency(name, number, levels)
        if dependency is not None:
            raise CliError(f"--feature: {name} {number} depends on {dependency[0]} level {dependency[1]}", EXIT_USAGE)
    return levels


def write_levels_of_new_directory(config: BrokerConfig, options: StartOptions) -> None:
    """Writes the feature levels of `start`'s options into a new data directory, for its first start.

    A formatted directory keeps its levels; `kafka-features` changes those of a running cluster.

    Raises:
        CliError: a level or name is unknown, the options contradict one another, or the directory cannot be written.
    """
    levels = levels_of_options(
        options.release_version,
        options.features,
        is_dynamic=bool(config.quorum.bootstrap_servers),
        unstable=config.broker.unstable_feature_versions_enable,
    )
    path = config.log.dirs[0]
    if any(os.path.exists(os.path.join(path, name)) for name in ("meta.properties", BOOTSTRAP_FILE)):
        return
    try:
        os.makedirs(path, exist_ok=True)
        write_first_levels(OsFileSystem(), path, levels, int(time.time() * 1000))
    except OSError as error:
        raise CliError(f"{error.filename}: {error.strerror}") from error
    except StorageError as error:
        raise CliError(str(error)) from error


def _name_and_level(text: str, supported: Mapping[str, tuple[int, int]]) -> tuple[str, int]:
    name, _, number = text.partition("=")
    try:
        level = int(number)
    except ValueError:
        raise CliError(f"--feature {text!r} is not NAME=LEVEL with a number for the level", EXIT_USAGE) from None
    if name not in supported:
        raise CliError(
            f"--feature: there is no feature {name!r}; supported are {', '.join(sorted(supported))}", EXIT_USAGE
        )
    lowest, highest = supported[name]
    if name != METADATA_VERSION and not lowest <= level <= highest:
        raise CliError(f"--feature: {name} {level} is not supported, only {lowest} to {highest} are", EXIT_USAGE)
    return name, level
