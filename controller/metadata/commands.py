"""Command, the Plan that it makes, and the PlanContext that it may use.

A command is a value with one method, `plan` or `plan_in_steps`, which makes from the present image the records that
must be committed and the result for the caller. It changes nothing itself and reads no clock, disk or random source
that it was not given. An error of one item of a request is data in the result (`ApiError`), never an exception.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.steps import Steps

if TYPE_CHECKING:
    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.controller.random_source import RandomSource

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

# Kafka's limits for one user request (QuorumController.MAX_RECORDS_PER_USER_OP, ReplicationControlManager).
RECORD_COUNT_MAX = 10_000
PARTITION_COUNT_MAX_PER_REQUEST = 10_000


class ApiError(NamedTuple):
    """A Kafka error code with the text that a client shows. `NO_ERROR` is success."""

    code: ErrorCode
    message: str | None = None

    @property
    def is_failure(self) -> bool:
        return self.code != ErrorCode.NONE


NO_ERROR = ApiError(ErrorCode.NONE)


class Plan(NamedTuple, Generic[R_co]):
    """The result of planning a command.

    Attributes:
        records: metadata record objects, committed together or not at all.
        result: returned to the caller when they are committed and applied; at once if there are none.
    """

    records: Sequence[Any]
    result: R_co


class ShortCommand(Protocol[R_co]):
    """A command that is planned within one turn."""

    def plan(self, image: ClusterImage, context: PlanContext) -> Plan[R_co]: ...


class LongCommand(Protocol[R_co]):
    """A command that may take longer than a turn, as it changes up to 10,000 things."""

    def plan_in_steps(self, image: ClusterImage, context: PlanContext) -> Steps[Plan[R_co]]: ...


Command = ShortCommand[R] | LongCommand[R]
"""A change of the metadata that can be submitted to the controller."""


def plan_in_steps(command: Command[R], image: ClusterImage, context: PlanContext) -> Steps[Plan[R]]:
    """The plan of any command, in steps if it has them."""
    if hasattr(command, "plan_in_steps"):
        return (yield from command.plan_in_steps(image, context))
    return command.plan(image, context)


class ConfigRules(Protocol):
    """Rules of configuration keys, for commands; the definitions are the server's.

    Resource types are the wire's numbers: 2 topic, 4 broker, 16 client metrics, 32 group.
    """

    def is_list(self, resource_type: int, name: str) -> bool:
        """True if the value of this key is a comma-separated list, so that APPEND and SUBTRACT are allowed."""
        ...

    def default(self, resource_type: int, name: str) -> str | None:
        """The default of this key as text, None when it has none; APPEND and SUBTRACT start from it if none is set."""
        ...

    def validate(self, resource_type: int, resource_name: str, configs: Mapping[str, str]) -> ApiError:
        """Checks all configs that the resource would have.

        INVALID_CONFIG with Kafka's text for unknown names and invalid values, else NO_ERROR.
        """
        ...


class PlanContext(NamedTuple):
    """Values that a command may use besides the image.

    Attributes:
        next_offset: offset that the first record of the plan will get; as in Kafka the epoch of a new broker.
        random: for topic ids, and for the brokers with which the placement of replicas begins.
        partition_count_default, replication_factor_default: `num.partitions` and `default.replication.factor`.
        config_rules: rules of configuration keys.
        supported_features: feature name -> (lowest, highest level) that this software supports.
        node_id, voter_ids: id of this controller, and ids of all voters.
        min_insync_replicas_default: `min.insync.replicas` at the start of this controller.
        unclean_election_default: `unclean.leader.election.enable` at the start of this controller.
    """

    next_offset: int
    random: RandomSource
    partition_count_default: int
    replication_factor_default: int
    config_rules: ConfigRules
    supported_features: Mapping[str, tuple[int, int]]
    node_id: int
    voter_ids: frozenset[int]
    unclean_election_default: bool = False
    min_insync_replicas_default: int = 1


class Refused(Exception):
    """A request, or one item of it, is refused. `error` has the code and the text for the client."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.error = ApiError(code, message)


class CommandRefused(Refused):
    """The whole request is refused, without a result per item."""


class ItemRefused(Refused):
    """One item of a request is refused. `plan` catches it and puts its `error` into the item's result."""
