"""Combinations of settings that cannot work: a list of checks over the parsed values.

Each check is a function of the values that raises ConfigError; it names a key that was given where there is one, as
that is the one to mend. Kafka has most of them in KafkaConfig.validateValues, QuorumConfig, LogManager and
GroupCoordinatorConfig. Many bounds are of settings without effect here. They are checked all the same: a file that
Apache Kafka would refuse should not start us, and a dynamic change that it would refuse should be refused to the same
client. `tests/pykbroker/config/cases.txt` has Kafka's verdicts.

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
    """Raises ConfigError for the first combination that cannot be.

    Args:
        config: the parsed values.
        is_start: False for a dynamic change, at which Kafka looks at less.
    """
    for check in _ALWAYS:
        check(config)
    if is_start:
        for check in log.START_CHECKS:
            check(config)
