"""`hipq restored`: a database that was restored from a backup gives out no id again."""

from __future__ import annotations

import click

from hipq.cli.commands import examples
from hipq.cli.inputs import Whole
from hipq.cli.progress import confirm, yes_option
from hipq.cli.show import print_json
from hipq.cli.target import AppCommand, app_argument, db_option, instances, json_option
from hipq.errors import Invalid


@click.command(
    cls=AppCommand,
    epilog=examples(
        "hipq restored shop:app",
        "hipq restored --db sqlite:///shop.db --yes",
        "hipq restored --db postgresql://ann@localhost/shop --margin 10000000 --yes --json",
    ),
)
@app_argument
@db_option
@click.option("--margin", type=Whole("margin", 0, 1_000_000_000), default=1_000_000, show_default=True,
              help="How many ids of each queue are left out: more than were given out since the backup; "
              "0 = none were.")  # fmt: skip
@yes_option
@json_option
def restored(app: str, db: str | None, margin: int, yes: bool, as_json: bool) -> None:
    """Run this once after a database was restored from a backup, before any program uses it.

    Callers hold ids of jobs that were added after the backup was made. The counters in the backup would give these ids
    to other jobs: this moves them on. Jobs that ran when the backup was made run again.

    `hipq doctor` warns of a database that is a copy until this has run. If nothing was added after the copy was made,
    say so with --margin 0: that leaves out no id, and programs may go on.
    """
    found = instances(app, db)
    if not found:
        raise Invalid("no queue is registered in this database: there are no ids to leave out")
    if margin:
        confirm(f"Leave out the next {margin:,} ids of every queue?", yes)
    store = found[0].store
    if margin:
        from hipq.daemon.ids import skip

        skip(store)  # first: what comes next also notes that all is done
    store.restored(margin)
    queues = [f"{queue.app}.{queue.name}" for queue in store.queues()]
    if as_json:
        print_json({"margin": margin, "queues": queues})
    else:
        click.echo(f"left out {f'{margin:,}' if margin else 'no'} ids of {', '.join(queues)}")
