"""The components of the daemon's first design with the verbs it gave them: journal, store, state, scheduler, results
and runner.

Each is a view of what the daemon does anyway, for programs that were written for those verbs, and for schedulers and
runners that are tried out one by one. A jobtype is `tenant-jobtype` here, and ids are strings.
"""

from __future__ import annotations

from hipq.components.journal import Journal
from hipq.components.results import Result, Results
from hipq.components.runner import Runner
from hipq.components.scheduler import Scheduler
from hipq.components.state import State
from hipq.components.store import Store
from hipq.daemon.daemon import Daemon, Options

__all__ = ["Components", "Daemon", "Journal", "Options", "Result", "Results", "Runner", "Scheduler", "State", "Store"]


class Components:
    """The components of one daemon. If the daemon was started, its engine works beside them."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.journal = Journal(daemon)
        self.state = State(daemon)
        self.store = Store(daemon, self.state)
        self.scheduler = Scheduler(daemon.scheduler)
        self.results = Results(daemon)
        self.runner = Runner(daemon)
