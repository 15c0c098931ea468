"""The words of a line as bash passes them on, and the text that bash replaces."""

from __future__ import annotations

import pytest
from click.shell_completion import CompletionItem

from pykbroker.cli.commands import COMPLETE_VARIABLE, pykbroker_command
from pykbroker.cli.completion.bash import LineBashComplete


@pytest.mark.parametrize(
    ("line", "words", "incomplete", "value", "given"),
    [
        ("pykbroker consume -b h:9092 or", ["consume", "-b", "h:9092"], "or", "orders", "orders"),
        ("pykbroker consume ", ["consume"], "", "orders", "orders"),
        ("pykbroker acl list --principal User:al", ["acl", "list", "--principal"], "User:al", "User:alice", "alice"),
        ("pykbroker x --set=retention.", ["x"], "--set=retention.", "--set=retention.ms", "retention.ms"),
        ("pykbroker produce 'a b", ["produce"], "a b", "a b c", "a b c"),
    ],
)
def test_a_line(
    monkeypatch: pytest.MonkeyPatch, line: str, words: list[str], incomplete: str, value: str, given: str
) -> None:
    monkeypatch.setenv("COMP_LINE", line + " behind the cursor")
    monkeypatch.setenv("COMP_POINT", str(len(line)))
    complete = LineBashComplete(pykbroker_command, {}, "pykbroker", COMPLETE_VARIABLE)
    assert complete.get_completion_args() == (words, incomplete)
    assert complete.format_completion(CompletionItem(value)) == f"plain,{given}"


def test_words_from_clicks_own_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMP_LINE", raising=False)
    monkeypatch.setenv("COMP_WORDS", "pykbroker topic cr")
    monkeypatch.setenv("COMP_CWORD", "2")
    complete = LineBashComplete(pykbroker_command, {}, "pykbroker", COMPLETE_VARIABLE)
    assert complete.get_completion_args() == (["topic"], "cr")
    assert complete.format_completion(CompletionItem("create")) == "plain,create"
