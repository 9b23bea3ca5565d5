"""`hipq`: the command line. Exit 0 good, 1 the work failed, 2 bad usage or bad input, said in one sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from hipq import __version__
from hipq.cli.answer import answer
from hipq.cli.answers import answers
from hipq.cli.bench import bench
from hipq.cli.complain import complain
from hipq.cli.demo import demo
from hipq.cli.enqueue import enqueue
from hipq.cli.job import job
from hipq.cli.migrate import migrate
from hipq.cli.prune import prune
from hipq.cli.queue import queue
from hipq.cli.worker import worker
from hipq.errors import HipqError, Invalid


@click.group(no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hipq")
def cli() -> None:
    """A durable job queue for work whose answer comes back later.

    MODULE:APP is where your Hipq object is, as in shop:app; $HIPQ_APP stands in when it is left out.
    """


for command in (answer, answers, bench, demo, enqueue, job, migrate, prune, queue, worker):
    cli.add_command(command)


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; its exit status."""
    try:
        status = cli.main(list(arguments), "hipq", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.UsageError as error:
        where = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        return complain(error.format_message().rstrip("."), 2, where)
    except click.ClickException as error:
        return complain(error.format_message(), 2)
    except Invalid as error:
        return complain(str(error), 2)
    except HipqError as error:
        return complain(str(error), 1)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:  # the reader of our output has gone; nothing more can be said there, at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    main()
