"""`pykbroker format`: prepares data directories before the first start, as Kafka's `kafka-storage format` does.

It is needed for a quorum whose voters can change (KIP-853), as each of the first voters needs the whole voter set, and
for a cluster that is to begin at older feature levels than the newest. All other directories are formatted at the first
start.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from pykbroker.cli.errors import EXIT_USAGE, CliError
from pykbroker.cli.format.features import levels_of_options
from pykbroker.cli.start.config import broker_properties
from pykbroker.cli.start.node_process import config_of
from pykbroker.cli.start.options import StartOptions
from pykbroker.config.broker_config import BrokerConfig
from pykbroker.config.listener_addresses import is_every_address
from pykbroker.config.values import CONTROLLER
from pykbroker.controller.formatting import write_first_levels, write_first_voters
from pykbroker.controller.metadata.metadata_versions import (
    METADATA_VERSION,
    described,
)
from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterEndpoint, VoterSet
from pykbroker.logstore.errors import StorageError
from pykbroker.logstore.filesystem import OsFileSystem
from pykbroker.logstore.log_directory import LogDirectory
from pykbroker.logstore.meta_properties import MetaProperties
from pykbroker.protocol.uuids import random_uuid, random_uuid_text, uuid_from_text, uuid_to_text

KRAFT_VERSIONS = (0, 1)
_VOTER = re.compile(r"(\d+)@(\[[^\]]+\]|[^:]+):(\d+):([A-Za-z0-9_-]{22})")


@click.command()
@click.option("-c", "--config", "config_file", metavar="FILE", required=True, help="The node's server.properties.")
@click.option("--override", "overrides", metavar="KEY=VALUE", multiple=True, help="Set one config; may be given again.")
@click.option("-t", "--cluster-id", metavar="ID", help="Id of the cluster, 22 characters; random if it is not given.")
@click.option("-s", "--standalone", is_flag=True, help="This node is the only voter at first.")
@click.option(
    "-I",
    "--initial-controllers",
    metavar="ID@HOST:PORT:DIRECTORY,...",
    help="The first voters, the same on each of them; this node's directory gets the directory id given here.",
)
@click.option("-N", "--no-initial-controllers", is_flag=True, help="This node is no voter, or is made one later.")
@click.option("-g", "--ignore-formatted", is_flag=True, help="Leave a directory alone that is formatted already.")
@click.option("-r", "--release-version", metavar="RELEASE", help="Begin with the feature levels of a release: 3.9.")
@click.option(
    "-f", "--feature", "features", metavar="NAME=LEVEL", multiple=True, help="Begin with a feature at this level."
)
@click.option(
    "-S",
    "--add-scram",
    "scram_texts",
    metavar="TEXT",
    multiple=True,
    help="A first SCRAM credential: SCRAM-SHA-256=[name=NAME,password=PASSWORD]; @FILE has one in each line.",
)
def format_directory(
    config_file: str,
    overrides: tuple[str, ...],
    cluster_id: str | None,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    ignore_formatted: bool,
    release_version: str | None,
    features: tuple[str, ...],
    scram_texts: tuple[str, ...],
) -> None:
    """Prepare a node's data directory before its first start.

    For a quorum whose voters can change the settings need `controller.quorum.bootstrap.servers`, and no
    `controller.quorum.voters`.

    \b
    One controller, others to be added later (kafka-metadata-quorum add-controller):
      pykbroker format --config server.properties --standalone
    Three at once, the same command on each of them:
      pykbroker format --config server.properties --cluster-id ID --initial-controllers
          1@host1:9093:AAAAAAAAAAAAAAAAAAAAAQ,2@host2:9093:AAAAAAAAAAAAAAAAAAAAAg,...
    A cluster that begins as one of an older release, the same command on each of its nodes:
      pykbroker format --config server.properties --cluster-id ID --release-version 3.9
    A cluster whose nodes and clients log in by SCRAM, the same command on each of its controllers:
      pykbroker format --config server.properties --cluster-id ID --add-scram @credentials
    """
    config = _read_config(config_file, overrides)
    unstable = config.broker.unstable_feature_versions_enable
    levels = levels_of_options(release_version, features, is_dynamic=not config.quorum.voters, unstable=unstable)
    first: list[Any] = []
    if scram_texts:
        from pykbroker.cli.format.scram import credentials_of_options

        first = credentials_of_options(scram_texts, levels[METADATA_VERSION])
    generator = random.SystemRandom()
    directory_id = random_uuid(generator)
    _check_voter_options(config, initial_controllers, standalone=standalone, no_voters=no_initial_controllers)
    if cluster_id is None and not standalone and not config.is_alone:
        raise CliError("--cluster-id is needed: it is the same on all nodes", EXIT_USAGE)
    voters: VoterSet | None = None
    if standalone:
        voters = VoterSet([_standalone_voter(config, directory_id)])
    elif initial_controllers is not None:
        voters = parse_controllers(initial_controllers, config.network.controller_listener)
    itself = None if voters is None else voters.voter(config.node_id)
    if itself is None:
        voters = None
    else:
        directory_id = itself.key.directory_id
    cluster_id = cluster_id or random_uuid_text(generator)
    identity = MetaProperties(cluster_id, config.node_id, uuid_to_text(directory_id))
    _write_all(config, identity, voters, levels, first, generator, ignore_formatted=ignore_formatted)


def _check_voter_options(
    config: BrokerConfig, initial_controllers: str | None, *, standalone: bool, no_voters: bool
) -> None:
    """Raises CliError if the options about the first voters do not fit the settings, or one another."""
    if config.quorum.voters:
        if standalone or initial_controllers is not None:
            raise CliError(
                "controller.quorum.voters makes the voters static: leave it out to give voters by options", EXIT_USAGE
            )
        return
    if standalone + (initial_controllers is not None) + no_voters != 1:
        raise CliError("give one of --standalone, --initial-controllers and --no-initial-controllers", EXIT_USAGE)
    if not no_voters and not config.is_controller:
        raise CliError(
            f"process.roles has no {CONTROLLER}: a broker is formatted with --no-initial-controllers", EXIT_USAGE
        )


def _read_config(config_file: str, overrides: tuple[str, ...]) -> BrokerConfig:
    options = StartOptions()
    options.config_file = config_file
    for override in overrides:
        key, separator, text = override.partition("=")
        if not separator:
            raise CliError(f"--override {override!r}: expected KEY=VALUE", EXIT_USAGE)
        options.overrides[key.strip()] = text.strip()
    return config_of(broker_properties(options, os.environ), options)


def _standalone_voter(config: BrokerConfig, directory_id: bytes) -> Voter:
    endpoints = []
    for address in config.network.controller_listeners:
        advertised = config.network.advertised_controller_listeners.get(address.name, address)
        # As Kafka's kafka-storage: only its own machine can reach this voter until another address is known.
        host = "localhost" if is_every_address(advertised.host) else advertised.host
        endpoints.append(VoterEndpoint(address.name.upper(), host, advertised.port))
    return Voter(ReplicaKey(config.node_id, directory_id), tuple(endpoints), KRAFT_VERSIONS)


def parse_controllers(text: str, listener_name: str) -> VoterSet:
    """The voters of `--initial-controllers` in Kafka's form: `id@host:port:directory id`, separated by commas.

    Raises:
        CliError: the text has another form, or has a node twice.
    """
    voters: dict[int, Voter] = {}
    for part in text.replace(" ", "").split(","):
        found = _VOTER.fullmatch(part)
        if found is None or int(found[3]) > 65535:
            raise CliError(
                f"--initial-controllers: {part!r} is not ID@HOST:PORT:DIRECTORY, the last of 22 characters", EXIT_USAGE
            )
        node_id = int(found[1])
        if node_id in voters:
            raise CliError(f"--initial-controllers names node {node_id} twice", EXIT_USAGE)
        endpoint = VoterEndpoint(listener_name, found[2].strip("[]"), int(found[3]))
        voters[node_id] = Voter(ReplicaKey(node_id, uuid_from_text(found[4])), (endpoint,), KRAFT_VERSIONS)
    return VoterSet(voters.values())


def _write_all(
    config: BrokerConfig,
    identity: MetaProperties,
    voters: VoterSet | None,
    levels: Mapping[str, int],
    first: Sequence[Any],
    generator: random.Random,
    *,
    ignore_formatted: bool,
) -> None:
    """Formats the metadata log directory, and the other log directories with directory ids of their own."""
    metadata = config.log.metadata_dir or config.log.dirs[0]
    identity = _write(metadata, identity, voters, levels, first, ignore_formatted=ignore_formatted)
    for path in config.log.dirs:
        if path != metadata:
            further = identity._replace(directory_id=random_uuid_text(generator))
            _write(path, further, None, None, (), ignore_formatted=ignore_formatted)


def _write(
    path: str,
    identity: MetaProperties,
    voters: VoterSet | None,
    levels: Mapping[str, int] | None,
    first: Sequence[Any],
    *,
    ignore_formatted: bool,
) -> MetaProperties:
    """Formats one directory; returns its meta properties, those of before if it was formatted already."""
    filesystem = OsFileSystem()
    try:
        directory = LogDirectory.open(path, filesystem=filesystem)
        try:
            known = directory.meta_properties()
            if known is not None:
                if not ignore_formatted:
                    raise CliError(f"{path} is formatted already; --ignore-formatted leaves it as it is")
                click.echo(f"{path} is formatted already.")
                return known
            now_ms = int(time.time() * 1000)
            if voters is not None:
                write_first_voters(filesystem, path, voters, now_ms)
            if levels is not None:
                write_first_levels(filesystem, path, levels, now_ms, first)
            directory.format(identity)
        finally:
            directory.abandon()
    except StorageError as error:
        raise CliError(str(error)) from error
    remark = "" if voters is None else f", one of the voters {', '.join(map(str, voters.ids))}"
    if levels is not None:
        remark += f", with metadata.version {described(levels[METADATA_VERSION])}"
    click.echo(f"Formatted {path} for node {identity.node_id} of cluster {identity.cluster_id}{remark}.")
    return identity
