"""Authorizers and principal builders in Python, named by settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pytest

from pykbroker.config.broker_config import BrokerConfig, ConfigError
from pykbroker.config.named_class import is_named_class
from pykbroker.controller.metadata.image import Acl
from pykbroker.errors import CloseConnection, KafkaError
from pykbroker.node.node_parts import make_authorizer, make_principal_builder
from pykbroker.protocol.acl_codes import CLUSTER, CLUSTER_NAME, CREATE, READ, TOPIC, WRITE
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.requests.login import answer_token
from pykbroker.security.custom_authorizer import Action
from pykbroker.security.plain import PlainExchange
from pykbroker.security.principals import AuthenticationContext, CheckedPrincipalBuilder, PrincipalBuilderFailed
from pykbroker.security.sasl import SaslSession
from pykbroker.security.sasl_mechanism import Authenticated, Mechanism
from tests.support.admin import make_context, make_services

HERE = __name__


class OwnTopics:
    """Lets everybody use the topics that begin with their name, and admins create."""

    def __init__(self, settings: Mapping[str, str], acls: Callable[[], Iterable[Acl]]) -> None:
        self.admin = settings.get("own.admin", "")
        self.acls = acls

    def allows(self, action: Action) -> bool:
        if action.operation == "CREATE":
            return action.principal == self.admin
        if action.resource_name == "crash":
            raise RuntimeError("crash")
        return action.resource_type == "TOPIC" and action.resource_name.startswith(action.principal.split(":")[1])


class Teams:
    """Makes the principals of a listener members of a team."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.team = settings.get("own.team", "")

    def build(self, context: AuthenticationContext) -> str:
        if context.principal == "User:bad":
            raise PermissionError("not a member")
        name = context.authorization_id
        suffix = "" if context.principal.endswith(":alice") else f" as {name}"
        return f"{self.team}{context.principal}{suffix}"


def authorizer(**more: str) -> Any:
    properties = {"authorizer.class.name": f"{HERE}:OwnTopics", "own.admin": "User:root", **more}
    services = make_services(properties)
    return make_authorizer(services.config, services.metadata)


def test_an_authorizer_of_ones_own(caplog: pytest.LogCaptureFixture) -> None:
    own = authorizer()
    assert own.allows("User:alice", "127.0.0.1", READ, TOPIC, "alice-topic")
    assert not own.allows("User:alice", "127.0.0.1", WRITE, TOPIC, "bob-topic")
    assert own.allows("User:root", "::1", CREATE, CLUSTER, CLUSTER_NAME)
    assert not own.allows_any("User:alice", "127.0.0.1", WRITE, TOPIC)
    assert own.allows_any("User:hard", "127.0.0.1", WRITE, TOPIC)
    assert not own.allows("User:alice", "127.0.0.1", READ, TOPIC, "crash")
    assert "the authorizer has failed" in caplog.text


def test_a_request_is_decided_by_it() -> None:
    services = make_services()
    context = make_context(services=services.replaced(authorizer=authorizer()))
    context.connection.principal = "User:alice"
    assert context.authorize(READ, TOPIC, "alice-1")
    assert not context.authorize(READ, TOPIC, "bob-1")


@pytest.mark.parametrize("key", ["authorizer.class.name", "principal.builder.class"])
def test_classes_that_cannot_be(key: str) -> None:
    with pytest.raises(ConfigError, match=r"module:Class") as caught:
        BrokerConfig.from_properties({key: "com.example.Java"})
    assert caught.value.name == key
    config = BrokerConfig.from_properties({key: "no_such_module:Class"})
    make: Any = make_principal_builder
    if key == "authorizer.class.name":
        make = partial(make_authorizer, metadata=make_services().metadata)
    with pytest.raises(ConfigError, match=r"no_such_module:Class .*cannot be imported"):
        make(config)
    assert not is_named_class("org.apache.kafka.metadata.authorizer.StandardAuthorizer")
    assert is_named_class("módulo:Ñandú")  # as the check of the setting, which lets it through


class Login:
    """A context with a listener of PLAIN and a principal builder."""

    def __init__(self, team: str) -> None:
        config = BrokerConfig.from_properties({"principal.builder.class": f"{HERE}:Teams", "own.team": team})
        services = make_services().replaced(principal_builder=make_principal_builder(config), clock=self)
        self.services = services
        self.connection = make_context(services=services).connection
        plain = Mechanism(lambda: PlainExchange({"alice": "a", "bad": "b"}))
        self.connection.sasl = SaslSession({"PLAIN": plain}, 1000, lambda: 0.0)
        self.connection.sasl.choose("PLAIN", 1)

    def now_ms(self) -> int:
        return 0


async def test_a_principal_builder_of_ones_own() -> None:
    login = Login("Team")
    await answer_token(login.services, login.connection, b"\0alice\0a")
    assert login.connection.principal == "TeamUser:alice"


LISTENERS = {
    "listeners": "OPEN://localhost:0,CLIENT://localhost:0,OTHER://localhost:0",
    "advertised.listeners": "OPEN://localhost:9,CLIENT://localhost:10,OTHER://localhost:11",
    "listener.security.protocol.map": "OPEN:PLAINTEXT,CLIENT:PLAINTEXT,OTHER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "OPEN",
}
DEFAULT = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


@pytest.mark.parametrize(
    ("properties", "principals"),
    [
        ({}, None),
        ({"listener.name.open.principal.builder.class": DEFAULT}, None),
        (
            {"listener.name.client.principal.builder.class": f"{HERE}:Teams"},
            {"OPEN": "User:alice", "CLIENT": "TeamUser:alice", "OTHER": "User:alice"},
        ),
        (
            {
                "principal.builder.class": f"{HERE}:Nobody",
                "listener.name.client.principal.builder.class": f"{HERE}:Teams",
                "listener.name.open.principal.builder.class": DEFAULT,
            },
            {"OPEN": "User:alice", "CLIENT": "TeamUser:alice", "OTHER": "nobody"},
        ),
    ],
)
def test_a_listener_may_have_a_builder_of_its_own(
    properties: dict[str, str], principals: dict[str, str] | None
) -> None:
    """P-313."""
    config = BrokerConfig.from_properties({**LISTENERS, "own.team": "Team", **properties})
    assert not config.ineffective_keys
    builder = make_principal_builder(config)
    if principals is None:
        assert builder is None
        return
    assert builder is not None
    for listener, expected in principals.items():
        context = AuthenticationContext(listener, "127.0.0.1", "PLAIN", "User:alice", {}, "alice")
        assert builder.is_for(listener) == (expected != "User:alice")
        if expected == "nobody":
            with pytest.raises(PrincipalBuilderFailed, match="Nobody has returned"):
                builder.build(context)
        else:
            assert builder.build(context) == expected


def test_a_listener_cannot_have_a_java_class() -> None:
    """P-313."""
    key = "listener.name.client.principal.builder.class"
    with pytest.raises(ConfigError, match=r"module:Class") as caught:
        BrokerConfig.from_properties({**LISTENERS, key: "com.example.Java"})
    assert caught.value.name == key


async def test_the_rules_of_a_listener_without_a_builder_still_refuse() -> None:
    """P-313, P-321: the builder of another listener does not name the client."""
    login = Login("Team")
    login.services = login.services.replaced(principal_builder=CheckedPrincipalBuilder(None, {"OTHER": Nobody()}))
    sasl = SaslSession({"GSSAPI": Mechanism(NoUserName)}, 1000, lambda: 0.0)
    sasl.choose("GSSAPI", 1)
    login.connection.sasl = sasl
    await answer_token(login.services, login.connection, b"")
    with pytest.raises(CloseConnection, match="No rules apply"):
        sasl.check_allowed(ApiKey.METADATA)


class NoUserName:
    """A login of a Kerberos principal of which no rule makes a user name."""

    result = Authenticated("alice/x@R", authorization_id="alice/x@R", refusal="No rules apply")

    def evaluate(self, token: bytes) -> bytes:
        return b""


async def test_a_builder_names_a_client_that_the_rules_do_not() -> None:
    """P-321."""
    login = Login("Team")
    sasl = SaslSession({"GSSAPI": Mechanism(NoUserName)}, 1000, lambda: 0.0)
    sasl.choose("GSSAPI", 1)
    login.connection.sasl = sasl
    await answer_token(login.services, login.connection, b"")
    assert login.connection.principal == "TeamUser:alice/x@R as alice/x@R"
    sasl.check_allowed(ApiKey.METADATA)


async def test_a_builder_that_raises_refuses_the_login(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pykbroker.audit")
    login = Login("Team")
    with pytest.raises(KafkaError, match=r"^Authentication failed$"):
        await answer_token(login.services, login.connection, b"\0bad\0b")
    assert login.connection.principal == "User:ANONYMOUS"
    assert "Teams has refused User:bad" in caplog.text


async def test_a_builder_that_returns_no_principal_refuses_the_login(caplog: pytest.LogCaptureFixture) -> None:
    """Without a type before the colon the entries of an authorizer could not name it."""
    caplog.set_level("INFO", "pykbroker.audit")
    login = Login("")
    login.services = login.services.replaced(principal_builder=CheckedPrincipalBuilder(Nobody()))
    with pytest.raises(KafkaError, match=r"^Authentication failed$"):
        await answer_token(login.services, login.connection, b"\0alice\0a")
    assert login.connection.principal == "User:ANONYMOUS"
    assert "Nobody has returned ':alice'" in caplog.text


class Nobody:
    """Makes a principal without a type."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        pass

    def build(self, context: AuthenticationContext) -> str:
        return context.principal.removeprefix("User")


def test_a_name_that_is_not_that_of_a_class() -> None:
    with pytest.raises(ConfigError, match="it is not a class"):
        make_principal_builder(BrokerConfig.from_properties({"principal.builder.class": f"{HERE}:HERE"}))
