"""Checks of combinations of settings that cannot work, over the parsed values.

Each check is a function of the values that raises ConfigError. If possible the error names a key that was given, which
is the one to correct. Kafka has most checks in KafkaConfig.validateValues, QuorumConfig, LogManager and
GroupCoordinatorConfig. Settings without effect here are checked nevertheless: a broker should not start with a file
that Apache Kafka would refuse, and a dynamic change that Kafka would refuse should be refused here too.
`tests/pykbroker/config/cases.txt` has Kafka's results.

Adding a check: write it in the module of its group, and put it into that module's CHECKS.
"""

from __future__ import annotations

from pykbroker.config.validation import connections, groups, listeners, log, pairs, quorum, roles, security
from pykbroker.config.values import ConfigValues

_ALWAYS = (
    *listeners.CHECKS,
    *quorum.CHECKS,
    *roles.CHECKS,
    *security.CHECKS,
    *log.CHECKS,
    *pairs.CHECKS,
    *groups.CHECKS,
    *connections.CHECKS,
)


def validate(config: ConfigValues, *, is_start: bool) -> None:
    """Raises ConfigError for the first combination that cannot work.

    Args:
        config: the parsed values.
        is_start: False for a dynamic change, at which Kafka makes fewer checks.
    """
    for check in _ALWAYS:
        check(config)
    if is_start:
        for check in log.START_CHECKS:
            check(config)
