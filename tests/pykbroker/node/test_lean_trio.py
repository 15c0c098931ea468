"""Import of trio with stand-ins for what a plain broker does not use; each test has an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest


def run(program: str) -> str:
    """Output of a program, which must succeed."""
    done = subprocess.run([sys.executable, "-c", dedent(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_plain_broker_loads_no_ssl() -> None:
    loaded = run("""
        import sys
        from pykbroker.node.lean_trio import STOOD_IN_FOR, import_trio
        import_trio()
        import pykbroker.node.broker
        print([name for name in STOOD_IN_FOR if name in sys.modules])
    """)
    assert loaded == "[]"


@pytest.mark.skipif(sys.platform != "linux", reason="the names of threads are read from /proc")
@pytest.mark.parametrize("first", ["", "import ssl, hashlib, hmac, idna, ctypes.util", "import trio"])
def test_trio_and_all_others_have_the_real_modules(first: str) -> None:
    """Encryption, names of threads and international host names work, and nobody else sees a stand-in."""
    printed = run(f"""
        import sys, threading
        {first}
        from pykbroker.node.lean_trio import StandIn, import_trio
        import_trio()
        assert not any(isinstance(module, StandIn) for module in list(sys.modules.values()))
        import ctypes.util, hashlib, hmac, idna, socket, ssl, trio, trio.testing
        assert hmac.digest(b"k", b"m", "sha256") and hashlib.sha256(b"").digest()
        assert ctypes.util.find_library("c")
        import attr._compat, inspect, platform, subprocess, trio._subprocess
        assert attr._compat.inspect.signature is inspect.signature
        assert attr._compat.platform.python_implementation is platform.python_implementation
        assert trio._subprocess.subprocess.Popen is subprocess.Popen

        async def main():
            near, far = trio.testing.memory_stream_pair()
            await far.send_all(b"this is no TLS " * 10)
            try:
                await trio.SSLStream(near, ssl.create_default_context(), server_hostname="h").do_handshake()
            except trio.BrokenResourceError as error:
                print(type(error.__cause__) is ssl.SSLError or isinstance(error.__cause__, ssl.SSLError))
            try:
                await trio.socket.getaddrinfo("b\\u00fccher", 1, flags=socket.AI_NUMERICHOST)
            except socket.gaierror:
                print("looked up")
            done = trio.Event()
            token = trio.lowlevel.current_trio_token()
            trio.lowlevel.start_thread_soon(
                lambda: open(f"/proc/self/task/{{threading.get_native_id()}}/comm").read().strip(),
                lambda outcome: (print(outcome.unwrap()), token.run_sync_soon(done.set)),
                name="counter",
            )
            await done.wait()

        trio.run(main)
    """)
    assert printed.split("\n") == ["True", "looked up", "counter"]
