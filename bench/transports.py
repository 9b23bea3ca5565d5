"""`make bench-transports`: how fast answers come in from each kind of stream, beside the bare client library."""

from __future__ import annotations

import argparse
import os
import platform
import random
import signal
import sqlite3
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from bench import transports_http as http
from bench.database import fresh_database
from bench.lines import ROUNDS, Bench, Broken
from bench.measure import best, scratch, seconds, steal, steal_between
from bench.peers import POSTGRES, SQLITE
from bench.transports_page import BARE, HEADING, IN_ORDER, MEMORY, Found, Kept, line, load, rows, write
from bench.transports_streams import STREAMS, Messages, Stream
from hipq import Job, Queue, Wait
from hipq.answers.reading import Reader
from hipq.job.states import WAITING
from hipq.stores.inbox_transaction import KEYS_AT_ONCE
from hipq.transports import Message

SIZE: Final = 10_000
FEWER: Final = {"sqs": 1_000, "kinesis": 5_000, "http": 5_000}
"""Where the server takes most of the time."""
QUICK: Final = 10
HTTP: Final = "http"
CALLBACK_URL: Final = "HIPQ_CALLBACK_URL"
TRANSPORTS: Final = (MEMORY, IN_ORDER, *STREAMS, HTTP)
PATIENCE: Final = 120.0
LOOK_SECONDS: Final = 0.01
LIBRARIES: Final = ("confluent-kafka", "boto3", "nats-py", "aio-pika", "redis", "paho-mqtt", "uvicorn", "psycopg")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.transports", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages")
    parser.add_argument(
        "--only",
        choices=TRANSPORTS,
        action="append",
        help="only this one; may be given again. What the file has of the others stays",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results there, and a page beside")
    options = parser.parse_args()
    began, clock = datetime.now(), time.monotonic()
    kept = Kept([], [], {}, {})
    print(HEADING, flush=True)
    part = QUICK if options.quick else 1
    broken = [transport for transport in options.only or TRANSPORTS if not _measure(transport, kept, part)]
    _describe(kept, began, (time.monotonic() - clock) / 60)
    if options.json and kept.found:
        write(options.json, _beside(load(options.json), kept) if options.only and options.json.exists() else kept)
    if broken:
        sys.exit(f"BROKEN: {', '.join(broken)}")


def _beside(before: Kept, kept: Kept) -> Kept:
    """What was measured again, in its place among the rest."""
    found = {one.transport: one for one in (*before.found, *kept.found)}
    failures = [one for one in before.failures if one.partition(":")[0] not in found] + kept.failures
    return kept._replace(
        found=[found[name] for name in TRANSPORTS if name in found], failures=failures, machine=before.machine
    )


def _measure(transport: str, kept: Kept, part: int) -> bool:
    """Whether it could be measured, or there is no server for it."""
    try:
        kept.found.append(found := measured(transport, FEWER.get(transport, SIZE) // part))
    except pytest.skip.Exception as reason:  # what the tests' servers raise if there is none
        kept.failures.append(f"{transport}: {reason}")
        print(kept.failures[-1], flush=True)
        return True
    except Exception:  # the others may still mean something
        traceback.print_exc()
        return False
    if transport in (MEMORY, IN_ORDER):
        print(f"{transport}: {found.rates}, steal {found.steal} %, load {found.load}", flush=True)
    for store in (SQLITE, POSTGRES):
        for row in rows(kept, store):
            if row.found is found:
                print(line(row), flush=True)
    return True


def measured(transport: str, size: int, stores: Sequence[str] = (SQLITE, POSTGRES), rounds: int = ROUNDS) -> Found:
    """All sides of one transport, interleaved."""
    before, busy = steal(), os.getloadavg()[0]
    ways: dict[str, Callable[[Bench], float]] = {
        MEMORY: from_memory,
        IN_ORDER: lambda bench: from_memory(bench, in_order=True),
        HTTP: by_callbacks,
    }
    side = ways.get(transport) or (lambda bench: by_listening(transport, bench))
    with ExitStack() as stack:
        sides: dict[str, Callable[[], float | None]] = {}
        for store in stores:
            bench = stack.enter_context(database(store, size))
            sides[store] = lambda bench=bench: side(bench)  # type: ignore[misc]
        if transport == HTTP:
            sides[BARE] = lambda: bare_callbacks(size)
        elif transport in STREAMS:
            sides[BARE] = lambda: bare(transport, size)
        rates = best(sides, rounds)
    stolen = steal_between(before, steal())
    rounded = {name: round(rate, 1) for name, rate in rates.items()}
    return Found(transport, size, rounded, round(stolen, 1), round(busy, 1))


@contextmanager
def database(store: str, size: int) -> Iterator[Bench]:
    from bench.__main__ import _raw_postgres, _raw_sqlite

    with ExitStack() as stack:
        if store == SQLITE:
            path = stack.enter_context(scratch()) / "bench.db"
            bench = Bench(f"sqlite:///{path}", _raw_sqlite(path), size)
        else:
            url = stack.enter_context(fresh_database())
            bench = Bench(url, _raw_postgres(url), size)
        stack.callback(bench.app.close)
        yield bench


# -- one round of each side -----------------------------------------------------------------------------------------
def from_memory(bench: Bench, in_order: bool = False) -> float:
    queue = waiting(bench)
    reader, inbox = Reader(queue, "work", key="ref"), bench.app.answers
    brought = sorted(answers(bench.size)) if in_order else answers(bench.size)
    messages = [Message(body, key) for key, body in brought]

    def settle() -> None:
        for start in range(0, len(messages), KEYS_AT_ONCE):
            inbox.deliver(reader.read(messages[start : start + KEYS_AT_ONCE], bench.app.store.now()))

    took = seconds(settle)
    bench.check_done(queue)
    return bench.size / took


def by_listening(transport: str, bench: Bench) -> float:
    """The listener is there and has settled one job; it is halted while the answers to the others are put there."""
    queue = waiting(bench)
    first, *others = answers(bench.size)
    command = ("hipq", "listen", "bench.transports_program:app", "--log-level", "warning")
    with STREAMS[transport]() as stream, _running(command, _environment(bench, queue, stream)) as process:
        stream.put([first])
        _patiently(lambda: bench.app.jobs(queue.name, key=first[0], phase=WAITING))
        with _halted(process):
            stream.put(others)
        took = seconds(lambda: _patiently(lambda: bench.app.jobs(queue.name, phase=WAITING, limit=1)))
    bench.check_done(queue)
    return len(others) / took


def bare(transport: str, size: int) -> float:
    """The same with the client library alone, which tells by a line when it is done."""
    first, *others = answers(size)
    with STREAMS[transport]() as stream:
        command = ("bench.transports_bare", stream.url, str(len(others)))
        with _running(command, {**os.environ, **stream.environment}) as process:
            stream.put([first])
            _read_line(process, "one")
            with _halted(process):
                stream.put(others)
            took = seconds(lambda: _read_line(process, "all"))
    return len(others) / took


def _patiently(is_left: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE
    while is_left():
        if time.monotonic() > until:
            raise Broken(f"jobs still wait after {PATIENCE:g} seconds")
        time.sleep(LOOK_SECONDS)


def _read_line(process: subprocess.Popen[str], expected: str) -> None:
    assert process.stdout
    if process.stdout.readline().strip() != expected:
        raise Broken("the bare consumer ended")


@contextmanager
def _running(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", *command], env=dict(environment), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


@contextmanager
def _halted(process: subprocess.Popen[str]) -> Iterator[None]:
    """It does nothing until the end of the block: what comes for it meanwhile is on its server."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def by_callbacks(bench: Bench) -> float:
    paths: dict[str, str] = {}

    def ask(job: Job[Any]) -> Wait:
        paths[job.key] = f"/{job.callback_url().rpartition('/')[2]}"
        return Wait()

    with _called_back():
        queue = waiting(bench, ask)
    with http.server(http.OURS, _environment(bench, queue)) as port:
        took = http.post_all(port, [(paths[key], body) for key, body in answers(bench.size)])
    bench.check_done(queue)
    return bench.size / took


@contextmanager
def _called_back() -> Iterator[None]:
    """Jobs have callback URLs; where they lead to does not matter here."""
    before = os.environ.get(CALLBACK_URL)
    os.environ[CALLBACK_URL] = "http://127.0.0.1"
    try:
        yield
    finally:
        os.environ.pop(CALLBACK_URL)
        if before is not None:
            os.environ[CALLBACK_URL] = before


def bare_callbacks(size: int) -> float:
    with http.server(http.BARE, os.environ) as port:
        return size / http.post_all(port, [(f"/{key:0>80}", body) for key, body in answers(size)])


# -- what all of them need ------------------------------------------------------------------------------------------
def asked(_: Job[Any]) -> Wait:
    return Wait()


def waiting(bench: Bench, handler: Callable[[Job[Any]], Wait] = asked) -> Queue:
    """A new queue in which all jobs wait for their answers."""
    queue = bench.queue(handler)
    queue.enqueue_many("work", [None] * bench.size, keys=[_key(number) for number in range(bench.size)])
    bench.app.run([queue.name], until_empty=True, concurrency=50)
    if bench.app.jobs(queue.name, phase="ready", limit=1):
        raise Broken(f"queue {queue.name}: not all jobs wait")
    return queue


def answers(size: int) -> Messages:
    """One to each job, in random order."""
    numbers = list(range(size))
    random.Random(size).shuffle(numbers)
    body = '{{"ref":"{}","status":"paid","amount":5,"currency":"EUR","note":"{}"}}'
    return [(_key(number), body.format(_key(number), "x" * 40).encode()) for number in numbers]


def _key(number: int) -> str:
    return f"order-{number:06}"


def _environment(bench: Bench, queue: Queue, stream: Stream | None = None) -> dict[str, str]:
    here = {**os.environ, "BENCH_DB": bench.app.url, "BENCH_QUEUE": queue.name}
    return {**here, **stream.environment, "BENCH_STREAM": stream.url} if stream else here


def _describe(kept: Kept, began: datetime, minutes: float) -> None:
    with fresh_database() as url, psycopg.connect(url) as connection:
        postgres = (connection.info.parameter_status("server_version") or "?").split()[0]
    kept.versions.update({"hipq": version("hipq"), "Python": platform.python_version()})
    kept.versions.update({SQLITE: sqlite3.sqlite_version, POSTGRES: postgres})
    kept.versions.update({name: version(name) for name in LIBRARIES})
    kept.machine.update(
        date=f"{began:%d %B %Y}".lstrip("0"), cores=os.cpu_count(), minutes=round(minutes, 1),
        system=f"{platform.system()} {platform.machine()}",
    )  # fmt: skip


if __name__ == "__main__":
    main()
