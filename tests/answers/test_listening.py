"""Answers that come as messages: read, kept in one transaction, then acknowledged; and what cannot be read."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hipq import Hipq, Invalid, JobType, StoreUnavailable, Wait
from hipq.answers import listening
from hipq.answers.checkpoints import SECONDS, StoredCheckpoints
from hipq.answers.listening import Listener
from hipq.answers.reports import as_rows, streams
from hipq.errors import StoreBroken, StoreRefused, TransportUnavailable
from hipq.events import Event
from hipq.job.answer import Answered
from hipq.job.view import Job
from hipq.testing.clock import HandClock
from hipq.testing.under_test import elsewhere
from hipq.transports import Message
from hipq.transports.base import quoted
from tests import processes

URL = "redis://nobody:secret@nowhere:1/answers"
SHOWN = "redis://nobody@nowhere:1/answers"


class Script:
    """A source that plays messages in, batch by batch, and remembers what was acknowledged. A function in it is called
    when its turn comes."""

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self.acknowledged: list[str] = []
        self.opened = self.closed = 0
        self.most = 0
        self.behind: int | None = None
        self.finished: Callable[[], None] = lambda: None

    def source(self, *_: Any) -> Script:
        self.opened += 1
        return self

    def receive(self, most: int, _seconds: float) -> Sequence[Message]:
        self.most = most
        if not self.batches:
            self.finished()
            return []
        found = self.batches.pop(0)
        return list(found() if callable(found) else found)

    def done(self, messages: Sequence[Message]) -> None:
        self.acknowledged += [message.id for message in messages]

    def lag(self) -> int | None:
        return self.behind

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    script = Script()
    monkeypatch.setattr(listening, "source", script.source)
    monkeypatch.setattr(listening, "FIRST_PAUSE", 0.001)
    return script


@pytest.fixture
def charge(app: Hipq) -> JobType:
    orders = app.queue("orders")

    @orders.job
    def charge(_job: Job[Any]) -> Wait:
        return Wait()

    return charge


def message(body: bytes | str, job_id: str = "m1", **more: Any) -> Message:
    return Message(body.encode() if isinstance(body, str) else body, job_id, **more)


def play(app: Hipq, script: Script, *batches: Any) -> Listener:
    """Listen until these have been dealt with."""
    (listener,) = app.streams.listeners()
    script.batches = list(batches)
    script.finished = listener.stop
    listener.run()
    return listener


def heard(app: Hipq) -> list[Event]:
    events: list[Event] = []
    app.events.subscribe(events.append)
    return events


def waiting(app: Hipq, charge: JobType, *keys: str) -> list[int]:
    ids = charge.enqueue_many([None] * len(keys), keys=list(keys))
    app.run(until_empty=True)
    return [*ids]


# -- reading ---------------------------------------------------------------------------------------------------------
def test_answers_find_their_jobs_and_are_acknowledged(app: Hipq, charge: JobType, script: Script) -> None:
    app.listen(URL, to=charge, key="order.ref")
    with app.streams.listening():  # it has nothing to say yet
        pass
    ids = waiting(app, charge, "a", "17")
    play(app, script, [message('{"order": {"ref": "a"}}'), message('{"order": {"ref": 17}}', "m2")])
    assert script.acknowledged == ["m1", "m2"]
    assert [app.result(job_id) for job_id in ids] == [{"order": {"ref": "a"}}, {"order": {"ref": 17}}]


@pytest.mark.usefixtures("charge")
@pytest.mark.parametrize(
    ("options", "sent", "reason"),
    [
        ({}, message("{}"), "the message has no hipq-key header and no key of its own: give `listen` a key="),
        ({"key": "ref"}, message("{}"), "key: the message has no field ref"),
        ({"key": "ref.0.a"}, message('{"ref": []}'), "key: the message has no field ref.0"),
        ({"key": "ref"}, message("{no"), "the message is not JSON: "),
        ({"key": "ref"}, message(b"\xff\xfe"), "the message is not UTF-8 text"),
        ({"key": "ref"}, message(""), "key: the message has no field ref"),
        ({"key": "ref"}, message('{"ref": null}'), "a job key must be a string, not NoneType"),
        ({"key": "ref"}, message('{"ref": true}'), "a job key must be a string, not bool"),
        ({"key": "ref"}, message('{"ref": ""}'), "a job key must have 1 to 500 characters"),
        ({"key": "ref"}, message('{"ref": "a\\nb"}'), "a job key must not contain control characters"),
        ({"key": lambda m: m.json["a"]["b"]}, message('{"a": 1}'), "key raised TypeError: "),
        ({"key": lambda _: "k", "error": lambda m: m.json["x"]}, message("{}"), "error raised KeyError: 'x'"),
        ({"key": lambda _: "k", "answer_id": lambda _: "\n"}, message("{}"), "an answer_id must have 1 to 500"),
        ({"key": lambda _: "k", "data": lambda _: [float("nan")]}, message("{}"), "an answer's data contains nan"),
        ({"key": lambda _: "k"}, message("[" * 200 + "]" * 200), "nested deeper than 100 levels"),
        ({"key": lambda _: "k"}, message('"\\u0000"'), "contains a NUL character"),
        ({"key": lambda _: "k"}, message('{"a": 99999999999999999999}'), "an integer outside 64 bits"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_kept_with_the_reason_and_stops_nothing(
    app: Hipq, script: Script, options: dict[str, Any], sent: Message, reason: str
) -> None:
    app.listen(URL, to=("orders", "charge"), **options)
    events = heard(app)
    good = message('{"ref": "k"}', "m2", headers={"hipq-key": "k"})
    play(app, script, [sent, good])
    assert script.acknowledged == ["m1", "m2"]
    bad = app.answers.list(state="unreadable")
    assert reason in bad[0].note
    assert bad[0].answer_id == "m1"
    assert next(event.details["error"] for event in events if event.name == "unreadable") == bad[0].note


def test_an_unreadable_message_shows_what_it_said(app: Hipq, charge: JobType, script: Script) -> None:
    app.listen(URL, to=charge)
    bodies = [b'{"a": 1}', b"plain text", b"\xff\x00", b"", b'"nul \\u0000"']
    play(app, script, [message(body, f"m{n}") for n, body in enumerate(bodies)])
    assert [one.data for one in app.answers.list()] == [
        {"a": 1}, "plain text", {"base64": "/wA=", "bytes": 2}, "", '"nul \\u0000"',
    ]  # fmt: skip


def test_it_can_be_given_the_key_it_lacked(app: Hipq, charge: JobType, script: Script) -> None:
    (job_id,) = waiting(app, charge, "a")
    app.listen(URL, to=charge)
    play(app, script, [message('{"paid": true}')])
    (bad,) = app.answers.list()
    with pytest.raises(Exception, match="names no job: `rekey` gives it a key"):
        app.answers.replay(bad.id)
    assert app.answers.rekey(bad.id, "a").outcome == "matched"
    assert app.result(job_id) == {"paid": True}


@pytest.mark.parametrize("key", ["50%off", "50%25off", "ünï/17", " lead", "a b", "%", "x" * 499 + "é"])
def test_a_key_in_a_header_is_the_key_that_was_sent(app: Hipq, charge: JobType, script: Script, key: str) -> None:
    app.listen(URL, to=charge)
    sent = quoted(key)
    assert sent.isascii()
    assert sent == sent.strip()
    play(app, script, [message("1", headers={"hipq-key": sent})])
    assert [one.key for one in app.answers.list()] == [key]


def test_headers_say_what_an_answer_is(app: Hipq, charge: JobType, script: Script) -> None:
    ids = waiting(app, charge, "a", "b", "c")
    app.listen(URL, to=charge)
    headers = [{"Hipq-Key": "a", "hipq-error": "true"}, {"hipq-key": "b", "hipq-attempt": "1"}, {}]
    keys = ["ignored", "", "c"]
    play(app, script, [message("1", f"m{n}", headers=headers[n], key=keys[n]) for n in range(3)])
    app.run(until_empty=True)
    assert [app.job(job_id).code for job_id in ids] == ["error", "ok", "ok"]
    assert [one.attempt for one in app.answers.list()] == [0, 1, 0]


@pytest.mark.parametrize(
    ("body", "is_error"),
    [('{"k": 1}', False), ('{"k": 1, "bad": true}', True), ('{"k": 1, "bad": "false"}', False),
     ('{"k": 1, "bad": "True "}', True), ('{"k": 1, "bad": ""}', False), ('{"k": 1, "bad": 0}', False),
     ('{"k": 1, "bad": {"code": 5}}', True)],
)  # fmt: skip
def test_a_field_says_whether_the_work_failed(
    app: Hipq, charge: JobType, script: Script, body: str, is_error: bool
) -> None:
    app.listen(URL, to=charge, key="k", error="bad")
    play(app, script, [message(body)])
    (kept,) = app.answers.list()
    assert (kept.state, kept.error) == ("buffered", is_error)


def test_a_failure_that_could_not_be_read_is_one_when_it_gets_its_key(
    app: Hipq, charge: JobType, script: Script
) -> None:
    (job_id,) = waiting(app, charge, "a")
    app.listen(URL, to=charge, key="ref")
    play(app, script, [message('"out of money"', headers={"hipq-error": "true"})])
    (bad,) = app.answers.list(state="unreadable")
    app.answers.rekey(bad.id, "a")
    app.run(until_empty=True)
    assert (app.job(job_id).code, str(app.job(job_id).fault)) == ("error", "answer: out of money")


def test_two_unreadable_messages_of_one_id_are_two(app: Hipq, charge: JobType, script: Script) -> None:
    app.listen(URL, to=charge)
    play(app, script, [message("{", "m1"), message("}", "m1"), message("{", "m1")])
    assert [(one.data, one.copies) for one in app.answers.list()] == [("{", 2), ("}", 1)]


# -- delivered again -------------------------------------------------------------------------------------------------
def test_what_comes_again_is_a_duplicate(app: Hipq, charge: JobType, script: Script) -> None:
    (job_id,) = waiting(app, charge, "a")
    app.listen(URL, to=charge)
    events = heard(app)
    both = [message("1", key="a"), message("{", "m2")]
    play(app, script, both, both)
    assert [event.name for event in events if event.name in (*Answered, "ok")] == [
        "matched", "ok", "unreadable", "duplicate", "duplicate",
    ]  # fmt: skip
    assert app.result(job_id) == 1
    assert [one.copies for one in app.answers.list()] == [2, 2]


def test_nothing_is_acknowledged_while_the_database_is_away(
    app: Hipq, charge: JobType, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job_id,) = waiting(app, charge, "a")
    app.listen(URL, to=charge)
    answer, tries = app.store.answer, 0

    def failing(*given: Any, **more: Any) -> Any:
        nonlocal tries
        tries += 1
        assert script.acknowledged == []
        if tries < 4:
            raise StoreUnavailable
        return answer(*given, **more)

    monkeypatch.setattr(app.store, "answer", failing)
    play(app, script, [message("1", key="a")])
    assert (tries, script.acknowledged, script.opened) == (4, ["m1"], 1)
    assert app.result(job_id) == 1


def test_one_that_the_database_refuses_does_not_cost_the_others(
    app: Hipq, charge: JobType, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = waiting(app, charge, *(f"k{n}" for n in range(20)))
    app.listen(URL, to=charge)
    answer = app.store.answer

    def refusing(news: Any, *given: Any, **more: Any) -> Any:
        if any(new.job_key == "k13" for new in news):
            raise StoreRefused("it does not like k13")
        return answer(news, *given, **more)

    monkeypatch.setattr(app.store, "answer", refusing)
    play(app, script, [message("1", f"m{n}", key=f"k{n}") for n in range(20)])
    assert [app.job(job_id).code for job_id in ids].count("ok") == 19
    (bad,) = app.answers.list(state="unreadable")
    assert (bad.answer_id, bad.note) == ("m13", "it does not like k13")
    assert len(script.acknowledged) == 20


# -- the other side is away ------------------------------------------------------------------------------------------
def test_a_broken_stream_is_opened_again(app: Hipq, charge: JobType, script: Script) -> None:
    (job_id,) = waiting(app, charge, "a")
    app.listen(URL, to=charge)
    events = heard(app)

    def broken() -> Any:
        raise TransportUnavailable("redis://nobody@nowhere:1/answers: it is gone")

    def bug() -> Any:
        raise ZeroDivisionError

    play(app, script, broken, broken, bug, [message("1", key="a")])
    assert app.result(job_id) == 1
    assert (script.opened, script.closed) == (4, 4)
    told = [(event.name, event.details.get("error")) for event in events if event.name.startswith("listener")]
    assert told == [
        ("listener started", None),
        ("listener down", "redis://nobody@nowhere:1/answers: it is gone"),
        ("listener down", "ZeroDivisionError: "),
        ("listener back", None),
        ("listener report", None),
        ("listener stopped", None),
    ]
    assert "secret" not in str([event.details for event in events])


def test_a_database_that_is_away_is_said_once(
    app: Hipq, charge: JobType, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting(app, charge, "a")
    app.listen(URL, to=charge)
    events = heard(app)
    answer, tries = app.store.answer, 0

    def failing(*given: Any, **more: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise StoreUnavailable("the database is away")
        return answer(*given, **more)

    monkeypatch.setattr(app.store, "answer", failing)
    play(app, script, [message("1", key="a")])
    told = [(event.name, event.details.get("error")) for event in events if event.name.startswith("listener")]
    assert told[1:3] == [("listener down", "the database is away"), ("listener back", None)]


def test_who_cannot_acknowledge_waits_ever_longer(app: Hipq, charge: JobType, script: Script) -> None:
    app.listen(URL, to=charge)
    tries = 0

    def wrong(_messages: Any) -> None:
        nonlocal tries
        tries += 1
        if tries == 5:
            listener.stop()
        raise TransportUnavailable("it is gone")

    script.done = wrong  # type: ignore[assignment, method-assign]
    (listener,) = app.streams.listeners()
    script.batches = [[message("1", key="a")] for _ in range(9)]
    listener.run()
    assert listener._pause >= 8 * listening.FIRST_PAUSE
    assert script.opened == 5


def test_a_database_that_cannot_be_trusted_is_the_end_of_it(
    app: Hipq, charge: JobType, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.listen(URL, to=charge)
    events = heard(app)

    def broken(*_: Any, **__: Any) -> Any:
        raise StoreBroken

    monkeypatch.setattr(app.store, "answer", broken)
    monkeypatch.setattr(app.store, "change_note", broken)
    listener = play(app, script, [message("1", key="a")])
    assert isinstance(listener.broken, StoreBroken)
    assert script.acknowledged == []
    assert events[-1].name == "listener stopped"
    assert "cannot be trusted" in events[-1].details["error"]


def test_a_report_that_cannot_be_written_costs_nothing_and_no_count(
    app: Hipq, charge: JobType, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.listen(URL, to=charge)
    monkeypatch.setattr(listening, "REPORT_EVERY", 0.0)
    events = heard(app)
    with monkeypatch.context() as patch:
        patch.setattr(app.store, "change_note", lambda *_: 1 / 0)
        play(app, script, [message("1", "m1", key="a")], [message("1", "m2", key="b")])
    assert script.opened == 1
    reports = [event.details for event in events if event.name == "listener report"]
    assert [(one["buffered"], one["listener"]) for one in reports] == [(1, f"orders.charge {SHOWN}")] * 2


def test_streams_of_one_name_in_two_places_are_two(app: Hipq, charge: JobType) -> None:
    app.listen("kinesis://answers?region=eu-west-1", to=charge)
    app.listen("kinesis://answers?region=us-east-1", to=charge)
    first, second = app.streams.listeners()
    assert first.name == "orders.charge kinesis://answers?region=eu-west-1"
    assert first.name != second.name
    with pytest.raises(Invalid, match=r"orders.charge kinesis://answers\?region=us-east-1 is listened to already"):
        app.listen("kinesis://answers?region=us-east-1", to=charge)


@pytest.mark.parametrize(
    "where", ["sqs://a?region=eu-west-1", "amqp://h/a", "redis://h/a?group=g", "nats://h/a?group=g"]
)
def test_streams_that_would_take_each_others_answers_are_refused(app: Hipq, charge: JobType, where: str) -> None:
    app.listen(where, to=charge)
    with pytest.raises(Invalid, match=r"is listened to for orders\.charge: orders\.refund would take some"):
        app.listen(where, to=("orders", "refund"))
    app.listen("redis://h/b", to=charge)
    app.listen("redis://h/b", to=("orders", "refund"))  # each has a group of its own, and sees everything


def test_a_test_takes_nobodys_messages(app: Hipq, charge: JobType, script: Script) -> None:
    app.listen(URL, to=charge)
    with elsewhere(app, "sqlite://", HandClock()), app.streams.listening():
        time.sleep(0.05)
    assert script.opened == 0


def test_more_are_asked_for_only_when_these_are_kept(app: Hipq, charge: JobType, script: Script) -> None:
    app.listen(URL, to=charge)

    def second() -> list[Message]:
        assert script.acknowledged == ["m1"]
        assert len(app.answers.list()) == 1
        return []

    play(app, script, [message("1", key="a")], second)
    assert script.most == 1000


# -- telling ---------------------------------------------------------------------------------------------------------
def test_what_came_is_counted_for_all_to_see(
    app: Hipq, charge: JobType, script: Script, clock: HandClock, make_app: Callable[[], Hipq]
) -> None:
    waiting(app, charge, "a")
    app.listen(URL, to=charge)
    script.behind = 3
    bodies = [message("1", key="a"), message("2", "m2", key="a"), message("3", "m3", key="early"), message("{", "m4")]
    for _ in range(2):  # the second time all of them are duplicates; the counts are of both
        play(app, script, bodies)
    (row,) = as_rows(streams(make_app().store, "shop"), list(Answered))
    assert row == {
        "listener": "orders.charge", "url": "redis://nobody@nowhere:1/answers", "listening": 0, "lag": None,
        "matched": 1, "conflict": 1, "buffered": 1, "unreadable": 1, "duplicate": 4, "late": 0, "error": "",
    }  # fmt: skip

    seen: list[Any] = []
    (listener,) = app.streams.listeners()

    def look() -> list[Message]:
        seen.extend(as_rows(streams(app.store, "shop"), list(Answered)))
        return []

    script.batches = [look]
    script.finished = listener.stop
    listener._reported = -1e9
    script.batches.insert(0, [])
    listener.run()
    assert (seen[0]["listening"], seen[0]["lag"]) == (1, 3)
    clock.advance(seconds=61)
    assert as_rows(streams(app.store, "shop"), [])[0]["listening"] == 0


# -- checkpoints -----------------------------------------------------------------------------------------------------
def test_a_part_is_one_readers_at_a_time(app: Hipq, clock: HandClock) -> None:
    app.queue("orders")
    one, two = StoredCheckpoints(app.store, "stream"), StoredCheckpoints(app.store, "stream")
    assert one.take("a") == ""
    assert two.take("a") is None
    assert one.keep("a", "7")
    assert not two.keep("a", "9")
    assert two.take("b") == ""
    one.leave("a")
    two.leave("b")
    assert two.take("a") == "7"
    assert not one.keep("a", "8")
    clock.advance(seconds=SECONDS - 0.1)
    assert one.take("a") is None
    clock.advance(seconds=0.2)
    assert one.take("a") == "7"
    assert two.read() == {"a": "7", "b": ""}
    assert StoredCheckpoints(app.store, "another").read() == {}


def test_the_part_of_a_process_that_died_is_free_at_once(app: Hipq, clock: HandClock) -> None:
    app.queue("orders")
    program = (
        "import sys, time; from hipq.answers.checkpoints import *; from hipq.stores.open import open_store\n"
        "checkpoints = StoredCheckpoints(open_store(sys.argv[1]), 'stream')\n"
        "checkpoints.take('a'); checkpoints.keep('a', '5')\n"
        "print(flush=True); time.sleep(60)"
    )
    with processes.Popen([sys.executable, "-c", program, app.url], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        clock.step(time.time() - clock.now() / 1e6)
        mine = StoredCheckpoints(app.store, "stream")
        assert mine.take("a") is None
        other.kill()
    assert mine.take("a") == "5"


# -- declaring -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("where", "options", "sentence"),
    [
        ("carrier-pigeon://coop", {}, "is no URL of a stream; there are kafka://, sqs://"),
        ("nonsense", {}, "is no URL of a stream"),
        ("redis://user:secret@host:6379", {}, "names a server and nothing on it; it looks like redis://server:6379/STREAM"),
        ("redis://:secret@host/", {}, "does not say what to listen to"),
        ("redis://host/x?colour=red", {}, "there is no option 'colour'"),
        ("redis://host/x", {"to": "orders"}, "to must be a job type, or a queue and a job type"),
        ("redis://host/x", {"to": ("nowhere", "charge")}, "nowhere"),
        ("redis://host/x", {"to": ("orders", "no good")}, "a job type must be"),
        ("redis://host/x", {"key": 7}, "key must be a function of the message, or a field of its JSON"),
        ("redis://host/x\n", {}, "without control characters"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_declaration_is_said_in_a_sentence(
    app: Hipq, charge: JobType, where: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(Invalid) as error:
        app.listen(where, **{"to": charge, **options})
    assert sentence in str(error.value)
    assert "secret" not in str(error.value)


def test_a_worker_listens_while_it_runs(app: Hipq, charge: JobType, script: Script) -> None:
    app.listen(URL, to=charge)
    job_id = charge.enqueue(key="a")

    def slow() -> list[Message]:
        time.sleep(0.2)
        return [message("1", key="a")]

    script.batches = [slow]
    with app.working():
        assert app.result(job_id, timeout=60) == 1
    assert script.closed == 1


def test_only_for_the_queues_it_works_on(app: Hipq, charge: JobType) -> None:
    app.queue("mails")
    app.listen(URL, to=charge)
    app.listen("redis://host/mails", to=("mails", "sent"))
    assert [one.name for one in app.streams.listeners(["mails"])] == ["mails.sent redis://host/mails"]
    assert len(app.streams.listeners()) == 2
