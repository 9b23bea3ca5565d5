"""An engine beside what else a program does: `app.working`."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from hipq import Hipq, Invalid, Job, Queue
from hipq.engine.queues import EngineQueue
from hipq.job.order import order
from hipq.job.spec import Spec
from tests.engine.working import real_time, until


@real_time
def test_it_works_until_the_block_ends_and_handlers_finish(app: Hipq, queue: Queue) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @queue.job
    def slow(_job: Job[Any]) -> str:
        begun.set()
        go_on.wait(20)
        return "done"

    with app.working(concurrency=1):
        first = queue.enqueue("slow")
        assert begun.wait(20)
        second = queue.enqueue("slow")
        threading.Timer(0.3, go_on.set).start()
    assert app.job(first).result == "done"
    assert app.job(second).state in ("initial", "final", "retry")  # it was not begun, or it has finished
    assert app.store.engines() == []
    with app.working():
        until(lambda: app.job(second).state == "final")
    assert not [thread.name for thread in threading.enumerate() if thread.name == "hipq-engine"]


@real_time
def test_what_goes_wrong_in_the_block_ends_it_too(app: Hipq, queue: Queue) -> None:
    queue.job("note")(lambda _job: None)
    with pytest.raises(KeyError), app.working():
        raise KeyError
    assert app.store.engines() == []


@real_time
def test_the_block_ends_with_the_error_of_an_engine_that_failed(
    app: Hipq, queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    queue.job("note")(lambda _job: None)
    failed = threading.Event()

    def broken(*_args: Any, **_options: Any) -> Any:
        failed.set()
        raise UnboundLocalError("compiled wrongly")

    monkeypatch.setattr(app.store, "turn", broken)

    def block() -> None:
        with app.working():
            queue.enqueue("note")
            assert failed.wait(20)
            raise TimeoutError("no result")  # what the block itself runs into is not lost

    with pytest.raises(UnboundLocalError, match="compiled wrongly") as raised:
        block()
    assert isinstance(raised.value.__context__, TimeoutError)
    assert "no job runs any more" in caplog.text


def test_it_refuses_what_an_engine_refuses(app: Hipq, queue: Queue) -> None:
    with pytest.raises(Invalid, match="no such queue: mails; there are orders"), app.working(["mails"]):
        pass
    assert queue.name == "orders"


@real_time
def test_the_first_job_type_of_a_queue_may_be_registered_while_an_engine_works(app: Hipq, queue: Queue) -> None:
    job_id = queue.enqueue("late")
    with app.working():
        until(lambda: app.store.engines() and app.job(job_id).state == "initial")
        queue.job("late")(lambda _job: "done")
        app.store.waker.notify()
        until(lambda: app.job(job_id).state == "final")
    assert app.job(job_id).result == "done"


def test_a_type_may_be_registered_while_an_engine_lists_them() -> None:
    specs: dict[str, Spec] = {}

    class Registering(Spec):
        @property  # type: ignore[misc]
        def fn(self) -> Any:
            specs.setdefault("new", Spec("new", fn=print))
            return print

        @fn.setter
        def fn(self, _value: Any) -> None: ...

    specs["old"] = Registering("old")
    queue = EngineQueue(1, "orders", order("time"), specs)
    assert [queue.types, queue.types] == [("old",), ("old", "new")]
