"""Requests and their answers: from one end to the other, and answers to many that wait, in random order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Any

from bench.lines import PAYLOAD, ROUNDS, Bench, Broken, Line
from bench.measure import best, seconds
from hipq import Answer, Job, Ok, Queue, Wait
from hipq.job.states import WAITING
from hipq.job.units import UNIT

Answering = Callable[[Queue, list[str]], None]
Side = tuple[Answering, tuple[Queue, list[str]]]
PATIENCE = 30.0
"""Seconds until a job that has not run makes the measurement void."""
ANSWERS, TURN = 100, 500
"""Answers that are brought at a time, and jobs plain SQL claims in a turn."""


def lines(bench: Bench) -> Iterator[Line]:
    yield request_and_answer(bench)
    yield from Answers(bench, 8_000 if bench.quick else 40_000).lines()


def request_and_answer(bench: Bench) -> Line:
    """Jobs are run, wait, are answered and done: an engine runs them while their answers are brought."""

    def ours() -> float:
        queue, asked = _asking(bench)
        with bench.engine(queue) as engine:
            took = seconds(lambda: _bring_while(lambda: engine.run(until_empty=True), bench, queue, asked))
        bench.check_done(queue)
        return bench.size / took

    def plain() -> float:
        queue, _ = _asking(bench)
        with bench.raw(queue) as raw:
            took = seconds(lambda: raw.request_and_answer(TURN, ANSWERS))
        bench.check_done(queue)
        return bench.size / took

    rates = best({"hipq": ours, "plain": plain}, ROUNDS)
    return Line(f"request, answer, settle {bench.size:,}", rates["hipq"], rates["plain"], bench.targets.answered)


def _asking(bench: Bench) -> tuple[Queue, SimpleQueue[str]]:
    """A queue full of requests, and where their handlers put whose answer may come."""
    queue, asked = bench.queue(), SimpleQueue[str]()

    @queue.job
    def ask(job: Job[Any]) -> Wait:
        asked.put(job.key)
        return Wait()

    ask.enqueue_many([PAYLOAD] * bench.size, keys=[f"key-{n}" for n in range(bench.size)])
    return queue, asked


def _bring_while(drain: Callable[[], object], bench: Bench, queue: Queue, asked: SimpleQueue[str]) -> None:
    """Some come before their job's waiting is saved: hipq keeps those, and takes them up with it."""

    def bring() -> None:
        for start in range(0, bench.size, ANSWERS):
            keys = [asked.get(timeout=PATIENCE) for _ in range(min(ANSWERS, bench.size - start))]
            bench.app.answer_many(_answers(queue, keys))

    with ThreadPoolExecutor(1) as other:
        brought = other.submit(bring)
        drain()
        brought.result()


def _answers(queue: Queue, keys: list[str]) -> Iterator[dict[str, Any]]:
    return ({"queue": queue.name, "type": "ask", "key": key, "data": {"paid": True}} for key in keys)


class Answers:
    def __init__(self, bench: Bench, many: int) -> None:
        self._bench = bench
        self._many = many
        """So many jobs wait, under a limit of as many."""

    def lines(self) -> Iterator[Line]:
        several, many, few = self._bench.size // 10, self._many, self._many // 4
        crowds = [self._waiting(count, False) for count in (many, many, few, few)]
        fewer = f"{few:,} waiting"
        for batch in (1, ANSWERS):
            name, count = f"answer {batch} at a time, {many:,} waiting", several if batch > 1 else several // 5
            ours, raw = partial(self._answer, batch), partial(self._raw, batch)
            rates = self._rates(count, list(zip((ours, raw, ours, raw), crowds, strict=True)))
            yield Line(name, rates[0], rates[1], self._bench.targets.answers)
            yield Line(name, rates[0], rates[2], 0.9, against=fewer)
            yield Line(f"{name} (plain SQL)", rates[1], rates[3], 0.0, against=fewer)
        looking: list[Side] = [(self._answer_and_look, self._waiting(count, True)) for count in (many, few)]
        rates = self._rates(several, looking)
        yield Line(f"answer to an engine, {many:,} waiting", rates[0], rates[1], 0.9, against=fewer)

    def _rates(self, count: int, sides: list[Side]) -> list[float]:
        """The best of each, interleaved."""
        rates: list[list[float]] = [[] for _ in sides]
        for _ in range(ROUNDS):
            for found, (answering, (queue, keys)) in zip(rates, sides, strict=True):
                some = [keys.pop() for _ in range(count)]
                found.append(count / seconds(partial(answering, queue, some)))
                self._check(queue, len(keys))
        return [max(found) for found in rates]

    def _waiting(self, count: int, with_handler: bool) -> tuple[Queue, list[str]]:
        """A queue in which so many jobs wait, and their keys in random order."""
        queue = self._bench.queue(throttle_limit=count)

        @queue.job
        def ask(_: Job[Any]) -> Wait:
            return Wait()

        if with_handler:

            @ask.answered
            def looked_at(_: Job[Any], answer: Answer) -> Ok:
                return Ok(answer.data)

        keys = [f"key-{n}" for n in range(count)]
        ask.enqueue_many([None] * count, keys=keys)
        self._bench.app.run([queue.name], until_empty=True, concurrency=50)
        self._check(queue, count)
        random.Random(1).shuffle(keys)
        return queue, keys

    def _answer(self, batch: int, queue: Queue, keys: list[str]) -> None:
        app = self._bench.app
        for start in range(0, len(keys), batch):
            app.answer_many(_answers(queue, keys[start : start + batch]))

    def _answer_and_look(self, queue: Queue, keys: list[str]) -> None:
        """Bring them, and let an engine look at them."""
        self._answer(ANSWERS, queue, keys)
        self._bench.drain(queue)

    def _raw(self, batch: int, queue: Queue, keys: list[str]) -> None:
        with self._bench.raw(queue) as raw:
            raw.answer(keys, batch)

    def _check(self, queue: Queue, count: int) -> None:
        """So many wait, and nobody else holds anything."""
        held = sum(self._bench.app.store.limits(queue.number).held.values()) // UNIT
        if held != count or (count and not self._bench.app.jobs(queue.name, phase=WAITING, limit=1)):
            raise Broken(f"queue {queue.name}: {held} jobs wait, not {count}")
