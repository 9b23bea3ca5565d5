"""Payloads and results that are Pydantic models: validated by Pydantic, at both ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_serializer, field_validator

from hipq import Fault, Hipq, Invalid, Job, Queue, Retry
from hipq.testing.clock import HandClock

Run = Callable[[], None]


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    price: Decimal = Decimal("9.90")


class Charge(BaseModel):
    amount: int = Field(gt=0, alias="theAmount")
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    tags: set[str] = set()
    items: list[Item] = []
    _seen: bool = PrivateAttr(default=False)

    @field_validator("tags")
    @classmethod
    def lower(cls, value: set[str]) -> set[str]:
        return {tag.lower() for tag in value}


class Receipt(BaseModel):
    number: int


@dataclass
class Basket:
    items: list[Item]


def _charge(amount: int, **more: object) -> Charge:
    return Charge.model_validate({"theAmount": amount, **more})


def test_a_model_goes_in_and_comes_out(app: Hipq, queue: Queue, run: Run) -> None:
    seen: list[Charge] = []

    @queue.job
    def charge(job: Job[Charge]) -> Receipt:
        seen.append(job.data)
        return Receipt(number=job.data.amount)

    given = _charge(5, tags={"NEW", "red"}, items=[Item(name="tea", price=Decimal("1.25"))])
    job_id = charge.enqueue(given)
    run()
    assert seen == [given]
    assert job_id.result(5) == Receipt(number=5)
    assert app.job(job_id).data["theAmount"] == 5
    assert app.job(job_id).result == {"number": 5}


def test_what_pydantic_makes_of_plain_data_is_stored(app: Hipq, queue: Queue) -> None:
    @queue.job
    def charge(job: Job[Charge]) -> None: ...

    job_id = charge.enqueue({"theAmount": "5", "tags": ["A"]})  # type: ignore[arg-type]
    assert app.job(job_id).data == {"theAmount": 5, "at": "2026-01-01T00:00:00Z", "tags": ["a"], "items": []}


def test_models_inside_other_types(queue: Queue, run: Run) -> None:
    seen: list[object] = []
    queue.job("basket")(_basket(seen))
    queue.job("list")(_list(seen))
    queue.enqueue("basket", Basket([Item(name="tea")]))
    queue.enqueue("list", [Item(name="tea")])
    run()
    assert seen == [Basket([Item(name="tea")]), [Item(name="tea")]]


def _basket(seen: list[object]) -> Callable[[Job[Basket]], None]:
    def basket(job: Job[Basket]) -> None:
        seen.append(job.data)

    return basket


def _list(seen: list[object]) -> Callable[[Job[list[Item]]], None]:
    def items(job: Job[list[Item]]) -> None:
        seen.append(job.data)

    return items


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (17, r"data does not fit charge's Charge: Input should be"),
        (None, r"data does not fit charge's Charge: "),
        ({"theAmount": 0}, r"theAmount: Input should be greater than 0"),
        ({"amount": 5}, r"theAmount: Field required"),
        ({"theAmount": 5, "items": [{"name": "x", "colour": 1}]}, r"items\.0\.colour: Extra inputs"),
        ({"theAmount": 5, "tags": ["a\x00"]}, r"NUL"),
        ({"theAmount": 10**30}, r"integer outside 64 bits"),
    ],
)
def test_what_does_not_fit_is_refused(app: Hipq, queue: Queue, data: object, said: str) -> None:
    @queue.job
    def charge(job: Job[Charge]) -> None: ...

    with pytest.raises(Invalid, match=said):
        charge.enqueue(data)  # type: ignore[arg-type]
    assert app.jobs("orders") == []


def test_a_model_that_was_made_wrong_afterwards_is_refused(queue: Queue) -> None:
    @queue.job
    def charge(job: Job[Charge]) -> None: ...

    given = _charge(5)
    given.amount = -1
    with pytest.raises(Invalid, match="theAmount: Input should be greater than 0"):
        charge.enqueue(given)


class Sum(BaseModel):
    value: int

    @field_serializer("value")
    def more(self, value: int) -> int:
        return value + 1


def test_a_model_that_does_not_come_back_the_same_is_refused(queue: Queue) -> None:
    @queue.job
    def add(job: Job[Sum]) -> None: ...

    with pytest.raises(Invalid, match="another value when it is read back"):
        add.enqueue(Sum(value=1))


def test_what_a_retry_handler_changes_in_a_model_is_saved(queue: Queue, run: Run, clock: HandClock) -> None:
    seen: list[int] = []

    @queue.job
    def charge(job: Job[Charge]) -> None:
        seen.append(job.data.amount)
        raise ValueError

    @charge.retry
    def again(job: Job[Charge], _fault: Fault) -> Retry:
        job.data.amount += 1
        return Retry(5)

    charge.enqueue(_charge(1))
    for _ in range(3):
        run()
        clock.advance(seconds=5)
    assert seen == [1, 2, 3]


def test_a_job_of_an_older_model_is_an_error_of_that_job(app: Hipq, queue: Queue, run: Run) -> None:
    job_id = queue.enqueue("charge", {"cents": 5})

    @queue.job
    def charge(job: Job[Charge]) -> None:
        print(job.data.amount)

    run()
    assert "theAmount: Field required" in app.job(job_id).error
