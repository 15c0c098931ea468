"""Rules about the text of the code that no linter knows."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = ("protocol", "logstore", "controller", "pykbroker")
BESIDE_CODE = ("benchmarks", "examples", "interop_tests", "spark_jobs", "tests", "tools")
PURE = ("protocol", "controller/raft", "controller/metadata")

# Modules whose import is the business of one kind of file alone.
CLOCKS_AND_CHANCE = {"time", "random", "datetime", "secrets"}
FORBIDDEN_IN_PURE = CLOCKS_AND_CHANCE | {
    "trio",
    "socket",
    "os",
    "select",
    "subprocess",
    "logging",
    "asyncio",
}
FORBIDDEN_IN_LOGSTORE = CLOCKS_AND_CHANCE | {"trio", "socket", "select", "threading", "subprocess", "asyncio"}
FORBIDDEN_CALLS = {"print", "input", "breakpoint", "eval", "exec"}
CALLS_ALLOWED = {
    "pykbroker/cli": {"print"},
    # One constructor per number of fields.
    "pykbroker/named_tuple.py": {"eval"},
    # The codec and the constructors of messages are compiled from their declarations.
    "protocol/codec.py": {"exec"},
    "protocol/fields.py": {"exec"},
}


@cache
def python_files() -> tuple[Path, ...]:
    return tuple(
        path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py")) if "__pycache__" not in path.parts
    )


def python_files_beside() -> Iterator[Path]:
    """Python files of tests, tools and the demo, and those in the root directory."""
    for folder in BESIDE_CODE:
        yield from (path for path in sorted((ROOT / folder).rglob("*.py")) if "__pycache__" not in path.parts)
    yield from sorted(ROOT.glob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.lineno, node.module.partition(".")[0]


def forbidden_imports(folders: tuple[str, ...], forbidden: set[str]) -> list[str]:
    return [
        f"{name_of(path)}:{line} imports {module}"
        for path in python_files()
        if name_of(path).startswith(tuple(f"{folder}/" for folder in folders))
        for line, module in imports_of(path)
        if module in forbidden
    ]


def test_the_core_is_pure() -> None:
    assert forbidden_imports(PURE, FORBIDDEN_IN_PURE) == []


def test_the_log_store_is_synchronous_and_gets_the_time_as_an_argument() -> None:
    assert forbidden_imports(("logstore",), FORBIDDEN_IN_LOGSTORE) == []


def test_the_states_of_groups_and_transactions_are_pure() -> None:
    shells = {
        "pykbroker/groups/administration.py",
        "pykbroker/groups/coordinator.py",
        "pykbroker/groups/large_writes.py",
        "pykbroker/groups/consumer/requests.py",
        "pykbroker/groups/share/requests.py",
        "pykbroker/groups/streams/requests.py",
        "pykbroker/transactions/administration.py",
        "pykbroker/transactions/completion.py",
        "pykbroker/transactions/remote_verification.py",
    }
    found = forbidden_imports(("pykbroker/groups", "pykbroker/transactions"), {"trio", "time", "random", "socket"})
    assert [line for line in found if line.partition(":")[0] not in shells] == []


def test_calls_that_do_not_belong_into_a_library() -> None:
    found = []
    for path in python_files():
        name = name_of(path)
        allowed = {call for prefix, calls in CALLS_ALLOWED.items() if name.startswith(prefix) for call in calls}
        found += [
            f"{name}:{node.lineno} calls {node.func.id}"
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in FORBIDDEN_CALLS - allowed
        ]
    assert found == []


def test_every_module_says_what_it_is_for() -> None:
    empty = [
        name_of(path) for path in python_files() if path.name != "__init__.py" and not ast.get_docstring(tree_of(path))
    ]
    assert empty == []


def test_a_package_names_modules_that_exist() -> None:
    packages = [path for path in python_files() if path.name == "__init__.py"]
    gone = [
        f"{name_of(path)}: {named}"
        for path in packages
        for named in re.findall(r"\b[a-z0-9_]+\.py\b", ast.get_docstring(tree_of(path)) or "")
        if not (path.parent / named).exists()
    ]
    assert gone == []


def test_docstrings_say_what_a_thing_is() -> None:
    """ "Log settings of a topic", and not "What the logs of a topic obey", which the reader has to turn round."""
    question = re.compile(r'^\s*r?"""(Who|Whose|Whom|What|Whether|Where|Which|How|When|Why)\b', re.MULTILINE)
    code = ((name_of(path), path.read_text(encoding="utf-8")) for path in [*python_files(), *python_files_beside()])
    found = [f"{name}: {match.group().strip()}" for name, text in code for match in question.finditer(text)]
    assert found == []


def test_docstrings_of_functions_say_what_they_do() -> None:
    """Returns, not Return, as in most of the code. The texts of click's commands are help for users."""
    orders = (
        "Add|Append|Ask|Begin|Call|Check|Close|Create|Decode|Delete|Drop|Encode|End|Find|Fork|Give|Load|Make|Move|Note|"
        "Parse|Print|Raise|Read|Release|Remove|Rename|Replace|Return|Run|Scan|Send|Show|Start|Stop|Take|Turn|Update|"
        "Wait|Write"
    )
    order = re.compile(rf"({orders}) (a|all|an|and|at|each|every|for|from|it|its|one|that|the|this|to|until|up)\b")
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in python_files()
        for node in ast.walk(tree_of(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and order.match(ast.get_docstring(node) or "")
        and not any(re.search(r"command\(|group\(", ast.unparse(each)) for each in node.decorator_list)
    ]
    assert found == []


def test_annotations_are_never_evaluated() -> None:
    missing = [
        name_of(path)
        for path in python_files()
        if tree_of(path).body and not any(name == "__future__" for _, name in imports_of(path))
    ]
    assert [name for name in missing if has_code(ROOT / name)] == []


def has_code(path: Path) -> bool:
    return any(not isinstance(node, ast.Expr) for node in tree_of(path).body)


@cache
def tracked_text_files() -> tuple[Path, ...]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return tuple(path for path in paths if path.is_file() and not path.is_symlink() and b"\0" not in path.read_bytes())


# Spelled in parts, so that this file does not find itself.
MACHINE_PATHS = re.compile(
    "|".join(["/wo" + "rk/", "/ro" + "ot/", "/ho" + r"me/(?!you\b)\w", "/Use" + r"rs/\w", "/tmp/or" + "acle"])
)
LEFTOVERS = re.compile(r"\b(TO" + "DO|FIX" + r"ME|X" + r"XX)\b")


def found_in_text(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name_of(path)}:{number}: {line.strip()[:100]}"
        for path in tracked_text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_paths_of_somebodys_machine() -> None:
    assert found_in_text(MACHINE_PATHS) == []


def test_nothing_is_left_for_later() -> None:
    assert found_in_text(LEFTOVERS) == []


def test_lines_without_a_test_have_their_reason() -> None:
    """Those that `make coverage` leaves out, see CONTRIBUTING.md."""
    without = [
        f"{name_of(path)}:{number}"
        for path in python_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "pragma: no cover" in line and not re.search(r"# pragma: no cover(?: of this file)?: \w", line)
    ]
    assert not without


def test_dependencies_come_from_the_usual_places() -> None:
    files = [path for path in tracked_text_files() if path.suffix in (".toml", ".txt", ".xml", ".cfg", ".sh", "")]
    hosts = {
        (name_of(path), host)
        for path in files
        for host in re.findall(r"https?://([\w.-]+)", path.read_text(encoding="utf-8"))
    }
    known = ("apache.org", "maven.org", "python.org", "pypi.org", "github.com", "localhost", "127.0.0.1")
    assert {(name, host) for name, host in hosts if not host.endswith(known)} == set()


def test_named_tuples_are_made_in_the_cheap_way() -> None:
    """Those of typing cost a broker 15 ms at its start (pykbroker/named_tuple.py)."""
    found = [
        name_of(path)
        for path in python_files()
        # The plugin of pytest imports nothing of ours in a suite that does not use it.
        if name_of(path) not in {"pykbroker/named_tuple.py", "pykbroker/testing/pytest_plugin.py"}
        and any(
            isinstance(node, ast.ImportFrom)
            and node.module == "typing"
            and "NamedTuple" in [alias.name for alias in node.names]
            for node in ast.walk(tree_of(path))
        )
    ]
    assert found == []


def test_tests_that_need_apache_kafkas_jars_are_marked() -> None:
    """Without the mark a test is skipped in the unit tests for want of jars, and not selected where they are."""
    needing = ("java_programs import ask", "import kafka_libs", "apache_kafka import apache_kafka")
    unmarked = [
        name_of(path)
        for path in python_files_beside()
        if path.name.startswith("test_")
        and any(line in (text := path.read_text()) for line in needing)
        and "mark.java" not in text
    ]
    assert unmarked == []
