"""The layers below the configuration have defaults of their own; they are those of the table of Kafka's keys."""

from __future__ import annotations

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.active_controller import ActiveControllerSettings
from pykbroker.controller.raft.roles import RaftSettings
from pykbroker.controller.raft_storage import StorageSettings
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.meta_properties import MetaProperties
from pykbroker.node import controller_server, quorum_node
from pykbroker.protocol.records.validation import AppendPolicy

CONFIG = BrokerConfig.from_properties({})


def test_log_config_has_the_defaults_of_topics() -> None:
    assert LogConfig.from_properties(CONFIG.topics.defaults) == LogConfig()


def test_append_policy_has_the_defaults_of_topics() -> None:
    topic, policy = LogConfig(), AppendPolicy()
    assert policy.max_message_bytes == topic.max_message_bytes
    assert policy.segment_bytes == topic.segment_bytes
    assert policy.timestamp_before_max_ms == topic.message_timestamp_before_max_ms
    assert policy.timestamp_after_max_ms == topic.message_timestamp_after_max_ms
    assert policy.is_log_append_time == (topic.message_timestamp_type == "LogAppendTime")
    assert policy.is_compacted == topic.is_compacted


def test_controllers_have_the_defaults_of_the_broker() -> None:
    identity = MetaProperties(cluster_id="c", node_id=1, directory_id="AAAAAAAAAAAAAAAAAAAAAQ")
    settings = quorum_node._settings(CONFIG, "/data", identity)
    assert settings.storage._replace(reserve_bytes=0) == StorageSettings()
    assert settings.raft == RaftSettings()
    assert controller_server._settings(CONFIG)._replace(local_broker_id=None) == ActiveControllerSettings()
