"""Clients that mean no good at a listener with TLS: others are served meanwhile, and nothing stays behind."""

from __future__ import annotations

import random
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pykbroker.security.tls import development
from tests.fuzz.target import Target
from tests.fuzz.tls import API_VERSIONS, Session, TlsFuzz
from tests.hostile.conftest import LONG_S, memory_comes_back, running


@pytest.fixture(scope="module")
def secured() -> Iterator[Target]:
    """A broker with a plain listener and one with TLS, which has to outlive all tests without an error of its own."""
    yield from running(Target(tls=True))


@pytest.fixture
def asking() -> Iterator[Target]:
    """A broker that asks clients for certificates."""
    yield from running(Target({"ssl.client.auth": "requested"}, tls=True))


def is_served(target: Target) -> bool:
    """True if a client over TLS gets its answer."""
    session = Session(target.tls_address, target.tls_context(), LONG_S)
    session.shake_hands()
    session.socket.sendall(session.encrypted(API_VERSIONS))
    answer = session.read()
    session.socket.close()
    return answer[4:8] == API_VERSIONS[8:12]


def test_broken_handshakes_and_records(secured: Target) -> None:
    found: list[str] = []
    generator = random.Random(1)
    context = secured.tls_context()
    fuzz = TlsFuzz(secured.tls_address, context, generator, lambda kind, text, frames: found.append(text))
    fuzz.run(50)
    with memory_comes_back(secured):
        fuzz.run(400)
        assert secured.is_serving()
    assert not found
    assert is_served(secured)


def test_handshakes_that_stand_still(secured: Target) -> None:
    """Two hundred clients that say hello, or half of it, and nothing more."""
    with memory_comes_back(secured):
        sessions = []
        for number in range(200):
            session = Session(secured.tls_address, secured.tls_context(), LONG_S)
            hello = session.first_flight()
            session.socket.sendall(hello if number % 2 else hello[:100])
            sessions.append(session)
        assert secured.is_serving()
        assert is_served(secured)
        for session in sessions:
            session.socket.close()


def test_an_endless_handshake(secured: Target) -> None:
    """Records of a handshake message that never ends: the connection is closed long before memory is used."""
    before = secured.rss_bytes()
    with socket.create_connection(secured.tls_address, timeout=LONG_S) as connection:
        record = b"\x16\3\1\x40\0" + b"\1\xff\xff\xff" + bytes(0x3FFC)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            connection.sendall(record * 1000)
    assert secured.rss_bytes() - before < 5 << 20


def s_client(target: Target, *options: str) -> str:
    """Output of OpenSSL's client, which connects and leaves."""
    host, port = target.tls_address
    where = ["-connect", f"{host}:{port}", "-CAfile", str(target.folder / "tls-ca.pem")]
    command = ["openssl", "s_client", *where, *options]
    done = subprocess.run(command, input="", capture_output=True, text=True, check=False, timeout=LONG_S)
    return done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs OpenSSL's command line")
@pytest.mark.parametrize(
    "options",
    [
        ("-tls1", "-cipher", "ALL:@SECLEVEL=0"),
        ("-tls1_1", "-cipher", "ALL:@SECLEVEL=0"),
        ("-tls1_2", "-cipher", "aNULL:eNULL:@SECLEVEL=0"),
        ("-tls1_2", "-cipher", "aNULL:eNULL:@SECLEVEL=0", "-fallback_scsv"),
    ],
)
def test_downgrades(secured: Target, options: tuple[str, ...]) -> None:
    """Older versions, and suites without authentication or encryption, are refused by an alert."""
    text = s_client(secured, *options)
    assert "alert" in text.lower()
    assert "Cipher is (NONE)" in text
    assert is_served(secured)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs OpenSSL's command line")
def test_a_fallback_to_an_older_version(secured: Target) -> None:
    """A client of TLS 1.2 that says that it has fallen back is refused: the broker has TLS 1.3 (RFC 7507)."""
    assert "inappropriate fallback" in s_client(secured, "-tls1_2", "-fallback_scsv")
    assert is_served(secured)


@contextmanager
def shaken_hands(target: Target, version: str) -> Iterator[subprocess.Popen[bytes]]:
    """A client of OpenSSL's that takes commands, after its handshake."""
    host, port = target.tls_address
    where = ["-connect", f"{host}:{port}", version, "-CAfile", str(target.folder / "tls-ca.pem")]
    with subprocess.Popen(
        ["openssl", "s_client", *where],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
    ) as process:
        read_to(process, b"Verify return code")
        yield process


def read_to(process: subprocess.Popen[bytes], text: bytes) -> bytes:
    """Lines of a process up to one that has a text."""
    assert process.stdout is not None
    output = b""
    for line in process.stdout:
        output += line
        if text in line:
            return output
    raise AssertionError(f"the process ended without {text!r}: {output!r}")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs OpenSSL's command line")
def test_renegotiation(secured: Target) -> None:
    """A client of TLS 1.2 that begins another handshake gets none."""
    with shaken_hands(secured, "-tls1_2") as process:
        assert process.stdin is not None
        process.stdin.write(b"R\n")
        text, _ = process.communicate(timeout=LONG_S)
    assert b"RENEGOTIATING" in text
    assert b"no renegotiation" in text
    assert is_served(secured)


@pytest.mark.parametrize("names", [2_000, 20_000])
def test_certificates_that_are_too_large(asking: Target, tmp_path: Path, names: int) -> None:
    """A client's certificate of a hundred kilobytes or a megabyte is not read to its end."""
    path = tmp_path / "client.pem"
    path.write_text(development.issue("large", hosts=[f"{'x' * 50}-{number}.example" for number in range(names)]).pem)
    context = asking.tls_context()
    context.load_cert_chain(path)
    before = asking.rss_bytes()
    session = Session(asking.tls_address, context, LONG_S)
    answer = b""
    with suppress(OSError):
        # With TLS 1.3 the client's own handshake is complete before the broker has seen the certificate.
        session.shake_hands()
        session.socket.sendall(session.encrypted(API_VERSIONS))
        answer = session.read()
    session.socket.close()
    assert answer == b""
    assert asking.rss_bytes() - before < 5 << 20
    assert is_served(asking)
    assert any("too large" in line or "bytes in its TLS handshake" in line for line in asking.new_log_lines())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs OpenSSL's command line")
def test_updates_of_keys(secured: Target) -> None:
    """A client of TLS 1.3 that asks for new keys again and again is served, and so are others."""
    with shaken_hands(secured, "-tls1_3") as process:
        assert process.stdin is not None
        output = b""
        for _ in range(50):
            # Commands that arrive together would be one.
            process.stdin.write(b"K\n")
            output += read_to(process, b"KEYUPDATE")
        assert is_served(secured)
        output += process.communicate(timeout=LONG_S)[0]
    assert b"alert" not in output.lower()
