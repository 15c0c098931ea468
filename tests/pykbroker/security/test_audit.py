"""The audit log: refused logins and requests, changes of metadata, and no secret in any of them."""

from __future__ import annotations

import logging

import pytest

from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import DESCRIBE, TOPIC, WRITE
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from pykbroker.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from pykbroker.protocol.steps import PIECE, finished
from pykbroker.requests.invocation import audit
from pykbroker.security.audit import audit_refused_login, names
from tests.support.admin import make_context


@pytest.fixture(autouse=True)
def _level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pykbroker.audit")


def test_a_refused_login_tells_the_log_what_the_client_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    error = KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "Authentication failed")
    error.__cause__ = ValueError("Invalid client credentials")
    audit_refused_login(make_context().connection, "SCRAM-SHA-256", error)
    assert caplog.messages == [
        "login refused from 127.0.0.1 on PLAINTEXT by SCRAM-SHA-256: Authentication failed (Invalid client credentials)"
    ]


def test_a_refused_request(caplog: pytest.LogCaptureFixture) -> None:
    context = make_context(api_key=ApiKey.METADATA)
    context.connection.principal = "User:alice"
    context.refusals = [(DESCRIBE, TOPIC, "t"), (WRITE, TOPIC, "u")]
    response = MetadataResponse(topics=[MetadataResponseTopic(error_code=29, name="t")])
    finished(audit(context, MetadataRequest(), response))
    assert caplog.messages == [
        "User:alice from 127.0.0.1 refused: METADATA: DESCRIBE on TOPIC t, WRITE on TOPIC u",
    ]


def test_topics_that_are_left_out_of_a_list_are_no_refusal(caplog: pytest.LogCaptureFixture) -> None:
    context = make_context(api_key=ApiKey.METADATA)
    context.refusals = [(DESCRIBE, TOPIC, "t")]
    finished(audit(context, MetadataRequest(topics=None), MetadataResponse()))
    assert caplog.messages == []


def test_long_lists_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    context = make_context(api_key=ApiKey.CREATE_TOPICS)
    topics = [CreatableTopic(name=f"t{number}") for number in range(12)]
    results = [CreatableTopicResult(name="t1", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)]
    finished(audit(context, CreateTopicsRequest(topics=topics), CreateTopicsResponse(topics=results)))
    (line,) = caplog.messages
    listed = "t0, t1, t2, t3, t4, t5, t6, t7, t8, t9 and 2 more"
    assert line == f"User:ANONYMOUS from 127.0.0.1: CREATE_TOPICS {listed} with TOPIC_ALREADY_EXISTS"


def test_the_names_and_errors_of_a_large_change_are_found_in_steps(caplog: pytest.LogCaptureFixture) -> None:
    context = make_context(api_key=ApiKey.CREATE_TOPICS)
    topics = [CreatableTopic(name=f"t{number}") for number in range(10 * PIECE)]
    results = [CreatableTopicResult(name=topic.name) for topic in topics]
    results[-1].error_code = ErrorCode.TOPIC_ALREADY_EXISTS
    steps = audit(context, CreateTopicsRequest(topics=topics), CreateTopicsResponse(topics=results))
    assert sum(1 for _ in steps) == 20
    (line,) = caplog.messages
    assert line.endswith(f"t9 and {10 * PIECE - 10} more with TOPIC_ALREADY_EXISTS")


def test_no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    context = make_context(api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
    upsertion = ScramCredentialUpsertion(name="bob", mechanism=1, salt=b"SALT", salted_password=b"SECRET")
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
    finished(audit(context, request, AlterUserScramCredentialsResponse()))
    context = make_context(api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS)
    config = AlterableConfig(name="sasl.jaas.config", value="SECRET")
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
    finished(audit(context, IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse()))
    assert caplog.messages == [
        "User:ANONYMOUS from 127.0.0.1: ALTER_USER_SCRAM_CREDENTIALS bob",
        "User:ANONYMOUS from 127.0.0.1: INCREMENTAL_ALTER_CONFIGS 1, sasl.jaas.config",
    ]


def test_a_log_that_leaves_out_the_audit_is_not_written(caplog: pytest.LogCaptureFixture) -> None:
    """Neither a change nor a refusal costs the search for names and errors then."""
    caplog.set_level(logging.WARNING, "pykbroker.audit")
    refused = make_context(api_key=ApiKey.METADATA)
    refused.refusals = [(DESCRIBE, TOPIC, "t")]
    hidden = MetadataResponse(topics=[MetadataResponseTopic(error_code=29, name="t")])
    finished(audit(refused, MetadataRequest(), hidden))
    changing = make_context(api_key=ApiKey.CREATE_TOPICS)
    response = CreateTopicsResponse(topics=[CreatableTopicResult(name="t")])
    finished(audit(changing, CreateTopicsRequest(topics=[CreatableTopic(name="t")]), response))
    assert caplog.messages == []


def test_the_names_of_a_list() -> None:
    assert list(names(DeleteTopicsRequest(topic_names=["a", "b"]))) == ["a", "b"]
