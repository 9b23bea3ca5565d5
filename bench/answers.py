"""Answers to jobs that wait, in random order: against plain SQL of the same shape, and many waiting against fewer."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bench.lines import ROUNDS, Bench, Line
from bench.measure import seconds
from hipq import Answer, Job, Ok, Queue, Wait
from hipq.job.states import WAITING

Answering = Callable[[Queue, list[str]], None]
Side = tuple[Answering, tuple[Queue, list[str]]]


class Answers:
    def __init__(self, bench: Bench, many: int, target: float) -> None:
        self._bench = bench
        self._many = many
        """So many jobs wait, under a limit of as many."""
        self._target = target

    def lines(self) -> Iterator[Line]:
        several, many, few = self._bench.size // 10, self._many, self._many // 4
        crowds = [self._waiting(count, False) for count in (many, many, few, few)]
        for batch in (1, 100):
            name, count = f"answer {batch} at a time, {many:,} waiting", several if batch > 1 else several // 5
            ours, raw = partial(self._answer, batch), partial(self._raw, batch)
            rates = self._rates(count, list(zip((ours, raw, ours, raw), crowds, strict=True)))
            yield Line(name, rates[0], rates[1], self._target)
            yield Line(f"{name} (against {few:,})", rates[0], rates[2], 0.9)
            yield Line(f"{name} (plain SQL, against {few:,})", rates[1], rates[3], 0.0)
        looking: list[Side] = [(self._answer_and_look, self._waiting(count, True)) for count in (many, few)]
        rates = self._rates(several, looking)
        yield Line(f"answer to an engine, {many:,} waiting (against {few:,})", rates[0], rates[1], 0.9)

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
            app.answer_many(
                {"queue": queue.name, "type": "ask", "key": key, "data": {"paid": True}}
                for key in keys[start : start + batch]
            )

    def _answer_and_look(self, queue: Queue, keys: list[str]) -> None:
        """Bring them, and let an engine look at them."""
        self._answer(100, queue, keys)
        self._bench.drain(queue)

    def _raw(self, batch: int, queue: Queue, keys: list[str]) -> None:
        with self._bench.raw(queue) as raw:
            raw.answer(keys, batch)

    def _check(self, queue: Queue, count: int) -> None:
        """So many wait, and nobody else holds anything."""
        assert sum(self._bench.app.store.limits(queue.number).held.values()) == count
        assert count == 0 or self._bench.app.jobs(queue.name, phase=WAITING, limit=1)
