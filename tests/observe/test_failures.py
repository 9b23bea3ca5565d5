"""A run that failed is one ERROR record with a traceback, wherever it ran; what handlers log says which job it is."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from hipq import Failed, Hipq, Job, Queue, Retry, Wait
from hipq.middleware import SentryScope
from hipq.observe import logs

CANARY = "canary-4711"
log = logging.getLogger("shop")


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record)

    def of(self, level: int) -> list[logging.LogRecord]:
        return [record for record in self.found if record.levelno == level]


@pytest.fixture
def records() -> Iterator[Records]:
    handler = Records()
    logs.LOGGER.addHandler(handler)
    yield handler
    logs.LOGGER.removeHandler(handler)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Hipq]:
    app = Hipq("shop", f"sqlite:///{tmp_path}/shop.db")
    yield app
    app.close()


@pytest.fixture
def queue(app: Hipq) -> Queue:
    return app.queue("orders")


def refuse(job: Job[Any]) -> None:
    raise ConnectionError(f"no bank for {job.key}")


async def arefuse(job: Job[Any]) -> None:
    await asyncio.sleep(0)
    refuse(job)


def declare(queue: Queue) -> None:
    queue.job("thread")(refuse)
    queue.job("task")(arefuse)
    queue.job("process", process=True)(refuse)


def run_one(app: Hipq, job_type: str) -> int:
    job_id = app.declared.find("orders").enqueue(job_type, {"card": CANARY}, key=f"key-{job_type}")
    app.run(until_empty=True)
    return job_id


@pytest.mark.parametrize("kind", ["thread", "task", "process"])
def test_a_failed_run_is_one_error_record_that_says_which_job_and_where(
    app: Hipq, queue: Queue, records: Records, kind: str
) -> None:
    declare(queue)
    job_id = run_one(app, kind)
    (record,) = records.of(logging.ERROR)
    said = vars(record)
    assert {name: said[name] for name in logs.ATTRIBUTES} == {
        "job_id": job_id, "job_queue": "orders", "job_type": kind, "job_key": f"key-{kind}", "job_attempt": 1,
    }  # fmt: skip
    assert 0 < said["job_duration"] < 60
    assert record.exc_info is not None
    assert record.exc_info[0] is not None
    assert record.exc_info[0].__name__ == "ConnectionError"
    text = logging.Formatter().format(record)
    assert 'raise ConnectionError(f"no bank' in text
    assert f"no bank for key-{kind}" in text
    assert CANARY not in text
    assert records.of(logging.WARNING) == []


def test_a_run_that_took_too_long_and_one_that_crashed_are_one_record_each(
    app: Hipq, queue: Queue, records: Records
) -> None:
    queue.job("slow", run_timeout=0.05)(lambda job: [None for _ in iter(lambda: job.cancelled, True)])
    queue.job("dies", process=True)(lambda _: os._exit(7))
    run_one(app, "slow")
    run_one(app, "dies")
    found = {vars(record)["job_type"]: record for record in records.of(logging.ERROR)}
    assert set(found) == {"slow", "dies"}
    assert len(records.of(logging.ERROR)) == 2
    kinds = [exc[0].__name__ for record in found.values() if (exc := record.exc_info) and exc[0]]
    assert kinds == ["TimeoutError", "ChildProcessError"]
    assert vars(found["slow"])["job_duration"] >= 0.05


def test_what_a_handler_means_to_say_is_no_error(app: Hipq, queue: Queue, records: Records) -> None:
    queue.job("says")(lambda _: Failed("nothing to pay"))
    queue.job("asks")(lambda job: Retry(0) if job.attempt == 1 else None)
    queue.job("waits", timeout=3600)(lambda _: Wait())
    for kind in ("says", "asks", "waits"):
        run_one(app, kind)
    assert records.of(logging.ERROR) == []
    (said,) = records.of(logging.WARNING)
    assert said.getMessage().startswith("failed queue=orders")


def test_answer_handlers_retry_handlers_and_cancel_handlers_that_raise_are_errors(
    app: Hipq, queue: Queue, records: Records
) -> None:
    charge = queue.job("charge", timeout=3600)(lambda _: Wait())
    charge.answered(lambda job, _: refuse(job) if len(records.of(logging.ERROR)) == 0 else "seen")
    run_one(app, "charge")
    charge.answer("key-charge", {"card": CANARY})
    app.run(until_empty=True)
    judged = queue.job("judged")(refuse)
    judged.retry(lambda job, _: refuse(job))
    run_one(app, "judged")
    first, second = records.of(logging.ERROR)
    assert first.getMessage().startswith("answer failed queue=orders")
    assert second.getMessage().startswith("gave up queue=orders")
    assert "its retry handler raised" in second.getMessage()
    assert CANARY not in first.getMessage() + second.getMessage()


# -- what handlers log themselves ---------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["thread", "task", "process"])
def test_what_a_handler_logs_says_which_job_it_is(app: Hipq, queue: Queue, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "log"
    handler = logging.FileHandler(path)
    handler.addFilter(logs.JobFilter())
    handler.setFormatter(logging.Formatter("%(job_queue)s %(job_type)s %(job_key)s %(job_attempt)s: %(message)s"))
    log.addHandler(handler)

    def plain(_job: Job[Any]) -> None:
        log.warning("hello")

    async def on_loop(job: Job[Any]) -> None:
        await asyncio.gather(*(asyncio.to_thread(plain, job) for _ in range(2)))

    queue.job("thread")(plain)
    queue.job("task")(on_loop)
    queue.job("process", process=True)(plain)
    try:
        run_one(app, kind)
        log.warning("outside")
    finally:
        log.removeHandler(handler)
        handler.close()
    times = 2 if kind == "task" else 1
    assert path.read_text() == f"orders {kind} key-{kind} 1: hello\n" * times + "   : outside\n"
    assert logs.current_job() == {}


def test_the_filter_leaves_alone_what_a_record_says_itself() -> None:
    record = logging.makeLogRecord({"job_id": 7})
    assert logs.JobFilter().filter(record)
    assert vars(record)["job_id"] == 7
    assert vars(record)["job_type"] == ""


def test_json_lines_of_handlers_name_their_job(app: Hipq, queue: Queue) -> None:
    lines: list[str] = []

    @queue.job
    def charge(_job: Job[Any]) -> None:
        record = logging.makeLogRecord({"msg": "hello"})
        logs.JobFilter().filter(record)
        lines.append(logs.Formatter("json").format(record))

    job_id = run_one(app, "charge")
    said = json.loads(lines[0])
    assert (said["text"], said["job_id"], said["job_type"], said["job_key"]) == (
        "hello",
        job_id,
        "charge",
        "key-charge",
    )


# -- Sentry -------------------------------------------------------------------------------------------------------
class Kept(Transport):
    """What Sentry would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        event = envelope.get_event()
        if event is not None:
            self.events.append(event)


@pytest.fixture
def sentry() -> Iterator[Kept]:
    kept = Kept()
    sentry_sdk.init(dsn="https://key@sentry.example/1", transport=kept, include_local_variables=False)
    yield kept
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(None)


@pytest.mark.parametrize("kind", ["thread", "task", "process"])
def test_sentry_s_default_integration_reports_each_failed_run_once(
    app: Hipq, queue: Queue, sentry: Kept, kind: str
) -> None:
    """Nothing of hipq is configured, and nothing of Sentry but its address."""
    declare(queue)
    job_id = run_one(app, kind)
    sentry_sdk.flush()
    (event,) = sentry.events
    (raised,) = event["exception"]["values"]
    assert (event["level"], raised["type"]) == ("error", "ConnectionError")
    assert raised["value"].startswith(f"no bank for key-{kind}")
    where = json.dumps(raised) if kind == "process" else raised["stacktrace"]["frames"][-1]["function"]
    assert "refuse" in where
    assert (event["extra"]["job_id"], event["extra"]["job_key"]) == (job_id, f"key-{kind}")
    assert CANARY not in json.dumps(event)


@pytest.mark.parametrize("kind", ["thread", "task"])
def test_with_its_middleware_sentry_s_events_have_the_job_in_their_tags(
    app: Hipq, queue: Queue, sentry: Kept, kind: str
) -> None:
    app.use(SentryScope())
    declare(queue)

    def warn(job: Job[Any]) -> None:
        sentry_sdk.set_tag("of", job.key)
        sentry_sdk.capture_message("look at this")

    queue.job("warn")(warn)

    async def warn_too(job: Job[Any]) -> None:
        warn(job)

    queue.job("warn-task")(warn_too)
    ids = [queue.enqueue("warn" if kind == "thread" else "warn-task", key=key) for key in "ab"]
    app.run(until_empty=True)
    failed = run_one(app, kind)
    sentry_sdk.capture_message("outside")
    sentry_sdk.flush()
    tags = [event.get("tags", {}) for event in sentry.events]
    name = "warn" if kind == "thread" else "warn-task"
    job = {"job_queue": queue.name, "job_type": name, "job_attempt": 1}
    assert sorted(tags[:2], key=lambda one: one["job_key"]) == [
        {**job, "job_id": job_id, "job_key": key, "of": key} for job_id, key in zip(ids, "ab", strict=True)
    ]
    assert (tags[2]["job_id"], tags[2]["job_key"], tags[2]["job_type"]) == (failed, f"key-{kind}", kind)
    assert tags[3:] == [{}]


def test_an_exception_that_no_file_takes_is_logged_as_it_is_stored(app: Hipq, queue: Queue, tmp_path: Path) -> None:
    def raises(_job: Job[Any]) -> None:
        raise ValueError("a\ud800b")

    queue.job("odd")(raises)
    handler = logging.FileHandler(tmp_path / "log", encoding="utf-8")
    logs.LOGGER.addHandler(handler)
    try:
        run_one(app, "odd")
    finally:
        logs.LOGGER.removeHandler(handler)
        handler.close()
    assert "ValueError: a\\ud800b" in (tmp_path / "log").read_text()
