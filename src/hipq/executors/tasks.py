"""`async def` handlers, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from contextvars import Context, copy_context

from hipq.executors.execution import Execution

DEAF = 5.0
"""Seconds without an answer after which the event loop counts as blocked."""


_log = logging.getLogger("hipq")
_loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()


def _stop_in_child() -> None:
    """In a process that a handler forked: stop its copy of each loop, which must not go on with other jobs."""
    for loop in list(_loops):
        loop.stop()


os.register_at_fork(after_in_child=_stop_in_child)


class Tasks:
    """At most `concurrency` coroutines, each of which takes one job after another while there are any."""

    def __init__(self, run: Callable[[Execution], Awaitable[None]], concurrency: int) -> None:
        self._run = run
        self._concurrency = concurrency
        self._pending: deque[Execution] = deque()
        self._hands: set[asyncio.Task[None]] = set()
        self._task_of: dict[Execution, asyncio.Task[None]] = {}
        """The tasks in which executions run."""
        self._stuck: dict[asyncio.Task[None], Execution] = {}
        self._asked_at = 0.0
        """When the loop was asked to cancel something and has not responded yet, on the steady clock; 0 = it has."""
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="hipq-loop", daemon=True)
        self._thread.start()
        _loops.add(self._loop)

    def _serve(self) -> None:
        """Keep the loop running for the other jobs when a handler calls `loop.stop()`, or starts a task that raises
        SystemExit."""
        here = os.getpid()
        asyncio.set_event_loop(self._loop)
        while not (self._closing or self._loop.is_closed()):
            try:
                self._loop.run_forever()
            except BaseException:
                _log.exception("a task that a handler started wanted to end the worker")
            if os.getpid() != here:
                os._exit(0)  # a process that a handler forked: see `_stop_in_child`

    def launch(self, executions: Iterable[Execution]) -> None:
        self._pending.extend(executions)
        self._loop.call_soon_threadsafe(self._more_hands)

    def _more_hands(self) -> None:
        for _ in range(min(len(self._pending), self._concurrency - len(self._hands - self._stuck.keys()))):
            hand = self._loop.create_task(self._work())
            self._hands.add(hand)
            hand.add_done_callback(self._let_go)

    def _let_go(self, hand: asyncio.Task[None]) -> None:
        self._hands.discard(hand)
        self._stuck.pop(hand, None)
        self._more_hands()

    async def _work(self) -> None:
        context = copy_context()
        while self._pending:
            try:
                execution = self._pending.popleft()
            except IndexError:  # the engine took it back just now
                return
            if execution.abandoned:
                continue
            task = asyncio.current_task()
            assert task is not None
            self._task_of[execution] = task
            try:
                await self._run(execution)
            except BaseException:
                return  # abandoned: this hand ends, another takes its place
            finally:
                del self._task_of[execution]
            if execution.abandoned:
                return  # it ignored the cancellation, and was replaced meanwhile
            if not _is_like(context, copy_context()):
                return  # context variables that a handler has set are not for the next one: another coroutine goes on

    def unstarted(self) -> list[Execution]:
        found = []
        with suppress(IndexError):
            while True:
                found.append(self._pending.popleft())
        return found

    def abandon(self, execution: Execution) -> None:
        def cancel() -> None:
            self._asked_at = 0.0
            if (task := self._task_of.get(execution)) is not None:
                self._stuck[task] = execution  # until it ends: it may ignore the cancellation
                task.cancel()
                self._more_hands()

        self._asked_at = self._asked_at or time.monotonic()
        self._loop.call_soon_threadsafe(cancel)

    def stuck(self, steady: int) -> int:
        if self._asked_at and time.monotonic() - self._asked_at > DEAF:
            return self._concurrency  # a handler blocks the loop itself: none of its hands can move
        return sum(execution.is_stuck(steady) for execution in list(self._stuck.values()))

    def close(self) -> None:
        def stop() -> None:
            self._closing = True
            for hand in self._hands:
                hand.cancel()
            self._loop.call_soon(self._loop.stop)

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(stop)
            self._thread.join(timeout=1)


def _is_like(one: Context, other: Context) -> bool:
    """Whether two contexts have the same values, by identity: comparing them could run code of others."""
    return len(one) == len(other) and all(name in one and one[name] is value for name, value in other.items())
