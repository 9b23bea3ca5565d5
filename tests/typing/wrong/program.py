"""What must be refused: a type checker has something to say about each line with `# error`, and about no other.
ty does not check options that are a TypedDict, yet."""

from dataclasses import dataclass
from typing import TypedDict

from hipq import Answer, Fault, Hipq, Job, Ok

app = Hipq("shop")
orders = app.queue("orders")


@dataclass
class Charge:
    amount: int
    currency: str


@dataclass
class Receipt:
    number: int


class Parcel(TypedDict):
    weight: float


@orders.job
def charge(job: Job[Charge]) -> Receipt:
    return Receipt(job.data.cents)  # error


@orders.job
def send(job: Job[Parcel]) -> None:
    print(job.data["colour"])  # error


@charge.answered  # error
def settled(job: Job[Receipt], answer: Answer) -> Ok:
    return Ok(answer.data)


@charge.answered  # error
def other_result(job: Job[Charge], answer: Answer) -> str:
    return "x"


@charge.answered
def typed(job: Job[Charge], answer: Answer[Receipt]) -> Receipt:
    return Receipt(answer.data.amount)  # error


@charge.retry  # error
def again(job: Job[Charge], fault: Fault) -> str:
    return "later"


@charge.cancelled  # error
def call_off(job: Job[Parcel]) -> None: ...


@orders.job(timout=5)  # error, but not for ty
def misspelt(job: Job) -> None: ...


def use() -> None:
    charge.enqueue(17)  # error
    charge.enqueue(Charge(5))  # error
    charge.enqueue(Charge(5, "EUR"), kee="x")  # error
    charge.enqueue(Charge(5, "EUR"), priority="high")  # error
    charge.enqueue_many([Charge(5, "EUR"), 17])  # error
    send.enqueue({"weigth": 1.5})  # error
    number: int = charge.enqueue(Charge(5, "EUR")).result()  # error
    print(number)
    charge.answer(17)  # error
    charge.cron("* * * * *", 17)  # error


async def use_async() -> None:
    await charge.aenqueue(17)  # error
    await charge.aenqueue(Charge(5, "EUR"), kee="x")  # error
    await charge.aenqueue_many([17])  # error
    await charge.aanswer(17)  # error
    text: str = await (await charge.aenqueue(Charge(5, "EUR"))).aresult()  # error
    print(text, await app.acount("orders", most="5"))  # error
