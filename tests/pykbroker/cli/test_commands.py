"""The tree of commands, and the modules that each loads."""

from __future__ import annotations

import gc
import importlib.machinery
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import click
import kafka
import pytest

import pykbroker
from pykbroker.cli import compilation, main
from pykbroker.cli.commands import pykbroker_command
from pykbroker.cli.start import node_process
from tests.pykbroker.cli.conftest import Run


def test_overview(run: Run) -> None:
    code, output, _ = run("--help")
    assert code == 0
    for name in (
        *("start", "format", "ready", "cluster", "topic", "produce", "consume", "group", "transaction", "config"),
        *("acl", "completion", "dump-log"),
    ):
        assert f"  {name} " in output


@pytest.mark.parametrize(
    ("suffix", "words"),
    [(".cpython-311-x86_64-linux-gnu.so", "^compiled$"), (".py", "^interpreted: .*PYKBROKER_COMPILE=1")],
)
def test_the_version_says_whether_the_hot_loop_was_compiled(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, suffix: str, words: str
) -> None:
    """pip says nothing when it was not. The same words are in the log of `start`, at level DEBUG."""
    spec = importlib.machinery.ModuleSpec(compilation.MODULE, None, origin=f"/somewhere/record_scan{suffix}")
    monkeypatch.setattr(compilation, "find_spec", {compilation.MODULE: spec}.get)
    code, output, errors = run("--version")
    first, second = output.splitlines()
    assert (code, first, errors) == (0, f"pykbroker {pykbroker.__version__}", "")
    assert re.search(words, second)
    node_process._log_compilation()
    assert caplog.messages == []
    with caplog.at_level("DEBUG"):
        node_process._log_compilation()
    assert [message.removeprefix("this installation of pykbroker is ") for message in caplog.messages] == [second]


def test_this_installation_is_one_or_the_other() -> None:
    module = importlib.import_module(compilation.MODULE)
    assert compilation.is_compiled() == (not str(module.__file__).endswith(".py"))


def test_no_words_is_wrong_usage_and_shows_the_overview(run: Run) -> None:
    code, _, errors = run()
    assert code == 2
    assert "Commands:" in errors


def test_wrong_usage(run: Run) -> None:
    code, output, errors = run("nothing")
    assert (code, output) == (2, "")
    assert "No such command 'nothing'" in errors
    assert run("topic", "create")[0] == 2
    code, _, errors = run("start", "--bogus")
    assert code == 2
    assert "Traceback" not in errors


def modules_after(statement: str) -> set[str]:
    """Names of the modules that a fresh interpreter has loaded after a statement."""
    script = f"import sys\n{statement}\nprint('MODULES', *sys.modules)"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    return set(output.rpartition("MODULES ")[2].split())


def test_importing_the_package_loads_nothing_else() -> None:
    loaded = modules_after("import pykbroker")
    assert not {"trio", "subprocess", "kafka", "click", "rich", "tempfile"} & loaded
    assert {name for name in loaded if name.startswith("pykbroker.")} == {"pykbroker.version"}


def test_start_loads_neither_click_nor_rich_nor_a_client_library() -> None:
    parse = (
        "from pykbroker.cli import main\nmain(['start', '--help'])\n"
        "import pykbroker.cli.start.config, pykbroker.config.broker_config"
    )
    loaded = modules_after(parse)
    assert not {"click", "rich", "kafka", "argparse", "json", "asyncio"} & loaded
    assert {name for name in loaded if name.startswith("pykbroker.cli.")} == {
        "pykbroker.cli.errors",
        "pykbroker.cli.start.node_process",
        "pykbroker.cli.start.port_file",
        "pykbroker.cli.start",
        "pykbroker.cli.start.run",
        "pykbroker.cli.start.config",
        "pykbroker.cli.start.options",
    }


def test_the_other_commands_load_client_library_and_tables_when_they_run() -> None:
    walk = (
        "import click\nfrom pykbroker.cli.commands import pykbroker_command as top\ncontext = click.Context(top)\n"
        "for name in top.list_commands(context): top.get_command(context, name)"
    )
    loaded = modules_after(walk)
    assert "pykbroker.cli.client.transactions" in loaded
    assert not {"kafka", "rich"} & loaded


@pytest.mark.parametrize("words", [("topic", "list"), ("consume", "t"), ("produce", "t")])
@pytest.mark.parametrize(
    ("missing", "version", "expected"),
    [
        ("kafka", "3.0.12", "needs a client library, which is not installed: pip install 'pykbroker[cli]'"),
        ("rich", "3.0.12", "needs rich, which is not installed: pip install 'pykbroker[cli]'"),
        (None, "2.3.3", "needs kafka-python 3, and 2.3.3 is installed"),
    ],
)
def test_a_client_command_without_its_packages_says_what_to_install(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    missing: str | None,
    version: str,
    expected: str,
) -> None:
    monkeypatch.setattr(kafka, "__version__", version)
    if missing is not None:
        monkeypatch.setitem(sys.modules, missing, None)
    code, output, errors = run(*words)
    assert (code, output) == (1, "")
    assert expected in errors
    assert errors.count("\n") == 1, "one line"


def test_help_needs_no_client_library(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kafka", None)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert run("topic", "create", "--help")[0] == 0
    assert run("--version")[0] == 0


def test_local_broker_is_found_on_the_package() -> None:
    assert pykbroker.LocalBroker.__name__ == "LocalBroker"
    assert "LocalBroker" in dir(pykbroker)
    with pytest.raises(AttributeError):
        pykbroker.nothing  # noqa: B018  the access is the test


def test_an_interrupted_command_has_the_code_of_shells(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pykbroker.cli.client.cluster.Cluster", interrupt)
    assert run("topic", "list")[0] == 130


def test_a_command_that_does_not_exist() -> None:
    assert pykbroker_command.get_command(click.Context(pykbroker_command), "nothing") is None


def test_a_reader_that_has_gone_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pykbroker --help | head -0` prints no traceback and no text, and has the exit code of success."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as output:
        monkeypatch.setattr("sys.stdout", output)
        assert main(["--help"]) == 0
        # What is left in the buffer goes to /dev/null, so that the interpreter's last flush does not fail.
        output.write("more")
        output.flush()


def test_another_end_of_a_command_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: object, **__: object) -> None:
        raise SystemExit(5)

    monkeypatch.setattr("pykbroker.cli.client.cluster.Cluster", leave)
    with pytest.raises(SystemExit) as ended:
        main(["topic", "list"])
    assert ended.value.code == 5


def test_the_module_is_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["pykbroker", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(Path(pykbroker.__file__).with_name("__main__.py")), run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"pykbroker {pykbroker.__version__}\n")


def test_a_broker_of_the_command_line_prepares_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts itself again with settings of the allocator, and imports quickly; a call from Python does neither."""
    restarts: list[str] = []
    monkeypatch.setattr("pykbroker.node.process_memory.restart_for_brokers", lambda: restarts.append("now"))
    monkeypatch.setattr("pykbroker.node.bytecode_finder.import_from_bytecode", lambda: restarts.append("imports"))
    monkeypatch.setattr("sys.argv", ["pykbroker", "start", "--nope"])
    assert main() == 2
    assert restarts == ["now", "imports"]
    assert main(["start", "--nope"]) == 2
    assert restarts == ["now", "imports"]


def test_garbage_is_collected_again_after_a_start_that_ends(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--nope"], ["--help"], ["--config", "/nonexistent/file"]):
        main(["start", *words])
        assert gc.isenabled()


def test_start_behind_the_end_of_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--", "start", "--nope"]) == 2
    assert "--nope" in capsys.readouterr().err


def test_a_prepared_process_runs_the_same_command(capsys: pytest.CaptureFixture[str]) -> None:
    from pykbroker.cli.fork_server import _run_broker

    assert _run_broker(["--nope"], print) == 2
    assert "--nope" in capsys.readouterr().err
