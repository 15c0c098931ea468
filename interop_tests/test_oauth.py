"""Signed tokens of OAUTHBEARER (KIP-768, KIP-1139): stock clients, keys from a file and a URL, and refused tokens.

The identity provider is a small HTTP server of this process: a key set, and a token endpoint for client credentials.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from interop_tests.brokers import BrokerProcess
from interop_tests.conftest import StartBroker
from interop_tests.java_tools import TOPICS, JavaTools
from interop_tests.test_sasl_mechanisms import METADATA_OF_NOTHING, Answer, authenticate, handshake
from interop_tests.wire import Connection, ConnectionClosed

jwt = pytest.importorskip("jwt")
pytest.importorskip("cryptography")

pytestmark = [pytest.mark.own_broker, pytest.mark.area("authentication")]

ISSUER, AUDIENCE, KEY_ID = "https://issuer.example", "the-brokers", "key-1"
MODULES = "org.apache.kafka.common.security.oauthbearer"
PREFIX = "listener.name.sasl_plaintext.oauthbearer"
TIMEOUT_S = 30.0
CLIENT_ID, CLIENT_SECRET = "pipeline", "the+secret"


class Provider:
    """An identity provider.

    Attributes:
        requests: the forms of requests for a token, with the name and secret of the client.
    """

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.asymmetric import rsa

        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.other_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.requests: list[dict[str, str]] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, provider.key_set)

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                _, _, words = self.headers.get("Authorization", "").partition(" ")
                name, _, secret = base64.b64decode(words).decode().partition(":")
                provider.requests.append({**{key: value[0] for key, value in form.items()}, "client": name})
                if (name, secret) != (CLIENT_ID, CLIENT_SECRET):
                    self._answer(401, json.dumps({"error": "invalid_client"}))
                    return
                token = provider.token(name)
                self._answer(200, json.dumps({"access_token": token, "expires_in": 300, "token_type": "Bearer"}))

            def _answer(self, status: int, text: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *words: Any) -> None:
                """Keeps the output of the tests clean."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def key_set(self) -> str:
        """The public key as JWKS."""
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        return json.dumps({"keys": [{**public, "kid": KEY_ID, "use": "sig", "alg": "RS256"}]})

    def token(self, user: str = "alice", *, key: Any = None, key_id: str = KEY_ID, **claims: Any) -> str:
        """A signed token; a claim that is None is left out."""
        now = int(time.time())
        all_claims = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 300, **claims}
        given = {name: value for name, value in all_claims.items() if value is not None}
        return str(jwt.encode(given, key or self._key, algorithm="RS256", headers={"kid": key_id}))

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


@pytest.fixture(scope="module", params=["file", "url"])
def secured(
    request: pytest.FixtureRequest,
    start_broker: StartBroker,
    provider: Provider,
    tmp_path_factory: pytest.TempPathFactory,
) -> BrokerProcess:
    """A broker that has the key set from a file, or from the provider."""
    url = f"{provider.url}/keys"
    if request.param == "file":
        path = tmp_path_factory.mktemp("keys") / "keys.json"
        path.write_text(provider.key_set)
        url = path.as_uri()
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{PREFIX}.sasl.jaas.config": f"{MODULES}.OAuthBearerLoginModule required;",
        f"{PREFIX}.sasl.server.callback.handler.class": f"{MODULES}.OAuthBearerValidatorCallbackHandler",
        f"{PREFIX}.sasl.oauthbearer.jwks.endpoint.url": url,
        f"{PREFIX}.sasl.oauthbearer.expected.audience": f"others,{AUDIENCE}",
        f"{PREFIX}.sasl.oauthbearer.expected.issuer": ISSUER,
    }
    return start_broker(f"oauth-{request.param}", settings, protocol="SASL_PLAINTEXT", jvm_flags=allowed(url))


def allowed(url: str) -> tuple[str, ...]:
    """Option of a JVM that lets Kafka read this URL."""
    return (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}",)


def settings_of_confluent(broker: BrokerProcess, token: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda config: (token, time.time() + 300),
        **more,
    }


@pytest.mark.client("confluent-kafka")
def test_confluent_with_a_signed_token(secured: BrokerProcess, provider: Provider, name: str) -> None:
    """Records go in and come out."""
    producer = confluent_kafka.Producer(settings_of_confluent(secured, provider.token(aud=["x", AUDIENCE])))
    producer.produce(name, b"value")
    assert producer.flush(TIMEOUT_S) == 0
    of_consumer = {"group.id": name, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings_of_confluent(secured, provider.token(), **of_consumer))
    consumer.subscribe([name])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.value() == b"value"
    consumer.close()


def refused_tokens(provider: Provider) -> dict[str, str]:
    """Tokens that no broker takes, by what is wrong with them."""
    now = int(time.time())
    head, claims, _ = provider.token().split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    return {
        "another issuer": provider.token(iss="https://other.example"),
        "no issuer": provider.token(iss=None),
        "another audience": provider.token(aud="strangers"),
        "no audience": provider.token(aud=None),
        "expired": provider.token(iat=now - 600, exp=now - 100),
        "no expiry": provider.token(exp=None),
        "no user": provider.token(sub=None),
        "not yet valid": provider.token(nbf=now + 200),
        "signed by another": provider.token(key=provider.other_key),
        "an unknown key": provider.token(key=provider.other_key, key_id="key-2"),
        "no signature": f"{none}.{claims}.",
        "a cut signature": f"{head}.{claims}.AAAA",
    }


KINDS = (
    *("another issuer", "no issuer", "another audience", "no audience", "expired", "no expiry", "no user"),
    *("not yet valid", "signed by another", "an unknown key", "no signature", "a cut signature"),
)


@pytest.mark.client("confluent-kafka")
def test_confluent_with_a_refused_token(secured: BrokerProcess, provider: Provider) -> None:
    """It is an error of authentication."""
    errors: list[confluent_kafka.KafkaError] = []
    token = provider.token(aud="strangers")
    client = AdminClient(settings_of_confluent(secured, token, error_cb=errors.append))
    deadline = time.monotonic() + TIMEOUT_S
    while not errors and time.monotonic() < deadline:
        client.poll(0.1)
    assert errors[0].code() == confluent_kafka.KafkaError._AUTHENTICATION


@pytest.mark.client("raw frames")
@pytest.mark.parametrize("kind", KINDS)
def test_refused_tokens(secured: BrokerProcess, provider: Provider, kind: str) -> None:
    """P-254: the answer is a JSON text and no error, and the client is not logged in."""
    with Connection(secured.bootstrap) as connection:
        assert answer_to(connection, refused_tokens(provider)[kind]) == b'{"status":"invalid_token"}'
        # An error, and the end of the connection.
        connection.exchange(METADATA_OF_NOTHING)
        with pytest.raises(ConnectionClosed):
            connection.exchange(METADATA_OF_NOTHING)


@pytest.mark.client("raw frames")
def test_tokens_within_the_clock_skew(secured: BrokerProcess, provider: Provider) -> None:
    """One that begins soon is taken, and so is one that is over; its session is over, too."""
    now = int(time.time())
    with Connection(secured.bootstrap) as connection:
        assert answer_to(connection, provider.token(nbf=now + 10)) == b""
        connection.exchange(METADATA_OF_NOTHING)
    with Connection(secured.bootstrap) as connection:
        assert answer_to(connection, provider.token(iat=now - 600, exp=now - 5)) == b""
        with pytest.raises(ConnectionClosed):
            connection.exchange(METADATA_OF_NOTHING)


def answer_to(connection: Connection, token: str) -> bytes:
    connection.exchange(handshake("OAUTHBEARER"))
    answer = Answer(connection.exchange(authenticate(f"n,,\x01auth=Bearer {token}\x01\x01".encode())))
    assert answer.error == 0
    return answer.token


def properties(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "client.properties"
    common = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER", "request.timeout.ms=20000")
    path.write_text("".join(f"{line}\n" for line in (*common, *lines)))
    return str(path)


@pytest.mark.client("Java tools")
@pytest.mark.parametrize("secured", ["url"], indirect=True)
def test_java_with_a_token_endpoint(
    secured: BrokerProcess, provider: Provider, java_libs: Path, tmp_path: Path, name: str
) -> None:
    """The client gets its token with its id and secret (client_credentials)."""
    url = f"{provider.url}/token"
    config = properties(
        tmp_path,
        f"sasl.oauthbearer.token.endpoint.url={url}",
        f"sasl.login.callback.handler.class={MODULES}.OAuthBearerLoginCallbackHandler",
        f"sasl.oauthbearer.client.credentials.client.id={CLIENT_ID}",
        f"sasl.oauthbearer.client.credentials.client.secret={CLIENT_SECRET}",
        "sasl.oauthbearer.scope=kafka",
        f"sasl.jaas.config={MODULES}.OAuthBearerLoginModule required;",
    )
    tools = JavaTools(java_libs, secured.bootstrap, allowed(url))
    tools.check(TOPICS, "--command-config", config, "--create", "--topic", name)
    assert {"grant_type": "client_credentials", "scope": "kafka", "client": CLIENT_ID} in provider.requests


@pytest.mark.client("Java tools")
@pytest.mark.parametrize("secured", ["url"], indirect=True)
def test_java_with_a_token_in_a_file(
    secured: BrokerProcess, provider: Provider, java_libs: Path, tmp_path: Path, name: str
) -> None:
    """FileJwtRetriever; with a token for others the broker's JSON is in the error text."""
    path = tmp_path / "token"
    config = properties(
        tmp_path,
        f"sasl.oauthbearer.jwt.retriever.class={MODULES}.FileJwtRetriever",
        f"sasl.oauthbearer.token.endpoint.url={path.as_uri()}",
        f"sasl.login.callback.handler.class={MODULES}.OAuthBearerLoginCallbackHandler",
        f"sasl.jaas.config={MODULES}.OAuthBearerLoginModule required;",
    )
    tools = JavaTools(java_libs, secured.bootstrap, allowed(path.as_uri()))
    path.write_text(provider.token())
    tools.check(TOPICS, "--command-config", config, "--create", "--topic", name)
    path.write_text(provider.token(aud="strangers"))
    refused = tools.run(TOPICS, "--command-config", config, "--list")
    assert '{"status":"invalid_token"}' in refused.stdout + refused.stderr
