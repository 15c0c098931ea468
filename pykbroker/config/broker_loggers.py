"""The loggers of this process under Kafka's names for levels (KIP-412)."""

from __future__ import annotations

import logging

LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
ROOT = "root"
OURS = "pykbroker"


def logger_levels() -> dict[str, str]:
    """Name -> effective level of the root logger and of the existing loggers of pykbroker."""
    names = sorted(name for name in logging.root.manager.loggerDict if name.partition(".")[0] == OURS)
    return {ROOT: level_name(logging.root.level), **{name: level_name(_level(name)) for name in names}}


def level_name(level: int) -> str:
    """Kafka's name of a level; a number between two levels gets the name of the lower one."""
    return next((name for name, number in LEVELS.items() if level >= number), "TRACE")


def has_logger(name: str) -> bool:
    return name in logger_levels()


def set_level(name: str, level: str | None) -> None:
    """Sets a logger's level by Kafka's name; with None it inherits its parent's."""
    logger = logging.getLogger(None if name == ROOT else name)
    logger.setLevel(logging.NOTSET if level is None else LEVELS[level])


def _level(name: str) -> int:
    return logging.getLogger(name).getEffectiveLevel()
