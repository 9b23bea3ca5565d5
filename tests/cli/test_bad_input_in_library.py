"""The same bad input through `import hipq`: Invalid, one sentence, nothing stored. On every store."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hipq import Hipq, Invalid, Job, JobType, NameClash, Queue, aged, backoff, fixed, limit, schedule, share
from tests.cli.bad_input import BAD_KEYS, BAD_NAMES

HUGE = 10**5_000
LOOP: list[Any] = []
LOOP.append(LOOP)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@dataclass
class Charge:
    amount: float


class NoOffset(tzinfo):
    def utcoffset(self, _when: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


BAD_DATA: dict[str, Any] = {
    "NaN": math.nan,
    "infinity inside": {"a": [1, -math.inf]},
    "NaN in a tuple": (1.0, math.nan),
    "NaN in a dataclass": Charge(math.nan),
    "NaN in a set": {1.0, math.nan},
    "2^63": 1 << 63,
    "-2^63-1": [-(1 << 63) - 1],
    "5,000 digits": HUGE,
    "5,000 digits inside": {"a": [HUGE]},
    "a list in itself": LOOP,
    "150 levels": nested(150),
    "100,000 levels": nested(100_000),
    "a lone surrogate": "\ud800",
    "a lone surrogate as a name": {"\ud800": 1},
    "NUL": ["a\x00b"],
    "NUL in a name": {"a\x00b": 1},
    "an object": object(),
    "a function": print,
    "a complex number": 1j,
    "one byte too many": "a" * (16 << 20),
    "a set": {1},
    "a tuple": {"a": (1, 2)},
    "bytes": [b"a"],
    "a Decimal": Decimal(1),
    "a datetime": datetime(2031, 1, 15, tzinfo=UTC),
    "a key that is a number": {1: 2},
    "a dataclass without a type": Charge(1.0),
}
BAD_OPTIONS: dict[str, list[Any]] = {
    "priority": [-(1 << 31) - 1, 1 << 31, 1 << 63, HUGE, -HUGE, 1.5, math.nan, True, "5"],
    "throttle_factor": [0, -1, 1_000_001, 1 << 63, HUGE, 0.0001, 0.1 + 0.2, math.inf, math.nan, True, "1"],
    "timeout": [0, -1, 0.0001, math.nan, math.inf, 1e300, 1 << 63, HUGE, True, "5", timedelta(-1), timedelta.max, []],
    "delay": [-1, -0.001, math.nan, math.inf, 1e300, 1 << 63, HUGE, -HUGE, True, "5", timedelta(-1), timedelta.max],
    "at": [
        datetime(2031, 1, 15),
        datetime(2031, 1, 15, tzinfo=NoOffset()),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=12))),
        date(2031, 1, 15),
        "2031-01-15T08:00:00Z",
        1_900_000_000,
    ],
    "key": [*BAD_KEYS.values(), 5, b"a", ["a"]],
    "on_duplicate": ["ignore", "", None, "a" * 65_536],
    "conn": [5, "sqlite:///shop.db"],
}


@pytest.fixture
def app(database: Callable[[], int], folder: Path) -> Iterator[Hipq]:  # noqa: ARG001
    app = Hipq("shop", os.environ.get("HIPQ_DATABASE_URL"))
    app.queue("orders").job(_quick)
    yield app
    app.close()


def _quick(job: Job[Any]) -> None: ...


@pytest.fixture
def quick(app: Hipq) -> JobType:
    return app.queues[0].job_types[0]


@pytest.fixture
def refused(database: Callable[[], int], quick: JobType) -> Callable[..., str]:
    def enqueue(data: Any = 1, job_type: JobType | None = None, **options: Any) -> str:
        before = database()
        with pytest.raises(Invalid) as raised:
            (job_type or quick).enqueue(data, **options)
        assert database() == before
        sentence = str(raised.value)
        assert 0 < len(sentence) < 600
        assert "\n" not in sentence
        return sentence

    return enqueue


@pytest.mark.parametrize("data", BAD_DATA.values(), ids=BAD_DATA)
def test_bad_data_is_refused(refused: Callable[..., str], data: Any) -> None:
    assert "data" in refused(data)


@pytest.mark.parametrize("option", BAD_OPTIONS)
def test_bad_options_are_refused(refused: Callable[..., str], option: str) -> None:
    for value in BAD_OPTIONS[option]:
        assert refused(**{option: value})


def test_one_bad_job_of_many_stores_none(database: Callable[[], int], quick: JobType) -> None:
    cases: list[tuple[list[Any], dict[str, Any]]] = [
        ([1, 2, math.nan], {}),
        ([1, 2, 3], {"keys": ["a", "b", "c\x00"]}),
        ([1, 2, 3], {"keys": ["a", "b"]}),
        ([1, 2, 3], {"keys": ["a", "b", "a"]}),
        ([1, 2, 3], {"delay": -1}),
    ]
    for data, options in cases:
        with pytest.raises(Invalid):
            quick.enqueue_many(data, **options)
        with pytest.raises(Invalid):
            asyncio.run(quick.aenqueue_many(data, **options))
    with pytest.raises(Invalid):
        asyncio.run(quick.aenqueue(math.nan))
    assert database() == 0


@pytest.mark.parametrize("name", [*BAD_NAMES.values(), 5, None, b"a"], ids=[*BAD_NAMES, "a number", "None", "bytes"])
def test_bad_names_are_refused(database: Callable[[], int], app: Hipq, name: Any) -> None:
    for declare in (
        lambda: Hipq(name),
        lambda: app.queue(name),
        lambda: app.queues[0].enqueue(name),
        lambda: Hipq("shop", table_naming=lambda _hipq, _queue: name).queue("mails").number,
    ):
        with pytest.raises(Invalid) as raised:
            declare()
        assert len(str(raised.value)) < 600
    assert database() == 0


def test_a_payload_that_does_not_fit_its_type_is_refused(app: Hipq, refused: Callable[..., str]) -> None:
    @app.queue("bills").job
    def charge(_job: Job[Charge]) -> None: ...

    bad: list[Any] = [{}, {"amount": "five"}, {"amount": None}, [], None, "amount"]
    for data in bad:
        assert "Charge" in refused(data, charge)
    assert "data.currency is no field" in refused({"amount": 5, "currency": "EUR"}, charge)


def test_bad_declarations_are_refused(app: Hipq) -> None:
    (orders,) = app.queues
    bad: list[Callable[[], Any]] = [
        lambda: orders.job("a", timeout=0),
        lambda: orders.job("b", run_timeout=math.nan),
        lambda: orders.job("c", lifetime=-1),
        lambda: orders.job("d", priority=1 << 31),
        lambda: orders.job("e", throttle_factor=0),
    ]
    for one in bad:
        with pytest.raises(Invalid):
            one()(lambda _job: None)
    for two in (
        lambda: app.queue("orders"),
        lambda: app.queue("x", order="fast"),
        lambda: app.queue("x", grain=0),
        lambda: app.queue("x", grain=math.nan),
        lambda: aged(-1),
        lambda: aged(math.inf),
        lambda: backoff(0),
        lambda: backoff(factor=math.nan),
        lambda: backoff(jitter=2),
        lambda: fixed(-1),
        lambda: schedule([1, math.nan]),
        lambda: app.engine(["orders", "fly"]),
        lambda: app.engine(concurrency=0),
        lambda: app.engine(concurrency=HUGE),
        lambda: app.engine(poll=0),
    ):
        with pytest.raises(Invalid):
            two()


@dataclass
class Plain:
    amount: complex


@dataclass
class Lost:
    amount: "Nowhere"  # type: ignore[name-defined]  # noqa: F821, UP037


class Odd:
    """Nothing that JSON could become."""


def _fresh(job: Any) -> None: ...
def _no_parameter() -> None: ...
def _two_parameters(_job: Any, _more: Any) -> None: ...
def _three_parameters(_job: Any, _more: Any, _most: Any) -> None: ...
def _only_named(*, job: Any) -> None: ...
async def _async_retry(_job: Any, _fault: Any) -> None: ...
def _yields(_job: Any) -> Any:
    yield


def _yields_two(_job: Any, _more: Any) -> Any:
    yield


async def _yields_async(_job: Any) -> Any:
    yield


def _of_nowhere(_job: Job[Nowhere]) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def _of_lost(_job: Job[Lost]) -> None: ...
def _of_odd(_job: Job[Odd]) -> None: ...
def _of_odd_inside(_job: Job[list[Plain]]) -> None: ...
def _of_any(_job: Job[Any]) -> None: ...


def _charge(queue: Any) -> Any:
    return queue.job("charge")(_quick)


DECLARED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a number of retries": (lambda queue: queue.job(retry=3)(_fresh), "retry=backoff(attempts=3)"),
    "a policy that is not called": (lambda queue: queue.job(retry=backoff)(_fresh), "retry=backoff(attempts=3)"),
    "another one": (lambda queue: queue.job(retry=fixed)(_fresh), "retry=backoff(attempts=3)"),
    "an exception for retry": (lambda queue: queue.job(retry=ValueError)(_fresh), "like retry=backoff(on=ValueError)"),
    "a class for retry": (lambda queue: _charge(queue).retry(dict), "like retry=backoff(attempts=3)"),
    "a class for a strategy": (lambda queue: queue.app.retry_strategy("a")(KeyError), "backoff(on=KeyError)"),
    "a generator for a handler": (lambda queue: queue.job(_yields), "write return, not yield, in _yields"),
    "an async generator": (lambda queue: queue.job(_yields_async), "write return, not yield"),
    "a generator for an answer": (lambda queue: _charge(queue).answered(_yields_two), "write return, not yield"),
    "a generator to cancel": (lambda queue: _charge(queue).cancelled(_yields), "write return, not yield"),
    "a generator that retries": (lambda queue: _charge(queue).retry(_yields_two), "write return, not yield"),
    "a generator for late ones": (lambda queue: _charge(queue).on_late(_yields_two), "write return, not yield"),
    "a limit of nothing": (lambda queue: queue.app.rules.set_limit("orders", 0), "pause('orders') stops the queue"),
    "a limit below nothing": (lambda queue: queue.app.rules.set_limit("orders", -1), "from 0.001"),
    "a limit of another word": (lambda queue: queue.app.rules.set_limit("orders", "no"), "limit"),
    "to resume a type": (lambda queue: queue.app.resume("orders", type="typo"), "no job type 'typo'"),
    "a retry of one parameter": (lambda queue: queue.job(retry=_quick)(_fresh), "write def _quick(job, fault)"),
    "a retry handler of one": (lambda queue: _charge(queue).retry(_quick), "write def _quick(job, fault)"),
    "an async retry handler": (lambda queue: _charge(queue).retry(_async_retry), "write def, not async def"),
    "a retry strategy of one": (lambda queue: queue.app.retry_strategy("a")(_quick), "write def _quick(job, fault)"),
    "a throttler of one": (lambda queue: queue.app.queue("a", throttler=_quick), "_quick(due, running, now)"),
    "the name of an exception": (lambda _queue: backoff(on="ValueError"), "like on=TimeoutError"),  # type: ignore[arg-type]
    "a number for an exception": (lambda _queue: backoff(never=5), "like on=TimeoutError"),  # type: ignore[arg-type]
    "a handler of nothing": (lambda queue: queue.job(_no_parameter), "write def _no_parameter(job)"),
    "a handler of two": (lambda queue: queue.job(_two_parameters), "write def _two_parameters(job)"),
    "a handler with a name": (lambda queue: queue.job("a")(_two_parameters), "write def _two_parameters(job)"),
    "a handler of names": (lambda queue: queue.job(_only_named), "write def _only_named(job)"),
    "a method": (lambda queue: queue.job("a")(queue.enqueue_many), "is called with (job)"),
    "an answer handler of one": (lambda queue: _charge(queue).answered(_quick), "write def _quick(job, answer)"),
    "an answer handler of three": (lambda queue: _charge(queue).answered(_three_parameters), "(job, answer)"),
    "a cancel handler of two": (lambda queue: _charge(queue).cancelled(_two_parameters), "(job)"),
    "on_late of one": (lambda queue: _charge(queue).on_late(_quick), "write def _quick(job, answer)"),
    "on_late of one, given": (lambda queue: queue.job(on_late=_quick)(_fresh), "(job, answer)"),
    "lane_by of nothing": (lambda queue: queue.app.queue("a", lane_by=_no_parameter), "write def _no_parameter(job)"),
    "a type that is not there": (lambda queue: queue.job(_of_nowhere), "at the top of the module"),
    "a type with one that is not there": (lambda queue: queue.job(_of_lost), "Job[Lost] cannot be read from JSON"),
    "a type that JSON cannot be": (lambda queue: queue.job(_of_odd), "cannot make a Odd: write a dataclass"),
    "one that has such a type": (lambda queue: queue.job(_of_odd_inside), "cannot make a complex"),
    "an instance named hipq": (lambda _queue: Hipq("hipq"), 'like Hipq("shop")'),
    "one that begins so": (lambda _queue: Hipq("hipq_shop"), 'like Hipq("shop")'),
    "one named pg": (lambda _queue: Hipq("pg", "sqlite://"), 'like Hipq("shop")'),
    "a schedule's key": (lambda queue: _charge(queue).cron("* * * * *", key="a"), "key is not its"),
    "a pause of a type": (lambda queue: queue.app.pause("orders", type="typo"), "no job type 'typo'"),
    "shares of too little": (
        lambda queue: queue.app.queue("a", limits=[limit(5), share({"east": 97, "west": 3})]), "must be at least 34",
    ),
    "others' share of too little": (
        lambda queue: queue.app.queue("a", limits=[limit(5), share({"east": 97}, other=1)]), "must be at least 100",
    ),
    "a limit below shares": (lambda queue: _shared(queue.app).rules.set_limit("shared", 2), "must be at least 5"),
    "an oracle database": (lambda _queue: Hipq("x", "oracle://y"), "no jobs in oracle databases"),
}  # fmt: skip


def _shared(app: Hipq) -> Hipq:
    app.queue("shared", limits=[limit(5), share({"east": 80, "west": 20})])
    return app


@pytest.mark.parametrize(("declare", "sentence"), DECLARED.values(), ids=DECLARED)
def test_what_cannot_work_is_refused_where_it_is_written(
    app: Hipq, declare: Callable[[Queue], Any], sentence: str
) -> None:
    with pytest.raises(Invalid) as raised:
        declare(app.queues[0])
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


def test_what_can_work_is_taken(app: Hipq) -> None:
    """Handlers of every kind, a type that is known to jobs only, an instance of hipq's name with tables named apart."""
    (orders,) = app.queues
    codes: list[Any] = [_of_any, partial(_two_parameters, 1), print, lambda *_all: None, Code()]
    for number, code in enumerate(codes):
        orders.job(f"type{number}", retry=lambda *_all: None)(code)
    assert orders.job_types[-1].spec.data.type is Charge
    orders.enqueue("unknown_here")
    app.pause("orders", type="unknown_here")
    app.pause("orders", type="type0")
    app.resume("orders", type="type1")
    assert Hipq("hipq", table_naming=lambda _hipq, queue: f"jobs_{queue}").queue("orders").name == "orders"
    app.queue("b", limits=[limit(34), share({"east": 97, "west": 3})])


class Code:
    def __call__(self, job: Job[Charge]) -> None: ...


def test_bad_questions_are_refused(app: Hipq, quick: JobType) -> None:
    job_id = quick.enqueue()
    questions: list[Callable[[], Any]] = [
        lambda: app.job(0),
        lambda: app.job(-1),
        lambda: app.job(1 << 63),
        lambda: app.job(HUGE),
        lambda: app.job("1"),  # type: ignore[arg-type]
        lambda: app.job(True),
        lambda: app.jobs("fly"),
        lambda: app.jobs("orders", limit=0),
        lambda: app.jobs.prune(-1),
        lambda: app.jobs.prune(math.nan),
        lambda: app.jobs.prune(HUGE),
        lambda: app.jobs.prune(1, "fly"),
    ]
    for ask in questions:
        with pytest.raises(Invalid):
            ask()
    assert app.job(job_id).state == "initial"


@pytest.mark.parametrize(
    "db",
    [5, "", "shop", "sqlite:", "sqlite:/shop.db", "oracle://a:s3cret@b/c", {"driver": "db2"}, {"a": 1}],
)  # fmt: skip
def test_bad_databases_are_refused(folder: Path, db: Any) -> None:  # noqa: ARG001
    with pytest.raises(Invalid) as raised:
        Hipq("shop", db)
    assert "s3cret" not in str(raised.value)


ALSO: dict[str, Callable[[JobType], Any]] = {
    "malformed JSON as it is": lambda quick: quick.enqueue(msgspec.Raw(b'{"a": NaN')),
    "bytes that are not UTF-8 as they are": lambda quick: quick.enqueue([msgspec.Raw(b'"\xff"')]),
    "the same name twice": lambda quick: quick.enqueue({1: "a", "1": "b"}),
    "a page after 2^63": lambda quick: quick.queue.app.jobs("orders", after=1 << 63),
    "a lone surrogate to look for": lambda quick: quick.queue.app.jobs("orders", key="\ud800"),
    "a lone surrogate as a reason": lambda quick: quick.queue.app.cancel(quick.enqueue(key="a"), "\ud800"),
    "a reason of 10 MB": lambda quick: quick.queue.app.cancel(quick.enqueue(key="b"), "a" * 10_000_000),
    "a NUL in a file name": lambda quick: Hipq("shop", f"sqlite:///{quick.name}\x00").queue("orders").number,
    "a lone surrogate in a file name": lambda _quick: Hipq("shop", "sqlite:///\ud800").queue("orders").number,
}


@pytest.mark.parametrize("ask", ALSO.values(), ids=ALSO)
def test_what_is_easily_forgotten_is_refused_too(folder: Path, ask: Callable[[JobType], Any]) -> None:
    app = Hipq("shop", f"sqlite:///{folder}/poisoned.db")
    try:
        with pytest.raises(Invalid):
            ask(app.queue("orders").job(_quick))
    finally:
        app.close()


@pytest.mark.parametrize(("first", "second"), [("q_set", "q_set_key"), ("q_set_key", "q_set"), ("a", "a_final")])
def test_a_queue_whose_table_would_clash_is_refused_where_it_is_declared(app: Hipq, first: str, second: str) -> None:
    app.queue(first)
    with pytest.raises(NameClash, match=f"queue {second} wants the table .*, and queue {first} has the table"):
        app.queue(second)
    assert second not in [queue.name for queue in app.queues]
