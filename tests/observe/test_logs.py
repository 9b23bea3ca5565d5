"""The log: one line an event, at the right level, with no payload and no forged lines in it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from hipq import Failed, Hipq, Job, Retry, Wait, fixed
from hipq.events import ALL_EVENTS, ENGINE_EVENTS, LISTENER_EVENTS, Events
from hipq.job.fault import Fault
from hipq.job.model import New, Ran, Row, blank
from hipq.observe import logs

CANARY = "canary-4711"


class Lines(logging.Handler):
    def __init__(self, form: str) -> None:
        super().__init__()
        self.setFormatter(logs.Formatter(form))
        self.lines: list[str] = []
        self.levels: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))
        if isinstance(record.msg, logs.LogLine):
            self.levels[record.msg.event] = record.levelname


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("hipq.test")
    logger.propagate = False
    yield logger
    logger.handlers.clear()


def listening(logger: logging.Logger, level: int, form: str = "text") -> Lines:
    logger.setLevel(level)
    lines = Lines(form)
    logger.handlers[:] = [lines]
    return lines


def row(**changed: Any) -> Row:
    new = New(1, "charge", "order-17", f'{{"card": "{CANARY}"}}', "ready", "", 0, 0)
    fields = {name: getattr(blank(new, 65537), name) for name in Row.__struct_fields__}
    return Row(**(fields | changed))


def test_failed_runs_are_errors_trouble_is_a_warning_engines_are_information_jobs_are_detail() -> None:
    failures = {"error", "gave up", "crashed", "lifetime over", "lost", "again", "answer failed",
                "cancel handler failed"}  # fmt: skip
    warnings = {"failed", "timed out", "rescued", "unstorable",
                "lease lost", "store down", "handler stuck", "rejected", "tick skipped", "tick failed",
                "throttler slow", "throttler failed", "conflict", "late",
                "unreadable", "listener down", "webhook refused", "queue locked", "clock set back"}  # fmt: skip
    information = {*ENGINE_EVENTS, *LISTENER_EVENTS} - {"listener report"}
    for name in ALL_EVENTS:
        expected = logging.WARNING if name in warnings else logging.INFO if name in information else logging.DEBUG
        assert logs.level(name) == (logging.ERROR if name in failures else expected), name


@pytest.mark.parametrize(
    ("level", "heard", "unheard"),
    [
        (logging.DEBUG, {"claimed", "ok", "engine started", "lost"}, set()),
        (logging.INFO, {"engine started", "lost"}, {"claimed", "ok", "added"}),
        (logging.WARNING, {"lost", "lease lost"}, {"claimed", "ok", "engine started"}),
        (logging.ERROR, {"gave up", "again"}, {"claimed", "ok", "lease lost", "failed"}),
        (logging.CRITICAL, set(), {*ALL_EVENTS}),
    ],
)
def test_events_below_the_level_are_not_even_subscribed_to(
    logger: logging.Logger, level: int, heard: set[str], unheard: set[str]
) -> None:
    listening(logger, level)
    events = Events()
    logs.subscribe(events, logger)
    assert {name for name in heard if events.wanted(name)} == heard
    assert {name for name in unheard if events.wanted(name)} == set()


def test_a_line_says_what_happened_to_which_job(logger: logging.Logger) -> None:
    lines = listening(logger, logging.DEBUG)
    events = Events()
    logs.subscribe(events, logger)
    events.emit("claimed", 5, "orders", row(attempt=2))
    events.emit("pruned", 5, "orders", count=7)
    first, second = lines.lines
    assert first.split(" ", 3)[3] == (
        "claimed queue=orders job=65537 type=charge key=order-17 state=initial phase=ready attempt=2 failures=0"
    )
    assert second.endswith("pruned queue=orders count=7")


def test_a_job_that_asked_to_run_again_is_no_warning_one_that_failed_is(logger: logging.Logger) -> None:
    lines = listening(logger, logging.INFO, "json")
    events = Events()
    logs.subscribe(events, logger)
    events.emit("again", 5, "orders", row(code="retry", error='{"kind":"retry","message":"not yet"}'))
    assert lines.lines == []
    events.emit("again", 5, "orders", row(code="error", error='{"kind":"error","message":"no","type":"ValueError"}'))
    (line,) = lines.lines
    assert json.loads(line)["error"] == "ValueError: no"


NASTY = 'a\nWARNING ok job=1\r\x1b[31m\x00\u202e\u2028"=\\ b\ud800'


@pytest.mark.parametrize("form", ["text", "json"])
def test_nothing_in_a_job_can_forge_a_line(logger: logging.Logger, form: str) -> None:
    lines = listening(logger, logging.DEBUG, form)
    events = Events()
    logs.subscribe(events, logger)
    error = json.dumps({"kind": "error", "message": NASTY.replace("\ud800", "")})
    events.emit("gave up", 5, NASTY, row(job_key=NASTY, error=error), reason=NASTY)
    logger.warning("a message %s", NASTY)
    for line in lines.lines:
        assert line.isprintable()
        assert line.encode()
    assert len(lines.lines) == 2
    if form == "json":
        assert json.loads(lines.lines[0])["job_key"] == NASTY


def test_text_values_can_be_told_apart(logger: logging.Logger) -> None:
    lines = listening(logger, logging.DEBUG)
    logger.info(
        logs.LogLine("store down", {"empty": "", "space": "a b", "quote": 'a"b', "equals": "a=b", "plain": "a-b"})
    )
    assert lines.lines[0].split("store down ")[1] == 'empty="" space="a b" quote="a\\"b" equals="a=b" plain=a-b'


def test_an_exception_of_a_subscriber_is_one_line_too(logger: logging.Logger) -> None:
    lines = listening(logger, logging.DEBUG, "json")
    try:
        raise ValueError("a\nb")
    except ValueError:
        logger.exception("a subscriber of %r raised", "ok")
    (line,) = lines.lines
    assert json.loads(line)["traceback"].endswith("ValueError: a\nb")
    assert json.loads(line)["text"] == "a subscriber of 'ok' raised"


@pytest.mark.parametrize("form", ["text", "json"])
def test_payloads_and_results_are_never_logged(logger: logging.Logger, form: str) -> None:
    lines = listening(logger, logging.DEBUG, form)
    app = Hipq("shop", "sqlite://")
    logs.subscribe(app.events, logger)
    orders = app.queue("orders")

    @orders.job
    def good(job: Job[Any]) -> Any:
        job.enqueue("good_too", job.data)
        return job.data

    @orders.job
    def good_too(job: Job[Any]) -> Any:
        return Retry(3600, data=[job.data]) if job.attempt < 2 else job.data

    @orders.job
    def bad(_job: Job[Any]) -> None:
        raise Failed("no")

    @orders.job(retry=fixed(3600))
    def flaky(_job: Job[Any]) -> None:
        raise ConnectionError("no")

    @orders.job
    def waits(_job: Job[Any]) -> Wait:
        return Wait()

    for job_type in (good, bad, flaky, waits):
        job_type.enqueue({"card": CANARY})
    cancelled = good.enqueue({"card": CANARY}, delay=60)
    hurried = good.enqueue({"card": CANARY}, delay=60)
    app.cancel(cancelled)
    app.retry_now(hurried)
    app.run(until_empty=True)
    app.jobs.prune(0)
    app.close()
    assert {"added", "claimed", "ok", "failed", "again", "waits", "cancelled", "hurried", "pruned"} <= set(lines.levels)
    assert CANARY not in "".join(lines.lines)


def test_configure_writes_to_standard_error_only(capsys: pytest.CaptureFixture[str]) -> None:
    before = (logs.LOGGER.handlers[:], logs.LOGGER.level, logs.LOGGER.propagate)
    try:
        logs.configure("warning", "json")
        logs.LOGGER.info("not this")
        logs.LOGGER.warning(logs.LogLine("lost", {"job": 1}))
        out, err = capsys.readouterr()
        assert out == ""
        assert json.loads(err)["event"] == "lost"
    finally:
        logs.LOGGER.handlers[:], logs.LOGGER.propagate = before[0], before[2]
        logs.LOGGER.setLevel(before[1])


def test_of_repeated_trouble_there_are_a_few_lines_and_one_with_a_count(logger: logging.Logger) -> None:
    lines = listening(logger, logging.INFO)
    events = Events()
    logs.subscribe(events, logger)
    for tenant in ("acme", "other", ""):
        for _ in range(20):
            events.emit("error", 0, "jobs", row(tenant=tenant))
    assert [sum(f"tenant={name}" in line for line in lines.lines) for name in ("acme", "other")] == [5, 5]
    assert len(lines.lines) == 15, "with and without tenants"
    events.emit("engine stopped", 0)
    counted = [line.split(" ", 3)[3] for line in lines.lines if "count=15" in line]
    told = "count=15 seconds=0"
    assert counted == [
        f"error tenant=acme {told} type=charge", f"error tenant=other {told} type=charge",
        f"error queue=jobs type=charge {told}",
    ]  # fmt: skip
    events.emit("error", 0, "jobs", row(tenant="acme"))
    assert "key=order-17" in lines.lines[-1], "from the beginning"


def test_at_the_level_debug_nothing_is_left_out(logger: logging.Logger) -> None:
    lines = listening(logger, logging.DEBUG)
    events = Events()
    logs.subscribe(events, logger)
    for _ in range(20):
        events.emit("error", 0, "jobs", row(tenant="acme"))
    assert len(lines.lines) == 20


def test_a_failure_that_is_repeated_is_a_record_each_time_but_a_tenant_s(logger: logging.Logger) -> None:
    lines = listening(logger, logging.INFO)
    events = Events()
    logs.subscribe(events, logger)
    failed = Ran(0.25, Fault("error", "no", "ValueError"))
    for tenant in ("", "acme"):
        for _ in range(20):
            events.emit("gave up", 0, "jobs", row(tenant=tenant), failed)
    assert [sum(f" {level} " in line for line in lines.lines) for level in ("ERROR", "WARNING")] == [20, 5]


def test_what_an_answer_says_is_data_and_in_no_log(logger: logging.Logger) -> None:
    lines = listening(logger, logging.DEBUG)
    app = Hipq("shop", "sqlite://")
    logs.subscribe(app.events, logger)
    charge = app.queue("orders").job("charge")(lambda _: Wait())
    charge.answered(lambda _, answer: answer.data)
    charge.enqueue(key="a")
    app.run(until_empty=True)
    charge.answer("a", {"card": CANARY}, error=True)
    app.run(until_empty=True)
    app.close()
    (ended,) = [line for line in lines.lines if "gave up" in line]
    assert 'error="its answer says that the work failed"' in ended
    assert " WARNING " in ended
    assert CANARY not in "".join(lines.lines)


def test_no_moment_and_no_duration_is_a_count_of_microseconds(logger: logging.Logger) -> None:
    lines = listening(logger, logging.DEBUG)
    events = Events()
    logs.subscribe(events, logger)
    events.emit("tick", 0, "jobs", schedule="nightly", tick=1_700_000_000_000_000, id=1)
    events.emit("ok", 0, "jobs", row(), Ran(0.0000651, None))
    events.emit("again", 0, "jobs", row(code="retry", scheduled_run_time=1_700_000_000_000_000))
    assert lines.lines[0].endswith("tick queue=jobs schedule=nightly tick=2023-11-14T22:13:20+00:00 id=1")
    assert lines.lines[1].endswith(" duration=0.000065")
    assert lines.lines[2].endswith(" next_run=2023-11-14T22:13:20+00:00")
