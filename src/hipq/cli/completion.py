"""`hipq completion`: what a shell sources to complete hipq's commands, options and names."""

from __future__ import annotations

import os
import shlex

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    get_completion_class,
    split_arg_string,
)

from hipq.cli.commands import command

_BASH = """\
%(complete_func)s() {
    local reply
    COMPREPLY=()
    while IFS= read -r reply; do
        case "$reply" in
            file,*) compopt -o default ;;
            dir,*) compopt -o dirnames ;;
            plain,*) COMPREPLY+=("${reply#plain,}") ;;
        esac
    done < <(_HIPQ_LINE="${COMP_LINE:0:COMP_POINT}" %(complete_var)s=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """click's own takes the words as bash breaks them, and bash breaks shop:app and URLs at their colons. So this one
    takes the line."""

    source_template = _BASH

    @staticmethod
    def _check_version() -> None:
        """The script is printed for whoever sources it, which need not be the bash that is here."""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("_HIPQ_LINE", "")
        words = split_arg_string(line)[1:]
        return (words[:-1], words[-1]) if words and not line[-1:].isspace() else (words, "")

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{shlex.quote(item.value)}"  # phase "cancelling" is one word


@command(
    "completion",
    "hipq completion bash",
    "hipq completion fish > ~/.config/fish/completions/hipq.fish",
    short_help="Print a script for tab completion in your shell.",
    json=False,
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, and names of queues and job types in SHELL.

    \b
    bash (4.4 or later), in ~/.bashrc:
      eval "$(hipq completion bash)"
    zsh, in ~/.zshrc, after compinit:
      eval "$(hipq completion zsh)"
    fish, once:
      hipq completion fish > ~/.config/fish/completions/hipq.fish

    Names come from the application's source, which is read and not run, and from the database, if there is one.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "hipq", "_HIPQ_COMPLETE").source())
