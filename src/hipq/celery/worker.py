"""A Celery worker also publishes what is due: an engine in a thread of its main process."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from celery.bootsteps import StartStopStep

from hipq import Hipq
from hipq.celery.publisher import CONCURRENCY
from hipq.errors import StoreUnavailable
from hipq.observe import logs

if TYPE_CHECKING:
    from hipq.engine.loop import Engine

LOGGER: Final = logging.getLogger("hipq.celery")
AGAIN_SECONDS: Final = 5.0
STOP_SECONDS: Final = 20.0
GREEN: Final = ("gevent", "eventlet")


class WorkerEngine:
    """An engine in a worker's process, from the worker's start to its stop."""

    def __init__(self, hipq: Hipq) -> None:
        self._hipq = hipq
        self._stopping = threading.Event()
        self._engine: Engine | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        logs.subscribe(self._hipq.events)
        try:
            self._engine = self._made()  # not in the thread, because it forks
        except StoreUnavailable as error:
            self._complain(error)
        self._thread = threading.Thread(target=self._serve, name="hipq-celery", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if (engine := self._engine) is not None:  # its thread may be just about to drop it
            engine.stop()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    def _made(self) -> Engine:
        return self._hipq.engine(concurrency=CONCURRENCY)

    def _serve(self) -> None:
        """Run engines, one after the other if need be: whatever happens, tasks go on being published."""
        while not self._stopping.is_set():
            try:
                engine = self._engine = self._engine or self._made()
                if self._stopping.is_set():
                    engine.stop()
                try:
                    engine.run()
                finally:
                    self._engine = None
                    engine.executor.close()
                if engine.unfit:
                    LOGGER.error("%s: publishing begins anew", engine.unfit)
            except Exception as error:
                self._complain(error)

    def _complain(self, error: Exception) -> None:
        LOGGER.error("kept tasks are not published from this worker right now: %s: %s", type(error).__name__, error)
        self._stopping.wait(AGAIN_SECONDS if self._thread else 0)


def step(hipq: Hipq) -> type[Any]:
    """The boot step for `app.steps["worker"]`."""

    class PublishDueTasks(StartStopStep):  # type: ignore[misc]
        label = "hipq"
        requires = ("celery.worker.components:Pool",)

        def include_if(self, parent: Any) -> bool:
            pool = str(getattr(parent.pool_cls, "__module__", parent.pool_cls))
            if green := next((name for name in GREEN if name in pool), ""):
                LOGGER.warning("kept tasks are not published from a worker with %s: run `hipq worker` for them", green)
            return not green

        def create(self, parent: Any) -> WorkerEngine:  # noqa: ARG002
            return WorkerEngine(hipq)

    return PublishDueTasks
