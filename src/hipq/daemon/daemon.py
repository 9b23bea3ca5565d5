"""A daemon, put together: journal, store, engine, contexts. `hipq.daemon.http` speaks HTTP in front of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final, NoReturn

from msgspec.structs import replace

from hipq.app import Hipq
from hipq.daemon.accepted import Accepted
from hipq.daemon.bulk import Bulk
from hipq.daemon.crons import Crons
from hipq.daemon.handlers.keys import SecretKeys
from hipq.daemon.handlers.policies import Policies, check_environments
from hipq.daemon.handlers.secrets import TenantSecrets
from hipq.daemon.hidden_paths import hidden
from hipq.daemon.http.feed import Feed
from hipq.daemon.ids import journal_ids
from hipq.daemon.ingest import Ingest
from hipq.daemon.job_factory import ORDER, lane
from hipq.daemon.job_output import JobOutput
from hipq.daemon.joblog import JobLog
from hipq.daemon.jobs import Jobs
from hipq.daemon.joining import Joining
from hipq.daemon.options import APP, QUEUE
from hipq.daemon.options import Options as Options
from hipq.daemon.ready import Ready, ready
from hipq.daemon.sandbox_executor import SandboxExecutor
from hipq.daemon.scheduler import FairShare
from hipq.daemon.tenancy.backlog import Backlog, is_taken, soon
from hipq.daemon.tenancy.quotas import Chained
from hipq.daemon.tenancy.tenants import Tenants
from hipq.daemon.upkeep import Upkeep
from hipq.engine.lanes import Guarded, Scheduler
from hipq.engine.launch import Launcher
from hipq.engine.loop import Engine
from hipq.engine.queues import EngineQueue
from hipq.engine.setup import Setup
from hipq.errors import CannotRun, Invalid
from hipq.job.model import New
from hipq.job.states import READY
from hipq.journal import Journal
from hipq.sandbox import ContextPool, Handler, JobReport
from hipq.sandbox.bubblewrap import why_no_sandbox
from hipq.sandbox.parsing import wrong_with
from hipq.sandbox.trying import tried
from hipq.stores.protocols import Store
from hipq.stores.values import Stored

JOIN_SECONDS: Final = 0.05

_log = logging.getLogger("hipq")


class Daemon:
    def __init__(self, options: Options, scheduler: Scheduler | None = None) -> None:
        self._options = options
        with ExitStack() as opened:  # what is open when something cannot be, a journal that another daemon has
            self._open(options, scheduler, opened)
            opened.pop_all()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, name="hipq-engine", daemon=True),
            threading.Thread(target=self._tidy, name="hipq-tidy", daemon=True),
        ]
        self.failed = ""
        """Why it cannot go on, once it cannot."""

    def _open(self, options: Options, scheduler: Scheduler | None, opened: ExitStack) -> None:
        self.app = Hipq(APP, options.db)
        opened.callback(self.app.close)
        # Before anything is made:
        self._hides = hidden(options.contexts, self.app.url, options.journal, options.job_log, options.secrets_key_file)
        self.queue = self.app.queue(QUEUE)
        self.journal = Journal(options.journal, most_bytes=options.journal_bytes)
        opened.callback(self.journal.close)
        self._joining = Joining(self.app, self.queue, self.journal)
        self.tenants = self._joining.tenants
        check_environments(options.contexts.environments, () if options.contexts.trust else self._hides)
        keys = SecretKeys(options.secrets_key_file)
        keys.check()
        self.secrets = TenantSecrets(self.store, keys)
        self.policies = Policies(options)
        self.upkeep = Upkeep(self.app, self.queue, self.journal, self._joining, lambda: self._options.keep)
        self.handlers = self.upkeep.handlers
        own = FairShare(self._weight, self.warm)
        self.scheduler: FairShare | Guarded = Guarded(scheduler, self.warm) if scheduler else own
        self.upkeep.tell_findings()
        self._joining.join_or_recall()
        self._open_parts()
        self._log = JobLog(options.job_log, self.app.events) if options.job_log else None
        self.contexts = ContextPool(replace(options.contexts, hidden=self._hides))
        opened.callback(self.contexts.close)
        self.engine = self._made_engine()

    def _open_parts(self) -> None:
        """The ways of jobs in and out, once the store is there or known from before."""
        self.ids = ids = journal_ids(self.store, self.queue.number, self.journal.identity, self._joining.known)
        ids.reserve()
        self.accepted = Accepted(self.store, self.journal, ids)
        self.jobs = Jobs(self.app, self.queue, self.journal, ids, Feed(self.app.events), self._options.run_timeout)
        limited = partial(_limited, self.tenants, "waiting", "bytes")
        self.backlog = Backlog(lambda: self.jobs.waiting(limited()), is_taken=lambda: is_taken(self.journal))
        self.ended = Backlog(
            lambda: self.jobs.ended(_limited(self.tenants, "kept")), is_taken=lambda: self._are_results_saved()
        )
        self.output = JobOutput()
        self.bulk = Bulk(self.app, self.queue, ids)
        self.crons = Crons(self.app, self.queue, ids, self.tenants)
        self._ingest = Ingest(self.store, self.journal, self.jobs, ids, self._added, self._joining.join)
        if self._joining.done.is_set():
            self._ingest.begin()  # before anything is accepted: an old copy of a journal is refused

    @property
    def journal_bytes(self) -> int:
        """What may wait in the journal."""
        return self._options.journal_bytes

    @property
    def kills(self) -> Mapping[int, int]:
        """See `SandboxExecutor`."""
        return self._hands.kills

    @property
    def store(self) -> Store:
        return self.app.store

    def _weight(self, tenant: str) -> float:
        found = self.tenants.latest.tenants.get(tenant)
        return float(found.weight) if found else 1.0

    def _made_engine(self) -> Engine:
        options, store = self._options, self.store
        if self._joining.done.is_set():
            self.upkeep.keep_limits()
        chained = Chained(self.tenants, self.backlog, self.ended)
        make = self.crons.maker(chained)
        queue = EngineQueue(self.queue.number, QUEUE, ORDER, self.policies, make=make, scheduler=self.scheduler)
        now = self.jobs.now  # not the store's: a job that ends while that is away must not be thought to have failed
        launcher = Launcher(now, self.app.database.steady, _no_chain)
        self._hands = hands = SandboxExecutor(
            self.contexts, self.handlers.get, launcher, self.ids, now, self.app.database.steady,
            lambda: store.waker.notify(done=True), lambda: store.waker.clear(), options.concurrency,
            chained, self.output, self.policies.spec, self.secrets,
        )  # fmt: skip
        return Engine(Setup(
            store, [queue], hands, self.app.events, self.app.database.steady, concurrency=options.concurrency,
            added=self._added, spare=hands.spare, drain=options.drain,
        ))  # fmt: skip

    def _are_results_saved(self) -> bool:
        """Whether the store has the results that have got room until now."""
        before = self._hands.unsaved(self.engine.in_flight)
        return soon(lambda: not before & self._hands.unsaved(self.engine.in_flight))

    def _added(self, news: Sequence[New], stored: Sequence[Stored]) -> None:
        """Jobs were added here: whoever watches hears of it before a job is claimed, and the engine need not look."""
        self.app.added(news, stored)
        self.engine.notice(self.queue.number, {(new.job_type, new.lane) for new in news if new.phase == READY})
        self.store.waker.notify()

    def warm(self) -> set[str]:
        """The lanes for which a context is at hand: the runner's hint, heard by the scheduler."""
        return {lane(*one) for one in self.contexts.warm()}

    def ingest(self) -> int:
        """Store what is in the journal, at a daemon that was not started; how many jobs there were."""
        jobs = self.journal.waiting_jobs
        while self.journal.waiting_jobs:
            self._ingest.step()
        return jobs

    # -- its options ------------------------------------------------------------------------------------------------
    @property
    def options(self) -> Options:
        return self._options

    def use(self, options: Options) -> None:
        """These count from now on, but for those that only a new daemon can have."""
        before, self._options = self._options, options
        self.journal.most_bytes = options.journal_bytes
        self.jobs.run_seconds = options.run_timeout
        self.policies.use(options)
        self.engine.setup.drain = options.drain
        if options.contexts != before.contexts:
            self.contexts.use(replace(options.contexts, hidden=self._hides))

    # -- its life ---------------------------------------------------------------------------------------------------
    def start(self) -> None:
        self._ingest.start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let what runs finish; what is in the journal stays there. Once or more often."""
        self._stopping.set()
        if not self.engine.stopping:
            self.engine.stop()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop_now(self) -> None:
        """Give back what runs."""
        self._stopping.set()
        while self.engine.stopping < 2:
            self.engine.stop()

    def close(self) -> None:
        """After `stop`: wait for the end, and close everything."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._ingest.stop(patient=self.engine.stopping < 2)
        self.engine.executor.close()
        self.journal.close()
        self.app.close()
        if self._log:
            self._log.close()

    def wrong_with(self, handler: Handler) -> str:
        """Why this handler cannot run here, or its code be read by its language, with the line; "" if they can, or
        nobody knows."""
        self.policies.check(handler)
        try:
            self.secrets.of(handler)
        except CannotRun as error:
            return str(error)
        return wrong_with(handler, self._options.contexts)

    def tried(self, handler: Handler, payload: bytes) -> JobReport:
        """How one job would end with this handler, of which nothing is kept. Invalid if it cannot run here."""
        self.policies.check(handler)
        try:
            secrets, sign = self.secrets.of(handler), self.secrets.sign(handler.tenant)
            seconds = self.policies.spec(handler.type, handler.policy).run_timeout
            return tried(handler, payload, seconds, self.contexts.settings, secrets, sign)
        except CannotRun as error:
            raise Invalid(str(error)) from None

    def ready(self) -> Ready:
        return ready(self)

    @property
    def store_away(self) -> bool:
        return bool(self._ingest.away) or not self._joining.done.is_set()

    @property
    def store_stuck(self) -> bool:
        return bool(self._ingest.stuck)

    @property
    def is_full(self) -> bool:
        return self.journal.waiting_bytes >= self._options.journal_bytes

    def sandbox_refuses(self) -> str:
        """Why no handler in code can run here; "" if they can."""
        return "" if self._options.contexts.trust else why_no_sandbox()

    def health(self) -> str:
        """One of `ready.HEALTH`."""
        if self.failed or self.journal.broken:
            return "broken"
        if not self.journal.has_room:
            return "disk full"
        if self.store_away:
            return "store away"
        if self.store_stuck:
            return "stuck"
        if any(finding.kind == "refused" for finding in self.journal.found):
            return "refused"
        return "behind" if self.journal.waiting_bytes > self._options.journal_bytes // 2 else "ok"

    def _tidy(self) -> None:
        self.upkeep.run(self._stopping, lambda: self.engine.engine_id)

    def _work(self) -> None:
        try:
            while not self._joining.done.wait(JOIN_SECONDS):
                if self._stopping.is_set():
                    return
            self.engine.run()
            if not self._stopping.is_set():
                self.failed = f"the engine ended: {self.engine.unfit}"
        except BaseException as error:
            self.failed = f"the engine ended: {error}"
            _log.exception("the engine ended")


def _no_chain(_queue: str) -> NoReturn:
    raise AssertionError("jobs are chained by what contexts report")


def _limited(tenants: Tenants, *quotas: str) -> list[str]:
    """Those of whom it must be known what they have: which cannot be more than they may."""
    there = tenants.latest.tenants.items()
    return [name for name, one in there if any(getattr(one.quotas, quota) for quota in quotas)]
