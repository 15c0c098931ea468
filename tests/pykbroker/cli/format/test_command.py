"""`pykbroker format`: the files that it writes, and the options that it refuses."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pykbroker.cli.errors import CliError
from pykbroker.cli.format.command import format_directory, parse_controllers
from pykbroker.cli.format.features import write_levels_of_new_directory
from pykbroker.cli.start.options import StartOptions
from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.metadata.features import BOOTSTRAP_LEVELS
from pykbroker.controller.metadata.record_framing import decode_record
from pykbroker.controller.raft.log_view import BEGINNING
from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterEndpoint, VoterSet
from pykbroker.controller.raft.voter_history import KRaftVersion
from pykbroker.controller.snapshot_file import parse_snapshot, read_snapshot
from pykbroker.logstore.filesystem import OsFileSystem
from pykbroker.protocol.log_messages.metadata_records import UserScramCredentialRecord
from pykbroker.protocol.uuids import uuid_from_text
from pykbroker.security.scram import credential_of_password

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
FIRST, SECOND = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
SETTINGS = """
process.roles=controller
node.id=1
listeners=CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=localhost:9093
log.dirs={}/data
"""


def run(folder: Path, *words: str, settings: str = SETTINGS) -> Result:
    file = folder / "server.properties"
    file.write_text(settings.format(folder))
    return CliRunner().invoke(format_directory, ["--config", str(file), *words])


def first_checkpoint(folder: Path) -> tuple[object, ...]:
    return read_snapshot(OsFileSystem(), f"{folder}/data/__cluster_metadata-0", BEGINNING).control


def test_one_voter_alone(tmp_path: Path) -> None:
    result = run(tmp_path, "--standalone", "--cluster-id", CLUSTER)
    assert result.exit_code == 0, result.output
    properties = (tmp_path / "data/meta.properties").read_text()
    assert f"cluster.id={CLUSTER}" in properties
    directory_id = next(line for line in properties.splitlines() if line.startswith("directory.id=")).split("=")[1]
    endpoint = VoterEndpoint("CONTROLLER", "localhost", 9093)
    voter = Voter(ReplicaKey(1, uuid_from_text(directory_id)), (endpoint,), (0, 1))
    assert first_checkpoint(tmp_path) == (KRaftVersion(1), VoterSet([voter]))


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_one_voter_on_every_address(tmp_path: Path, host: str) -> None:
    """As kafka-storage does: localhost, because no client can connect to 0.0.0.0."""
    run(tmp_path, "--standalone", settings=SETTINGS.replace("CONTROLLER://localhost", f"CONTROLLER://{host}"))
    voters = first_checkpoint(tmp_path)[1]
    assert isinstance(voters, VoterSet)
    assert voters.voters[0].endpoints == (VoterEndpoint("CONTROLLER", "localhost", 9093),)


def test_the_first_voters_know_of_one_another(tmp_path: Path) -> None:
    voters = f"1@localhost:9093:{FIRST},2@[::1]:9094:{SECOND}"
    result = run(tmp_path, "--initial-controllers", voters, "--cluster-id", CLUSTER)
    assert result.exit_code == 0, result.output
    assert f"directory.id={FIRST}" in (tmp_path / "data/meta.properties").read_text()
    written = first_checkpoint(tmp_path)[1]
    assert written == parse_controllers(voters, "CONTROLLER")
    assert isinstance(written, VoterSet)
    assert written.voters[1].endpoints == (VoterEndpoint("CONTROLLER", "::1", 9094),)


def test_a_node_that_does_not_vote_has_no_first_voters(tmp_path: Path) -> None:
    assert run(tmp_path, "--no-initial-controllers", "--cluster-id", CLUSTER).exit_code == 0
    assert first_levels(tmp_path) == BOOTSTRAP_LEVELS
    assert not (tmp_path / "data/__cluster_metadata-0").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "give one of"),
        (["--standalone", "--no-initial-controllers"], "give one of"),
        (["--no-initial-controllers"], "--cluster-id is needed"),
        (["--standalone", "--override", "node.id"], "--override 'node.id': expected KEY=VALUE"),
        (["--initial-controllers", "1@localhost:9093", "--cluster-id", CLUSTER], "is not ID@HOST:PORT:DIRECTORY"),
    ],
)
def test_what_cannot_be_meant_is_said(tmp_path: Path, words: list[str], why: str) -> None:
    result = run(tmp_path, *words)
    assert isinstance(result.exception, CliError)
    assert why in str(result.exception)
    assert not (tmp_path / "data/meta.properties").exists()


def test_configured_voters_do_not_change(tmp_path: Path) -> None:
    result = run(tmp_path, "--standalone", settings=STATIC)
    assert "controller.quorum.voters" in str(result.exception)


STATIC = SETTINGS.replace("bootstrap.servers=", "voters=1@")


def first_levels(folder: Path) -> dict[str, int]:
    path = str(folder / "data/bootstrap.checkpoint")
    content = OsFileSystem().read_file(path)
    assert content is not None
    records = [decode_record(value) for value in parse_snapshot(path, content).values]
    return {record.name: record.feature_level for record in records}


UNSTABLE = {**BOOTSTRAP_LEVELS, "metadata.version": 31}


@pytest.mark.parametrize(
    ("words", "levels"),
    [
        # Apache Kafka begins without group.version and the others in a directory that has no bootstrap.checkpoint.
        ([], dict(BOOTSTRAP_LEVELS)),
        (["--override", "unstable.feature.versions.enable=true"], UNSTABLE),
        (["--release-version", "3.3"], {"metadata.version": 7}),
        (["--release-version", "3.7-IV2"], {"metadata.version": 17}),
        (["--feature", "metadata.version=23"], {"metadata.version": 23, "group.version": 1}),
        (["-r", "4.0"], {"metadata.version": 25, "transaction.version": 2, "group.version": 1}),
        (["-r", "4.0.1", "-f", "transaction.version=0"], {"metadata.version": 25, "group.version": 1}),
        (["-r", "3.9", "-f", "transaction.version=1"], {"metadata.version": 21, "transaction.version": 1}),
        (["-f", "kraft.version=1"], dict(BOOTSTRAP_LEVELS)),
        (
            ["-r", "4.1-IV0", "-f", "group.version=0"],
            {"metadata.version": 26, "transaction.version": 2, "eligible.leader.replicas.version": 1},
        ),
        (
            ["-r", "4.0", "-f", "eligible.leader.replicas.version=1"],
            {
                "metadata.version": 25,
                "transaction.version": 2,
                "group.version": 1,
                "eligible.leader.replicas.version": 1,
            },
        ),
        (["--override", "unstable.feature.versions.enable=true", "-r", "4.4"], UNSTABLE),
        (["--override", "unstable.feature.versions.enable=true", "-f", "transaction.version=2"], UNSTABLE),
    ],
)
def test_a_cluster_begins_at_the_levels_that_were_asked_for(
    tmp_path: Path, words: list[str], levels: dict[str, int]
) -> None:
    result = run(tmp_path, "--standalone", *words)
    assert result.exit_code == 0, result.output
    assert first_levels(tmp_path) == levels
    assert f"metadata.version {levels['metadata.version']} (" in result.output


def test_configured_voters_are_formatted_without_a_checkpoint(tmp_path: Path) -> None:
    result = run(tmp_path, "-r", "3.9-IV0", settings=STATIC)
    assert result.exit_code == 0, result.output
    assert first_levels(tmp_path) == {"metadata.version": 21}
    assert not (tmp_path / "data/__cluster_metadata-0").exists()
    assert run(tmp_path, "-r", "3.9-IV0", "-g", settings=STATIC).exit_code == 0


def test_several_configured_voters_need_the_clusters_id(tmp_path: Path) -> None:
    settings = STATIC.replace("9093\nlog", "9093,2@localhost:9094\nlog")
    assert "--cluster-id is needed" in str(run(tmp_path, settings=settings).exception)
    assert run(tmp_path, "--cluster-id", CLUSTER, settings=settings).exit_code == 0
    assert first_levels(tmp_path) == BOOTSTRAP_LEVELS


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-r", "4.4-IV0"], "Unknown metadata.version '4.4-IV0'. Supported metadata.version are: 3.3-IV3, 3.4-IV0, "),
        (["-f", "metadata.version=31"], "metadata.version 31 (4.4-IV0) is not supported, only 7 (3.3-IV3) to 30"),
        (["-f", "metadata.version=0"], "metadata.version 0 is not supported"),
        (["-r", "4.0", "-f", "metadata.version=25"], "not both"),
        (["-f", "metadata.version"], "is not NAME=LEVEL"),
        (
            ["-f", "no.such.feature=1"],
            "there is no feature 'no.such.feature'; supported are eligible.leader.replicas.version, group.version",
        ),
        (["-f", "transaction.version=3"], "transaction.version 3 is not supported, only 0 to 2 are"),
        (
            ["-r", "3.9", "-f", "eligible.leader.replicas.version=1"],
            "eligible.leader.replicas.version 1 depends on metadata.version level 23",
        ),
        (["-f", "kraft.version=0"], "it is 1 where the voters can change"),
    ],
)
def test_levels_that_are_refused(tmp_path: Path, words: list[str], why: str) -> None:
    result = run(tmp_path, "--standalone", *words)
    assert isinstance(result.exception, CliError)
    assert why in str(result.exception)
    assert not (tmp_path / "data/meta.properties").exists()


def test_a_formatted_directory_stays_as_it_is(tmp_path: Path) -> None:
    assert run(tmp_path, "--standalone").exit_code == 0
    before = first_checkpoint(tmp_path)
    assert "is formatted already" in str(run(tmp_path, "--standalone").exception)
    assert run(tmp_path, "--standalone", "--ignore-formatted").exit_code == 0
    assert first_checkpoint(tmp_path) == before


STATIC = SETTINGS.replace("controller.quorum.bootstrap.servers=", "controller.quorum.voters=1@")


def bootstrap_records(folder: Path) -> list[object]:
    file = folder / "data/bootstrap.checkpoint"
    return [decode_record(value) for value in parse_snapshot(str(file), file.read_bytes()).values]


def test_first_scram_credentials(tmp_path: Path) -> None:
    """The options of Kafka's storage tool; a file keeps passwords off the command line."""
    (tmp_path / "more").write_text("SCRAM-SHA-512=[name=bob, password=other, iterations=8192]\n\n")
    salted = "mT0yyUUxnlJaC99HXgRTSYlbuqa4FSGtJCJfTMvjYCE="
    result = run(
        tmp_path,
        "--cluster-id",
        CLUSTER,
        "--add-scram",
        f'SCRAM-SHA-256=[name="alice",salt="MWx2NHBkbnc0ZndxN25vdGN4bTB5Y3RkZ2M=",saltedpassword="{salted}"]',
        "--add-scram",
        f"@{tmp_path}/more",
        settings=STATIC,
    )
    assert result.exit_code == 0, result.output
    alice, bob = (record for record in bootstrap_records(tmp_path) if isinstance(record, UserScramCredentialRecord))
    assert (alice.name, alice.mechanism, alice.iterations) == ("alice", 1, 4096)
    client_key = hmac.digest(b64decode(salted), b"Client Key", "sha256")
    assert alice.stored_key == hashlib.sha256(client_key).digest()
    expected = credential_of_password("sha512", "other", bob.salt, 8192)
    assert (bob.name, bob.mechanism) == ("bob", 2)
    assert (bob.stored_key, bob.server_key, bob.iterations) == (expected.stored_key, expected.server_key, 8192)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SCRAM-SHA-256", "Failed to find equals sign in SCRAM argument"),
        ("MD5=[name=a,password=b]", "The add-scram mechanism MD5 is not supported."),
        ("SCRAM-SHA-256=name=a", "Expected configuration string to start with ["),
        ("SCRAM-SHA-256=[name=a", "Expected configuration string to end with ]"),
        ("SCRAM-SHA-256=[password=b]", "You must supply 'name' to add-scram"),
        ("SCRAM-SHA-256=[name=a]", "You must supply one of 'password' or 'saltedpassword' to add-scram"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=AAAA]", "You must supply 'salt' with 'saltedpassword' to add-scram"),
        ("SCRAM-SHA-256=[name=a,password=b,salt=?]", "Failed to decode given salt"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=x]", "Failed to parse iterations count: x"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=4095]", "The 'iterations' value must be >= 4096"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=16385]", "The 'iterations' value must be <= 16384"),
        ("SCRAM-SHA-256=[name]", "Failed to find equals sign in a SCRAM component"),
        ("SCRAM-SHA-256=[name=a,password=b,saltedpassword=AAAA]", "Unknown SCRAM configurations: saltedpassword"),
        ("SCRAM-SHA-256=[name=a,password=b,colour=red]", "Unknown SCRAM configurations: colour"),
        ("@nowhere", "No such file"),
    ],
)
def test_credentials_that_cannot_be(tmp_path: Path, text: str, reason: str) -> None:
    result = run(tmp_path, "--cluster-id", CLUSTER, "--add-scram", text, settings=STATIC)
    assert isinstance(result.exception, CliError) or result.exit_code == 2
    assert reason in f"{result.output}{result.exception}"
    assert not (tmp_path / "data/meta.properties").exists()


def test_a_level_without_scram(tmp_path: Path) -> None:
    words = ["--cluster-id", CLUSTER, "--release-version", "3.4", "--add-scram", "SCRAM-SHA-256=[name=a,password=b]"]
    result = run(tmp_path, *words, settings=STATIC)
    assert "SCRAM is only supported in metadata.version 11 (3.5-IV2) or later." in f"{result.output}{result.exception}"


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    result = run(tmp_path, "--standalone", "--cluster-id", CLUSTER)
    assert isinstance(result.exception, CliError)
    assert "data" in str(result.exception)


def test_a_voter_that_is_named_twice(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="--initial-controllers names node 1 twice"):
        parse_controllers(f"1@a:1:{CLUSTER},1@b:2:{CLUSTER}", "CONTROLLER")


def test_a_broker_is_no_first_voter(tmp_path: Path) -> None:
    settings = SETTINGS.replace("process.roles=controller", "process.roles=broker").replace(
        "listeners=CONTROLLER://localhost:9093", "listeners=PLAINTEXT://localhost:9092"
    )
    result = run(tmp_path, "--standalone", settings=settings)
    assert "a broker is formatted with --no-initial-controllers" in str(result.exception)


@pytest.mark.parametrize("where", ["", "/bootstrap.checkpoint.tmp/x"])
def test_levels_of_a_start_that_cannot_be_written(tmp_path: Path, where: str) -> None:
    """The directory is a file, or a directory has the name of the file that is written first."""
    path = tmp_path / "data"
    if where:
        (tmp_path / f"data{where}").mkdir(parents=True)
    else:
        path.write_text("")
    config = BrokerConfig.from_properties({"log.dirs": str(path)})
    options = StartOptions()
    options.release_version = "3.9"
    with pytest.raises(CliError, match="data"):
        write_levels_of_new_directory(config, options)
