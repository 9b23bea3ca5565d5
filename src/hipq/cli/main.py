"""`hipq`: the command line. Exit 0 good, 1 the work failed, 2 bad usage or bad input, said in one sentence."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import click
from click.shell_completion import add_completion_class

from hipq import __version__
from hipq.cli.commands import LateCommands, group
from hipq.cli.complain import advised, complain, give_up, open_closed_ones, show_trace
from hipq.cli.complete import complete_names
from hipq.cli.completion import Bash
from hipq.cli.configured import defaults
from hipq.errors import HipqError, Invalid
from hipq.stores.password import without_password

_HELP = ["-h", "--help"]
_COMMANDS = LateCommands(
    {name: (f"hipq.cli.{name}", name) for name in (
        "answers", "audit", "bench", "completion", "config", "cron", "dashboard", "demo", "dev", "doctor", "enqueue",
        "handler", "job", "journal", "listen", "migrate", "prune", "queue", "restored", "secret", "serve", "shards",
        "signing", "tenant", "token", "top", "waiter", "worker",
    )} | {
        "answer": ("hipq.cli.answers", "answer"),
        "callbacks": ("hipq.cli.callbacks", "serve_callbacks"),
        "move": ("hipq.cli.move", "move_jobs"),
    },
    complete_names,
)  # fmt: skip


@group(
    "hipq",
    "hipq demo",
    "hipq worker shop:app --queues orders --concurrency 20",
    "hipq job list shop:app --state running",
    commands=_COMMANDS,
    context_settings={"help_option_names": _HELP},
)
@click.version_option(__version__, prog_name="hipq")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A durable job queue for work whose answer comes back later.

    MODULE:APP is where your Hipq object is, as in shop:app. Left out, it is $HIPQ_APP, or `app` in hipq.toml. With
    --db URL most commands need none of your code; left out, that is $HIPQ_DATABASE_URL, or `database` in hipq.toml.
    """
    try:
        ctx.default_map = defaults(ctx.invoked_subcommand, _COMMANDS)
    except Invalid:
        if not set(_HELP) & set(ctx.obj or ()):  # who asks for help gets it
            raise


add_completion_class(Bash)


def main() -> None:
    open_closed_ones()
    status = run(sys.argv[1:])
    give_up(sys.stderr)
    sys.exit(status)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; its exit status."""

    def complaint(text: str, status: int, more: str = "") -> int:
        return complain(_hidden(text, arguments), status, more)

    try:
        status = cli.main(list(arguments) or ["--help"], "hipq", standalone_mode=False, obj=tuple(arguments))
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.UsageError as error:
        where = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        return complaint(error.format_message().rstrip("."), 2, where)
    except click.ClickException as error:
        return complaint(error.format_message(), 2)
    except Invalid as error:
        show_trace(error)
        return complaint(str(error), 2)
    except HipqError as error:
        return complaint(advised(str(error)), 1)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:  # the reader of our output has gone, which is nothing to complain of
        give_up(sys.stdout)
        return 1
    except OSError as error:
        give_up(sys.stdout)
        return complain(_said(error), 1)


def _hidden(text: str, arguments: Sequence[str]) -> str:
    """What is said of a command line, without the password of a database in one of its words: a message may quote the
    word that is wrong, or its beginning."""
    for word in arguments:
        hidden = without_password(word)
        for quoted in (word, repr(word)[1:-1]) if hidden != word else ():
            begins = quoted[: _alike(quoted, hidden) + 1]
            before, found, after = text.partition(begins)
            if found:
                rest = quoted.removeprefix(begins)
                text = before + hidden + after[_alike(rest, after) :]
    return text


def _alike(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _said(error: OSError) -> str:
    """What a file, standard output or the current folder is up to, or the operating system."""
    try:
        os.getcwd()
    except OSError:
        return "the current folder is not there any more: go to another one"
    if error.filename is not None:
        return f"{error.strerror}: {error.filename}"
    said = str(error.strerror or error)
    return f"cannot write to standard output: {said}" if _is_output(error) else f"a system call failed: {said}"


def _is_output(error: OSError) -> bool:
    """An error of opening a file names it; and all that commands write themselves goes to standard output."""
    frames = list(traceback.walk_tb(error.__traceback__))
    raised_in = str(frames[-1][0].f_globals.get("__name__")) if frames else ""
    return raised_in == "__main__" or raised_in.startswith(("click.", "hipq.cli."))


if __name__ == "__main__":
    main()
