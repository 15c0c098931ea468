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


NAMES = """
import sys, types
{first}
import trio, trio.abc, trio.from_thread, trio.lowlevel, trio.socket, trio.to_thread
for package in (trio, trio.abc, trio.from_thread, trio.lowlevel, trio.socket, trio.to_thread):
    for name in {names}[package.__name__]:
        value = getattr(package, name)
        of_value = [getattr(value, attribute, "") for attribute in ("__module__", "__qualname__")]
        print(package.__name__, name, type(value).__name__, *of_value)
"""


def test_trio_offers_all_names() -> None:
    """With late parts, every name of trio is there, and is the same thing as after an ordinary import."""
    names = run("""
        import trio, trio.abc, trio.from_thread, trio.lowlevel, trio.socket, trio.to_thread
        packages = (trio, trio.abc, trio.from_thread, trio.lowlevel, trio.socket, trio.to_thread)
        print({p.__name__: [n for n in vars(p) if not n.startswith("_")] for p in packages})
    """)
    lean = "from pykbroker.node.lean_trio import import_trio; import_trio()"
    ordinary = run(NAMES.format(first="", names=names))
    assert len(ordinary.split("\n")) > 150
    assert run(NAMES.format(first=lean, names=names)) == ordinary


def test_late_parts_come_at_their_first_use() -> None:
    printed = run("""
        import sys
        from pykbroker.node.lean_trio import import_trio
        from pykbroker.node.late_parts import LATE
        import_trio()
        print([name for name in LATE if name in sys.modules])
        import trio

        async def main():
            sender, receiver = trio.open_memory_channel(1)
            await sender.send(1)
            done = await trio.run_process([sys.executable, "-c", "print(2)"], capture_stdout=True)
            print(await receiver.receive(), done.stdout.decode().strip(), await trio.Path("/").is_dir())
            async with await trio.open_file(trio.__file__) as file:
                print(len(await file.readline()) > 0, type(trio.Path("x")).__module__)
            print(issubclass(trio.SSLStream, trio.abc.Stream), isinstance(trio.lowlevel.open_process, object))

        trio.run(main)
        try:
            trio.no_such_name
        except AttributeError as error:
            print(error)
    """)
    assert printed.split("\n") == [
        "[]",
        "1 2 True",
        "True trio",
        "True True",
        "module 'trio' has no attribute 'no_such_name'",
    ]
