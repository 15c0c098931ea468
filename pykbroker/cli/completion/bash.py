"""Completion in bash for words with colons and equals signs.

Bash splits `localhost:9092` into three words. Click's own script passes on bash's words, so an address with a port
would arrive as an address and two arguments. This one passes on the whole line, which is split as the shell splits it
to run the command. Bash replaces only the text after the last of those characters, so only that text is returned.
"""

from __future__ import annotations

import os

from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

_SCRIPT = """\
%(complete_func)s() {
    local response kind value
    response=$(env COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" %(complete_var)s=bash_complete "$1" 2>/dev/null)
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain)
                COMPREPLY+=("$value")
                # A setting is followed by its value at once.
                [[ $value == *= ]] && compopt -o nospace 2>/dev/null
                ;;
        esac
    done <<< "$response"
    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""
_WORD_BREAKS = ":=@"


class LineBashComplete(BashComplete):
    """Bash completion that splits the line itself."""

    source_template = _SCRIPT

    def get_completion_args(self) -> tuple[list[str], str]:
        """Returns the words before the one to complete, without the program, and that word."""
        line = os.environ.get("COMP_LINE")
        if line is None:
            return super().get_completion_args()
        line = line[: int(os.environ.get("COMP_POINT", len(line)))]
        words = split_arg_string(line)
        incomplete = words.pop() if words and not line[-1:].isspace() else ""
        self._replaced = max(map(incomplete.rfind, _WORD_BREAKS)) + 1
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem) -> str:
        """Returns a line for the script: the completion's type, and the text that replaces the end of the word."""
        return f"{item.type},{item.value[getattr(self, '_replaced', 0) :]}"


def register() -> None:
    """Makes click use this class for bash."""
    add_completion_class(LineBashComplete, "bash")
