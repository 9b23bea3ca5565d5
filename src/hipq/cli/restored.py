"""`hipq restored`: a database that was restored from a backup gives out no id again."""

from __future__ import annotations

from hipq.cli.audited import audited
from hipq.cli.commands import command, yes_option
from hipq.cli.inputs import number_option
from hipq.cli.progress import confirm
from hipq.cli.show import say
from hipq.cli.target import AppCommand, Target
from hipq.errors import Invalid


@command(
    "restored",
    "hipq restored shop:app",
    "hipq restored --db sqlite:///shop.db --yes",
    "hipq restored --db postgresql://ann@localhost/shop --margin 10000000 --yes --json",
    cls=AppCommand,
)
@number_option(
    "--margin",
    0,
    1_000_000_000,
    1_000_000,
    "How many ids of each queue are left out: more than were given out since the backup; 0 = none were.",
)
@yes_option
@audited
def restored(target: Target, margin: int) -> None:
    """Make a restored backup safe to use: run this once, before any program uses the database.

    Callers hold ids of jobs that were added after the backup was made. The counters in the backup would give these ids
    to other jobs: this moves them on. Jobs that ran when the backup was made run again.

    `hipq doctor` warns of a database that is a copy until this has run. If nothing was added after the copy was made,
    say so with --margin 0: that leaves out no id, and programs may go on.
    """
    if not target.apps:
        raise Invalid("no queue is registered in this database: there are no ids to leave out")
    if margin:
        confirm(f"Leave out the next {margin:,} ids of every queue?")
    store = target.apps[0].store
    if margin:
        from hipq.daemon.ids import skip

        skip(store)  # first: what comes next also notes that all is done
    store.restored(margin)
    queues = [f"{queue.app}.{queue.name}" for queue in store.queues()]
    text = f"left out {f'{margin:,}' if margin else 'no'} ids of {', '.join(queues)}"
    say({"margin": margin, "queues": queues}, text)
