"""Sends the frames of a finding again, and prints what the broker answers and logs."""

from __future__ import annotations

import re
import socket
import struct
from contextlib import suppress
from pathlib import Path

from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tests.fuzz import sasl
from tests.fuzz.sasl import Login, Refused, Step, authenticate
from tests.fuzz.target import Target
from tests.fuzz.tls import HANDSHAKE, Session, play
from tests.fuzz.world import World

ON_SASL = "# on one connection to the listener with SASL"
ON_TLS = "# on one connection to the listener with TLS"
"""Lines of findings whose steps belong to one connection."""

HEADER = struct.Struct(">hhih")


def read_finding(path: Path) -> tuple[str, list[Step]]:
    """`ON_SASL`, `ON_TLS` or an empty text, and the steps: frames, and as texts logins or those of `tls.play`."""
    lines = path.read_text().splitlines()
    if ON_TLS in lines:
        return ON_TLS, [line for line in lines if line and not line.startswith("#")]
    steps: list[Step] = [
        line.removeprefix("login ") if line.startswith("login ") else bytes.fromhex(line)
        for line in lines
        if line and not line.startswith("#")
    ]
    return ON_SASL if ON_SASL in lines else "", steps


def replay(path: Path) -> int:
    """Replays a finding; 0 if the broker is still there after it."""
    place, steps = read_finding(path)
    target = Target(tls=place == ON_TLS, sasl=sasl.SETTINGS if place == ON_SASL else None)
    try:
        target.prepare(World())
        if place == ON_TLS:
            _replay_tls(target, [step for step in steps if isinstance(step, str)])
        elif place == ON_SASL:
            target.make_users(sasl.USERS)
            _replay_connection(target, steps)
        else:
            for step in steps:
                assert isinstance(step, bytes)
                _replay_frame(target, step)
        print("\n".join(target.new_log_lines()))
        return 0 if target.is_alive else 1
    finally:
        target.stop()
        target.remove()


def _replay_frame(target: Target, frame: bytes) -> None:
    """Sends a frame on a connection of its own."""
    began = target.cpu_s()
    with socket.create_connection(target.address, timeout=2) as connection:
        connection.sendall(len(frame).to_bytes(4, "big") + frame)
        try:
            answer = connection.recv(1 << 16)
        except OSError as error:
            answer = str(error).encode()
    used_ms = (target.cpu_s() - began) * 1000
    print(f"{frame[:40].hex()}: {answer[:60].hex() or 'closed'} ({used_ms:.0f} ms)")


def _replay_tls(target: Target, steps: list[str]) -> None:
    """Does the steps on one connection with TLS."""
    session = Session(target.tls_address, target.tls_context())
    with session.socket:
        try:
            play(session, steps)
            answer = (session.read() if HANDSHAKE in steps else session.socket.recv(1 << 16))[:60].hex() or "closed"
        except OSError as error:
            answer = str(error)
    for step in steps:
        print(step[:100])
    print(f"the broker: {answer}")


def _replay_connection(target: Target, steps: list[Step]) -> None:
    """Sends frames one after another on one connection, and logs in where it was logged in."""
    login = Login(target.sasl_address)
    nonce = b""
    try:
        for step in steps:
            try:
                if isinstance(step, str):
                    login.log_in(step)
                    print(f"login {step}: done")
                    continue
                answer = login.exchange(_with_nonce(step, nonce))
            except (Refused, OSError) as error:
                print(f"{step if isinstance(step, str) else step[:40].hex()}: {error}")
                return
            nonce = _nonce_in(answer) or nonce
            print(f"{step[:40].hex()}: {answer[:60].hex()}")
        with suppress(OSError):
            print("the client is served" if login.is_served() else "the client is not served")
    finally:
        login.close()


def _with_nonce(frame: bytes, nonce: bytes) -> bytes:
    """A final message of SCRAM with the nonce of this broker, others as they are."""
    if not nonce or len(frame) < HEADER.size:
        return frame
    key, version, _, client_id_size = HEADER.unpack_from(frame)
    if (key, version) != (ApiKey.SASL_AUTHENTICATE, 1):
        return frame
    try:
        token = bytes(decode(SaslAuthenticateRequest, 1, frame[HEADER.size + max(client_id_size, 0) :]).auth_bytes)
    except ProtocolError:
        return frame
    if not token.startswith(b"c="):
        return frame
    return authenticate(re.sub(rb"r=[^,]*", lambda found: b"r=" + nonce, token, count=1))


def _nonce_in(answer: bytes) -> bytes | None:
    """The nonce of a server's first message of SCRAM."""
    try:
        token = bytes(decode(SaslAuthenticateResponse, 1, answer[4:]).auth_bytes)
    except ProtocolError:
        return None
    found = re.match(rb"r=([^,]*),s=", token)
    return None if found is None else found[1]
