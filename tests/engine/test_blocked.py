"""PostgreSQL: somebody's open transaction holds what one job needs; everybody else goes on."""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg

from hipq import Hipq, Job
from hipq.events import Event
from tests.servers import fresh_database


def test_an_open_transaction_in_the_way_of_one_job_delays_only_that_one() -> None:
    with fresh_database() as url, psycopg.connect(url) as theirs:
        app = Hipq("shop", url)
        app.migrate()
        queue = app.queue("orders")
        child = queue.job("child")(lambda _: None)
        queue.job("quick")(lambda _: "quick")

        @queue.job
        def parent(job: Job[Any]) -> str:
            job.enqueue(child, key="held")
            return "parent"

        lost: list[Event] = []
        app.events.subscribe(lost.append, "lease lost", "lost")
        child.enqueue("theirs", key="held", conn=theirs)  # open until the end of this test
        blocked = parent.enqueue()
        engine = app.engine(lease=6.0)
        thread = threading.Thread(target=engine.run)
        thread.start()
        try:
            for _ in range(3):
                quick = queue.enqueue("quick")
                _until(lambda quick=quick: app.job(quick).code == "ok")
            assert app.job(blocked).phase == "executing"
            theirs.rollback()
            _until(lambda: app.job(blocked).code == "ok")
            _until(lambda: len(app.jobs("orders", type="child")) == 1)
            assert lost == []
        finally:
            engine.stop()
            thread.join(20)
            engine.executor.close()
            app.close()


def _until(condition: Any) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
