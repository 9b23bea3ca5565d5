"""What a user hands in comes back as it went in, or is refused with the path of what would not. On every store."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pytest

from hipq import Answer, Failed, Hipq, Invalid, Job, Ok, Queue, Retry, Wait

Run = Callable[[], None]
WHEN = datetime(2031, 1, 15, 8, tzinfo=UTC)


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Line:
    name: str
    price: Decimal = Decimal(0)


@dataclass
class Charge:
    amount: Decimal
    when: datetime
    tags: set[str]
    seal: bytes
    pair: tuple[int, str]
    lines: list[Line] = field(default_factory=list)
    by_number: dict[int, str] = field(default_factory=dict)
    colour: Colour | None = None
    rest: Any = None


class StructCharge(msgspec.Struct, rename="camel"):
    amount: Decimal
    when: datetime
    tags: frozenset[str]
    seal: bytes
    pair: tuple[int, str]
    lines: list[Line] = []
    by_number: dict[int, str] = {}
    rest: Any = None


class DictCharge(TypedDict):
    amount: Decimal
    when: datetime
    tags: set[str]
    seal: bytes
    pair: tuple[int, str]
    lines: NotRequired[list[Line]]


FIELDS: dict[str, Any] = {
    "amount": Decimal("1.10"), "when": WHEN, "tags": {"a", "b"}, "seal": b"\x00\xff", "pair": (1, "x"),
}  # fmt: skip

STRANGERS: dict[str, tuple[Any, str, str]] = {
    "a set": ({1, 2}, "", "sorted(...)"),
    "a tuple": ((1, 2), "", "list(...)"),
    "an empty tuple": ((), "", "list(...)"),
    "bytes": (b"a", "", "base64.b64encode(...).decode()"),
    "a Decimal": (Decimal("1.0"), "", "str(...)"),
    "a datetime": (WHEN, "", "(...).isoformat()"),
    "a date": (WHEN.date(), "", "(...).isoformat()"),
    "a timedelta": (timedelta(1), "", "(...).total_seconds()"),
    "a UUID": (UUID(int=1), "", "str(...)"),
    "an enum": (Colour.RED, "", "(...).value"),
    "a named tuple": (Point(1, 2), "", "list(...)"),
    "a dataclass": (Line("a"), "", "msgspec.to_builtins(...)"),
    "a key that is a number": ({1: 2}, " has the key 1", "str(...)"),
    "the same key twice": ({1: "a", "1": "b"}, " has the key 1", "str(...)"),
    "a Decimal deep inside": ({"items": [1, 2, 3, {"price": Decimal("1.0")}]}, ".items[3].price is", "str(...)"),
    "a tuple in a tuple": ({"a b": [[], [(1,)]]}, "['a b'][1][0] is", "list(...)"),
    "a key inside": ({"a": [{"b": {2: 3}}]}, ".a[0].b has the key 2", "str(...)"),
    "a dataclass inside": ([Line("a")], "[0] is", "msgspec.to_builtins(...)"),
    "an object inside": ({"a": [1, object()]}, ".a[1] is not JSON", ""),
    "a key of a tuple inside": ([{(1, 2): 3}], "[0]", ""),
}


@pytest.mark.parametrize(("data", "path", "instead"), STRANGERS.values(), ids=STRANGERS)
def test_what_would_come_back_otherwise_is_refused_with_its_path(
    app: Hipq, queue: Queue, data: Any, path: str, instead: str
) -> None:
    """Wherever data is handed in: a payload, an answer, and what a handler returns or adds."""
    job_type = queue.job("work")(lambda _: Wait())
    asked: list[Callable[[], Any]] = [
        lambda: job_type.enqueue(data),
        lambda: job_type.enqueue_many([1, data]),
        lambda: queue.enqueue("other", data),
        lambda: job_type.cron("* * * * *", data),
        lambda: job_type.answer("k", data),
        lambda: app.answer("orders", "work", "k", data),
    ]
    for ask in asked:
        with pytest.raises(Invalid) as raised:
            ask()
        assert f"data{path}" in str(raised.value)
        assert instead in str(raised.value)
        assert "\n" not in str(raised.value)
        assert len(str(raised.value)) < 300
    with pytest.raises(Invalid, match=r"Job\[") if instead else pytest.raises(Invalid):
        job_type.enqueue(data)
    assert app.jobs.count("orders") == 0


@pytest.mark.parametrize(("data", "path", "instead"), STRANGERS.values(), ids=STRANGERS)
def test_what_a_handler_says_is_as_strict(
    app: Hipq, queue: Queue, run: Run, data: Any, path: str, instead: str
) -> None:
    """It is an error of its job, which names the path: who wants the result gets what was returned, or is told."""

    def adds(job: Job[Any]) -> None:
        job.enqueue("other", data)

    handlers: dict[str, Callable[[Any], Any]] = {
        "returns": lambda _: data,
        "ok": lambda _: Ok(data),
        "retry": lambda _: Retry(5, data=data),
        "adds": adds,
        "waits": lambda _: Wait(on_timeout=Ok(data)),
    }
    ids = {name: queue.job(name)(handler).enqueue(name) for name, handler in handlers.items()}
    run()
    for name, job_id in ids.items():
        job = app.job(job_id)
        assert (job.state, job.code) == ("final", "error"), name
        assert path in job.error
        assert instead in job.error or not instead


def test_a_reason_may_be_anything(app: Hipq, queue: Queue, run: Run) -> None:
    """It is for people; and a job that has failed must not be tried again because of how it says so."""
    reasons: list[Any] = [(1, 2), Decimal(5), object(), {"a": 1}]
    ids = [queue.enqueue("work", n) for n in range(len(reasons))]
    queue.job("work")(lambda job: Failed(reasons[job.data]))
    run()
    assert {app.job(job_id).code for job_id in ids} == {"failed"}


def test_plain_json_comes_back_equal(app: Hipq, queue: Queue, run: Run) -> None:
    data = {"a": [1, 1.5, None, True, "x", {"b": []}], "": {}, "ü 1": -0.5, "n": (1 << 63) - 1}
    job_id = queue.job("work")(lambda job: job.data).enqueue(data)
    run()
    assert app.job(job_id).result == data


# -- typed ones ------------------------------------------------------------------------------------------------------
def _typed(queue: Queue, kind: Any, seen: list[Any]) -> Any:
    def work(job: Job[Any]) -> None:
        seen.append(job.data)

    work.__annotations__["job"] = Job[kind]
    return queue.job(work)


@pytest.mark.parametrize("process", [False, True], ids=["in a thread", "in a process"])
@pytest.mark.parametrize("kind", [Charge, StructCharge, DictCharge])
def test_a_typed_payload_comes_back_by_its_type(app: Hipq, queue: Queue, run: Run, kind: Any, process: bool) -> None:
    given = kind(**FIELDS, lines=[Line("a", Decimal("2.50"))])

    def work(job: Job[Any]) -> str:
        assert job.data == given
        assert type(job.data) is type(given)
        return repr(job.data)

    work.__annotations__["job"] = Job[kind]
    job_id = queue.job(process=process)(work).enqueue(given)
    run()
    assert (app.job(job_id).error, app.job(job_id).code) == ("NONE", "ok")


@pytest.mark.parametrize(("kind", "name"), [(Charge, "by_number"), (StructCharge, "byNumber"), (DictCharge, "lines")])
def test_a_typed_payload_may_be_written_as_a_mapping(queue: Queue, run: Run, kind: Any, name: str) -> None:
    """As Python values, or as the JSON of them."""
    seen: list[Any] = []
    job_type = _typed(queue, kind, seen)
    as_json = {"amount": "1.10", "when": WHEN.isoformat(), "tags": ["b", "a"], "seal": "AP8=", "pair": [1, "x"]}
    more = {name: [{"name": "a"}] if name == "lines" else {"1": "x"}}
    job_type.enqueue(FIELDS)
    job_type.enqueue(as_json)
    job_type.enqueue(as_json | more)
    run()
    plain = kind(**FIELDS)
    assert plain in seen
    assert sum(one == plain for one in seen) == 2


BAD_FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "a field that is not there": ({"amuont": 5}, "data.amuont is no field of its type: did you mean amount?"),
    "one far from all": ({"zzz": 5}, "data.zzz is no field of its type"),
    "a field inside": ({"lines": [{"name": "a"}, {"name": "b", "pirce": 1}]}, "data.lines[1].pirce is no field"),
}


@pytest.mark.parametrize("kind", [Charge, StructCharge, DictCharge])
@pytest.mark.parametrize(("more", "sentence"), BAD_FIELDS.values(), ids=BAD_FIELDS)
def test_a_field_that_its_type_does_not_have_is_refused(
    app: Hipq, queue: Queue, kind: Any, more: dict[str, Any], sentence: str
) -> None:
    job_type = _typed(queue, kind, [])
    with pytest.raises(Invalid) as raised:
        job_type.enqueue(FIELDS | more)
    assert sentence in str(raised.value)
    with pytest.raises(Invalid) as raised:
        job_type.enqueue_many([FIELDS, FIELDS | more])
    assert sentence in str(raised.value)
    assert app.jobs.count("orders") == 0


@dataclass
class More(Charge):
    more: int = 0


def test_what_a_type_would_lose_is_refused(queue: Queue) -> None:
    job_type = _typed(queue, Charge, [])
    fields = FIELDS | {"colour": Colour.RED}
    for data, sentence in (
        (More(**FIELDS, more=5), "data is of type More"),
        (Charge(**FIELDS, rest={"a": [WHEN]}), "data.rest.a[0] is of type datetime"),
        (Charge(**FIELDS, rest={1: 2}), "data.rest has the key 1"),
        (fields | {"rest": (1, 2)}, "data.rest is of type tuple"),
        (fields | {"lines": (Line("a"),)}, "data.lines is of type tuple"),
        (fields | {"when": date(2031, 1, 15)}, "does not fit work's Charge"),
    ):
        with pytest.raises(Invalid) as raised:
            job_type.enqueue(data)
        assert sentence in str(raised.value)
    job_type.enqueue(fields)


def test_a_retry_changes_typed_data_by_its_type(app: Hipq, queue: Queue, run: Run) -> None:
    seen: list[Any] = []

    @queue.job
    def work(job: Job[Line]) -> Any:
        seen.append(job.data)
        return Retry(0, data=Line("b", Decimal("2.5"))) if job.attempt == 1 else None

    @queue.job
    def wrong(_job: Job[Line]) -> Any:
        return Retry(0, data={"nome": "b"})

    work.enqueue(Line("a"))
    lost = wrong.enqueue({"name": "a"})  # type: ignore[arg-type]
    run()
    assert seen == [Line("a"), Line("b", Decimal("2.5"))]
    assert "does not fit wrong's Line" in app.job(lost).error


def test_an_answer_comes_back_as_it_went_in(app: Hipq, queue: Queue, run: Run) -> None:
    seen: list[Any] = []
    job_type = queue.job("work")(lambda _: Wait())

    @job_type.answered
    def answered(_job: Job[Any], answer: Answer) -> Any:
        seen.append(answer.data)
        return {1: 2} if len(seen) == 1 else {"n": 2}

    job_id = job_type.enqueue(key="k")
    run()
    job_type.answer("k", {"paid": [1, None]})
    run()
    assert seen[0] == {"paid": [1, None]}
    assert "the result has the key 1" in app.job(job_id).history[-1]["error"]
