"""Checks of the quorum's voters."""

from __future__ import annotations

from pykbroker.config.definitions import ConfigError
from pykbroker.config.listener_addresses import is_every_address
from pykbroker.config.values import ConfigValues

_VOTERS = "controller.quorum.voters"


def check_voters_and_roles(config: ConfigValues) -> None:
    """A controller must be among named voters. A node that is only a broker must not, and needs a controller's name."""
    quorum, node_id = config.quorum, config.node_id
    if not quorum.voters and not quorum.bootstrap_servers:
        raise ConfigError(
            _VOTERS,
            "",
            "must name the controllers (id@host:port) where process.roles is broker, "
            "unless controller.quorum.bootstrap.servers names some of them",
        )
    text = config.static_properties.get(_VOTERS, "")
    if quorum.voters and config.is_controller and node_id not in quorum.voters:
        raise ConfigError(_VOTERS, text, f"must name this node ({node_id}), as process.roles has controller")
    if node_id in quorum.voters and not config.is_controller:
        raise ConfigError(_VOTERS, text, f"must not name this node ({node_id}), as process.roles is broker alone")


def check_addresses_of_voters(config: ConfigValues) -> None:
    """Several voters connect to one another, so each needs an address that can be connected to."""
    voters = config.quorum.voters
    if len(voters) < 2:
        return
    for voter_id, (host, port) in voters.items():
        if port == 0:
            raise ConfigError(_VOTERS, f"{voter_id}@{host}:0", "a voter needs a port")
        if is_every_address(host):
            raise ConfigError(
                _VOTERS, f"{voter_id}@{host}:{port}", "nodes cannot connect to it; use a host name or address"
            )


CHECKS = (check_voters_and_roles, check_addresses_of_voters)
