"""A daemon, put together: journal, store, engine, contexts. `hipq.daemon.http` speaks HTTP in front of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Final, NoReturn

from msgspec.structs import replace

from hipq.app import Hipq
from hipq.daemon.accepted import Accepted
from hipq.daemon.bulk import Bulk
from hipq.daemon.crons import Crons
from hipq.daemon.handlers.handlers import Handlers
from hipq.daemon.handlers.keys import SecretKeys
from hipq.daemon.handlers.policies import Policies, check_environments
from hipq.daemon.handlers.secrets import TenantSecrets
from hipq.daemon.hidden_paths import hidden
from hipq.daemon.http.feed import Feed
from hipq.daemon.ids import JournalIds
from hipq.daemon.ingest import Ingest, check_database
from hipq.daemon.job_factory import ORDER, lane
from hipq.daemon.job_output import JobOutput
from hipq.daemon.joblog import JobLog
from hipq.daemon.jobs import Jobs
from hipq.daemon.known import Known
from hipq.daemon.options import APP, QUEUE
from hipq.daemon.options import Options as Options
from hipq.daemon.ready import Ready, ready
from hipq.daemon.sandbox_executor import SandboxExecutor
from hipq.daemon.scheduler import FairShare
from hipq.daemon.take_over import note_engine
from hipq.daemon.tenancy.backlog import Backlog, is_taken, soon
from hipq.daemon.tenancy.quotas import Chained
from hipq.daemon.tenancy.tenants import Tenants
from hipq.engine import prune
from hipq.engine.lanes import Guarded, Scheduler
from hipq.engine.launch import Launcher
from hipq.engine.loop import Engine
from hipq.engine.queues import EngineQueue
from hipq.engine.setup import Setup
from hipq.errors import CannotRun, HipqError, Invalid, StoreUnavailable
from hipq.job.model import New
from hipq.job.states import READY
from hipq.journal import Journal
from hipq.limits.handlers import PerHandler
from hipq.limits.tenants import PerTenant
from hipq.sandbox import ContextPool, Handler, JobReport
from hipq.sandbox.bubblewrap import why_no_sandbox
from hipq.sandbox.parsing import wrong_with
from hipq.sandbox.trying import tried
from hipq.stores.protocols import Store
from hipq.stores.values import Stored

PRUNE_SECONDS: Final = 60.0
"""Seconds between two times that what has ended is purged, and that uses of tokens are written down."""
TIDY_SECONDS: Final = 1.0
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
        self._known = Known(self.journal)
        with suppress(StoreUnavailable):
            check_database(self.app, self.journal)
        self.tenants = Tenants(self.store)
        check_environments(options.contexts.environments, () if options.contexts.trust else self._hides)
        keys = SecretKeys(options.secrets_key_file)
        keys.check()
        self.secrets = TenantSecrets(self.store, keys)
        self.policies = Policies(options)
        self.handlers = Handlers(self.store, limits_changed=self._keep_limits_now)
        own = FairShare(self._weight, self.warm)
        self.scheduler: FairShare | Guarded = Guarded(scheduler, self.warm) if scheduler else own
        self._found = 0
        """How much of what is wrong with the journal was said."""
        self._tell_findings()
        self._joined = threading.Event()
        """The store is known to be as this program needs it."""
        self._join_or_recall()
        self.ids = ids = JournalIds(
            self.store, self.queue.number, self.journal.identity, range(*self._known.facts.ids),
            lambda spare: self._known.keep(ids=(spare.start, spare.stop)),
        )  # fmt: skip
        ids.reserve()
        self.accepted = Accepted(self.store, self.journal, ids)
        self.jobs = Jobs(self.app, self.queue, self.journal, ids, Feed(self.app.events), options.run_timeout)
        limited = partial(_limited, self.tenants, "waiting", "bytes")
        self.backlog = Backlog(lambda: self.jobs.waiting(limited()), is_taken=lambda: is_taken(self.journal))
        self.ended = Backlog(
            lambda: self.jobs.ended(_limited(self.tenants, "kept")), is_taken=lambda: self._are_results_saved()
        )
        self.output = JobOutput()
        self.bulk = Bulk(self.app, self.queue, ids)
        self.crons = Crons(self.app, self.queue, ids, self.tenants)
        self._ingest = Ingest(self.store, self.journal, self.jobs, ids, self._added, self._join)
        if self._joined.is_set():
            self._ingest.begin()  # before anything is accepted: an old copy of a journal is refused
        self._log = JobLog(options.job_log, self.app.events) if options.job_log else None
        self.contexts = ContextPool(replace(options.contexts, hidden=self._hides))
        opened.callback(self.contexts.close)
        self.engine = self._made_engine()

    def _join(self) -> None:
        """Bring the store to what this program needs, and learn from it what a start without it takes."""
        if self._joined.is_set():
            return
        check_database(self.app, self.journal)
        self.app.migrate()
        self.tenants.look()
        self._known.keep(queue=self.queue.number, tenants=dict(self.tenants.texts))
        self._joined.set()

    def _join_or_recall(self) -> None:
        try:
            self._join()
        except StoreUnavailable as error:
            if not self._known.facts.queue:
                raise  # what it would accept could not be given an id
            _log.warning("the store is away, and jobs are accepted for it: %s", error)
            self.queue.recall(self._known.facts.queue)
            self.tenants.recall(self._known.facts.tenants)

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
        if self._joined.is_set():
            self._keep_quotas()
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
        return bool(self._ingest.away) or not self._joined.is_set()

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
        if self._ingest.stuck:
            return "stuck"
        if any(finding.kind == "refused" for finding in self.journal.found):
            return "refused"
        return "behind" if self.journal.waiting_bytes > self._options.journal_bytes // 2 else "ok"

    def _work(self) -> None:
        try:
            while not self._joined.wait(JOIN_SECONDS):
                if self._stopping.is_set():
                    return
            self.engine.run()
            if not self._stopping.is_set():
                self.failed = f"the engine ended: {self.engine.unfit}"
        except BaseException as error:
            self.failed = f"the engine ended: {error}"
            _log.exception("the engine ended")

    def _tell_findings(self) -> None:
        """What is wrong with the journal, found when it was opened or while it is read."""
        for finding in self.journal.found[self._found :]:
            _log.log(logging.ERROR if finding.is_damage else logging.WARNING, "journal: %s", finding)
            self._found += 1

    def _keep_quotas(self) -> None:
        """What a tenant may run at a time, and what a handler may, are limits like others: exact over all daemons."""
        caps = {name: one.quotas.running for name, one in self.tenants.look().tenants.items() if one.quotas.running}
        own = self.handlers.limits()
        limits = (*((PerTenant(caps),) if caps else ()), *((PerHandler(own),) if own else ()))
        rules = self.store.rules(self.queue.number)  # not what we wrote: another daemon may have known less
        if rules.limits != limits or rules.order != ORDER:
            self.store.change_rules(self.queue.number, lambda rules: replace(rules, limits=limits, order=ORDER))

    def _keep_limits_now(self) -> None:
        """A handler has come with another limit: it holds when whoever has put it hears so."""
        if self._joined.is_set():
            with suppress(HipqError):  # then it holds within a second
                self._keep_quotas()

    def _tidy(self) -> None:
        """Quotas are kept up to date; what has ended is purged when nobody wants to look at it any more; and it is
        noted whose journal this is."""
        purge_at, noted = 0.0, 0
        while not self._stopping.wait(TIDY_SECONDS):
            self._found -= self.journal.forget_gone()
            self._tell_findings()
            self.journal.look()
            if not self._joined.is_set():
                continue
            try:
                if noted != (engine_id := self.engine.engine_id):
                    note_engine(self.store, self.journal.identity, engine_id)
                    noted = engine_id
                self._keep_quotas()
                self._known.keep(tenants=dict(self.tenants.texts))
                if self.app.database.steady() >= purge_at:
                    self.tenants.uses.save()
                    self._purge()
                    purge_at = self.app.database.steady() + PRUNE_SECONDS * 1e6
            except HipqError as error:
                _log.debug("what has ended could not be purged: %s", error)
            except Exception:
                _log.exception("quotas could not be kept, or what has ended could not be purged")

    def _purge(self) -> None:
        before = self.store.now() - round(self._options.keep * 1e6)
        for _ in prune.prune(self.store, self.queue.number, (before, 0)):
            if self._stopping.is_set():
                break


def _no_chain(_queue: str) -> NoReturn:
    raise AssertionError("jobs are chained by what contexts report")


def _limited(tenants: Tenants, *quotas: str) -> list[str]:
    """Those of whom it must be known what they have: which cannot be more than they may."""
    there = tenants.latest.tenants.items()
    return [name for name, one in there if any(getattr(one.quotas, quota) for quota in quotas)]
