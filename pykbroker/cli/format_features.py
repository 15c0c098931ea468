"""Feature levels of the options of `pykbroker format`, with the rules of Kafka's storage tool."""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker.cli.errors import CliError
from pykbroker.controller.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES, default_levels
from pykbroker.controller.metadata.metadata_versions import (
    METADATA_VERSION,
    METADATA_VERSION_LATEST,
    is_supported,
    level_of_release,
    not_supported,
)


def levels_of_options(
    release_version: str | None, features: Sequence[str], *, is_dynamic: bool
) -> dict[str, int] | None:
    """Levels that a new cluster begins with, from --release-version and the --feature options; None without either.

    Args:
        release_version: a release such as 3.9 or 3.9-IV0; the newest by default.
        features: NAME=LEVEL each; a feature that is not named gets the level that the release has.
        is_dynamic: True if the quorum's voters can change, which needs kraft.version 1.

    Raises:
        CliError: a level or name is unknown, or the options contradict one another.
    """
    if release_version is None and not features:
        return None
    given = dict(map(_name_and_level, features))
    if release_version is not None and METADATA_VERSION in given:
        raise CliError(f"use --release-version instead of --feature {METADATA_VERSION}=X, not both", 2)
    level = given.pop(METADATA_VERSION, METADATA_VERSION_LATEST)
    if release_version is not None:
        try:
            level = level_of_release(release_version)
        except ValueError as unknown:
            raise CliError(f"--release-version: {unknown}", 2) from None
    elif not is_supported(level):
        raise CliError(f"--feature: {not_supported(level)}", 2)
    if given.pop(KRAFT_VERSION, int(is_dynamic)) != is_dynamic:
        raise CliError(
            f"--feature {KRAFT_VERSION}: it is 1 where the voters can change (no controller.quorum.voters), else 0", 2
        )
    return {**default_levels(level), **given}


def _name_and_level(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    try:
        level = int(number)
    except ValueError:
        raise CliError(f"--feature {text!r} is not NAME=LEVEL with a number for the level", 2) from None
    if name not in SUPPORTED_FEATURES:
        raise CliError(
            f"--feature: there is no feature {name!r}; supported are {', '.join(sorted(SUPPORTED_FEATURES))}", 2
        )
    lowest, highest = SUPPORTED_FEATURES[name]
    if name != METADATA_VERSION and not lowest <= level <= highest:
        raise CliError(f"--feature: {name} {level} is not supported, only {lowest} to {highest} are", 2)
    return name, level
