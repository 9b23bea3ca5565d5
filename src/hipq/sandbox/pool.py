"""The contexts of a daemon: kept warm for their tenant, one batch at a time each, replaced when they are used up."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec

from hipq.errors import CannotRun, NoRoomToRun
from hipq.sandbox.addresses import Allowed
from hipq.sandbox.begun import BegunJobs
from hipq.sandbox.bubblewrap import why_no_sandbox
from hipq.sandbox.context import Context
from hipq.sandbox.handler import ContextJob, Handler, OnEnd, OnStart, Sign, unsigned
from hipq.sandbox.interpreters import languages
from hipq.sandbox.leftovers import sweep
from hipq.sandbox.secrets import NO_SECRETS, Secrets
from hipq.sandbox.settings import ContextSettings, mark_of
from hipq.sandbox.starting import SCARCE, Spawner

SCARCE_SECONDS = 0.5
"""Seconds a worker thread rests after it could start no context: its jobs are given back, and would return at once."""
Home = tuple[str, str, str]
"""Tenant, language and engine id, with a mark of what else keeps handlers apart: contexts are shared within these, and
never beyond."""


class ContextPool:
    """The contexts of a daemon, for any number of threads."""

    def __init__(self, settings: ContextSettings) -> None:
        self.settings = settings
        sweep()
        self._spawner = Spawner()
        self._jobs = BegunJobs()
        self._allowed = Allowed(settings.http_allow)
        self._changed = threading.Condition()
        """Guards the fields below; never held while a context runs, starts or ends."""
        self._idle: list[tuple[float, Home, Context]] = []
        """The idle contexts, and since when; the longest idle is first."""
        self._alive: set[Context] = set()
        self._count = 0
        """The number of contexts that are alive, starting or ending: never more than allowed."""
        self._closed = False
        self._reaper = threading.Thread(target=self._reap, name="hipq-contexts-idle", daemon=True)
        self._reaper.start()

    def use(self, settings: ContextSettings) -> None:
        """These count from now on: idle contexts end at once, and those at work behind their batch."""
        with self._changed:
            self.settings, self._allowed = settings, Allowed(settings.http_allow)
            idle, self._idle = self._idle, []
        for _, _, context in idle:
            self._end(context)

    def refuses(self, lang: str) -> str:
        """One sentence on why handlers in this language cannot run here; empty if they can."""
        if lang == "http":
            return "" if find_spec("httpcore2") else "http handlers need httpx2: pip install 'hipq[daemon]'"
        if lang not in languages(self.settings):
            return f"handlers in {lang} need its interpreter, which is not installed here"
        return "" if self.settings.trust else why_no_sandbox()

    def idle(self) -> dict[Home, int]:
        """The number of idle contexts, by tenant, language and engine id."""
        with self._changed:
            return Counter(home for _, home, _ in self._idle)

    def count(self) -> tuple[int, int]:
        """How many contexts there are, and how many of them are idle."""
        with self._changed:
            return self._count, len(self._idle)

    def warm(self) -> set[tuple[str, str]]:
        """The tenants and job types whose handlers are loaded in an idle context: a hint for the scheduler."""
        with self._changed:
            return {(home[0], jobtype) for _, home, context in self._idle for jobtype in context.loaded}

    def run(
        self, handler: Handler, tasks: Sequence[ContextJob], started: OnStart, ended: OnEnd,
        secrets: Secrets = NO_SECRETS, sign: Sign = unsigned,
    ) -> list[ContextJob]:  # fmt: skip
        """As Context.run, in an idle context or a new one. CannotRun if there can be none, NoRoomToRun if none now.
        `secrets` are those that the handler's policy names; `sign` makes the headers by which a URL knows who calls."""
        names = [task.name for task in tasks]
        self._jobs.add(names)
        try:
            if handler.lang == "http":
                return self._over_http(handler, tasks, started, ended, sign)
            return self._in_contexts(handler, tasks, started, ended, secrets)
        except OSError as error:
            if error.errno not in SCARCE:
                raise
            time.sleep(SCARCE_SECONDS)
            raise NoRoomToRun(f"no context can be started now: {error.strerror}") from None
        finally:
            self._jobs.remove(names)

    def _over_http(
        self, handler: Handler, tasks: Sequence[ContextJob], started: OnStart, ended: OnEnd, sign: Sign
    ) -> list[ContextJob]:
        if why := self.refuses("http"):
            raise CannotRun(why)
        import asyncio

        from hipq.sandbox.http import run_posts  # costs an import that most daemons can do without

        together = max(self.settings.http_together, 1)
        allowed = self._allowed.within(handler.policy.network)
        with asyncio.Runner() as runner:
            runner.get_loop()  # OSError if there is no descriptor left for a loop
            return runner.run(run_posts(handler, tasks, started, ended, self._jobs, allowed, together, sign))

    def _in_contexts(
        self, handler: Handler, tasks: Sequence[ContextJob], started: OnStart, ended: OnEnd, secrets: Secrets
    ) -> list[ContextJob]:
        usual = self.settings
        policy = handler.policy
        settings, mark = usual.of(policy, secrets), mark_of(policy, secrets, usual.packages(policy))
        home = (*handler.home[:2], f"{handler.home[2]} {mark}") if mark else handler.home
        left, unwanted = list(tasks), list[ContextJob]()
        while left:
            context = self._take(handler.lang, home, settings)
            if context is None:
                break
            unwanted += [task for task in left if not self._jobs.wants(task.name)]
            left = [task for task in left if task not in unwanted]
            fresh, count = not context.loads, len(left)
            try:
                left = context.run(handler, left, started, ended, self._jobs)
            finally:
                self._give(home, context, usual)
            if not context.spent and (fresh or len(left) < count):
                break  # it died over what it ran: the caller decides what that means
        return unwanted + left

    def abandon(self, job_id: str) -> None:
        """Stop a task that is not wanted any more, from another thread. If it executes, its context is killed; if it
        has not begun, it will not."""
        self._jobs.abandon(job_id)

    def withdraw(self, job_id: str) -> bool:
        """Take back a task that has not begun, from another thread; False: it has begun. The task is among those
        that `run` returns, but the caller need not wait for that."""
        return self._jobs.withdraw(job_id)

    def close(self) -> None:
        """Kill all contexts. Nothing of them is left when this returns."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            for context in self._alive:
                context.kill()
            self._changed.notify_all()
        self._jobs.close()
        for _, _, context in idle:
            self._end(context)
        with self._changed:
            while self._count:  # running contexts are ended by the threads that use them
                self._changed.wait()
        self._reaper.join()
        self._spawner.close()

    def _take(self, lang: str, home: Home, settings: ContextSettings) -> Context | None:
        """An idle context of the same home, else a new one; None if the pool was closed."""
        old: Context | None = None
        with self._changed:
            while True:
                if self._closed:
                    return None
                for index in range(len(self._idle) - 1, -1, -1):  # the one that waited least is warmest
                    if self._idle[index][1] == home:
                        return self._idle.pop(index)[2]
                if self._count < self.settings.most_contexts:
                    self._count += 1
                    break
                if self._idle:
                    old = self._idle.pop(0)[2]  # its slot is free for the new one
                    self._alive.discard(old)
                    break
                self._changed.wait()
        if old:
            old.retire()
        return self._new(lang, settings)

    def _new(self, lang: str, settings: ContextSettings) -> Context | None:
        try:
            context = Context(lang, settings, self._spawner)
        except BaseException:
            self._free()
            raise
        with self._changed:
            if not self._closed:
                self._alive.add(context)
                return context
        self._end(context)
        return None

    def _give(self, home: Home, context: Context, usual: ContextSettings) -> None:
        """`usual`: the settings that counted when it was taken. One that has others than count now has to end."""
        with self._changed:
            if context.alive and not self._closed and usual is self.settings:
                self._idle.append((time.monotonic(), home, context))
                ended = self._too_much()
                self._changed.notify_all()
            else:
                ended = [context]
        for one in ended:
            self._end(one)

    def _too_much(self) -> list[Context]:
        """The idle contexts that have to end because all together use more memory than they may: the largest."""
        ended: list[Context] = []
        kept = sum(context.kept for _, _, context in self._idle)
        while kept > self.settings.idle_memory:
            biggest = max(self._idle, key=lambda one: one[2].kept)
            self._idle.remove(biggest)
            ended.append(biggest[2])
            kept -= biggest[2].kept
        return ended

    def _end(self, context: Context) -> None:
        context.retire()
        with self._changed:
            self._alive.discard(context)
        self._free()

    def _free(self) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def _reap(self) -> None:
        """End the contexts that have been idle for too long, or died meanwhile."""
        while True:
            with self._changed:
                if self._closed:
                    return
                now = time.monotonic()
                late = [one for one in self._idle if one[0] + self.settings.idle_seconds <= now or one[2].dead]
                self._idle = [one for one in self._idle if one not in late]
                if not late:
                    wait = min((one[0] + self.settings.idle_seconds - now for one in self._idle), default=60.0)
                    self._changed.wait(min(max(wait, 0.01), 60.0))
            for _, _, context in late:
                self._end(context)
