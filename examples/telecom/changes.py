"""Changes to meters and line cards, sent to a network that must not be overloaded; its answers come another way.

    python examples/telecom/changes.py

starts a pretend network in a second process (see `network.py`), adds 120 changes, and lets two worker processes
(`hipq worker changes:app --processes 2`) send them, first in the evening and then, by a pretended clock, at night. It
ends by itself after some seconds, and prints how much the network had to bear at most: never more than it can, in no
region, although it refuses whatever is too much, and would have said so.

What it shows:
- A limit of 20 units on all that is under way, sent and not yet answered, over all workers; of these 40 % for the east,
  30 % for the north, 30 % for the west (`share`), however much work one of them has.
- Changes to a line card count as three (`throttle_factor`).
- Firmware is changed between 22:00 and 05:00 only (`window`); `app.why` says so.
- Urgent changes go first (`order="priority"`); outages are `critical`: limits neither hold them up nor count them.
- Answers come in pages from a stream that delivers at least once: `app.answer_many` with the record's number as
  `answer_id`. A fault is an answer with `error=True`, and is tried again; a rejected change is `Failed`.

The database, `telecom.db`, is in the current folder, or where `--folder` says.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from subprocess import PIPE
from typing import Any, TypedDict
from zoneinfo import ZoneInfo

from hipq import Answer, Failed, Hipq, Job, JobFailed, Ok, Wait, fixed, limit, share, window
from hipq.stores.clock import SystemClock

ZONE = "Europe/Rome"


class PretendedClock(SystemClock):
    """Goes as fast as any other, but TELECOM_AHEAD seconds ahead: so that a night can be seen by day."""

    def now(self) -> int:
        return super().now() + int(os.environ.get("TELECOM_AHEAD", "0")) * 1_000_000


app = Hipq("telecom", "sqlite:///telecom.db", clock=PretendedClock())
changes = app.queue(
    "changes",
    limits=[limit(20), share({"east": 40, "north": 30, "west": 30})],
    lane_by=lambda job: str(job.data["region"]),
    order="priority",
)


class Change(TypedDict):
    device: str
    region: str
    to: str


# -- the jobs ---------------------------------------------------------------------------------------------------------
TRIES = fixed(0.1, attempts=5)


@changes.job(timeout=timedelta(hours=1), retry=TRIES)
def meter(job: Job[Change]) -> Wait:
    return send(job)


@changes.job(timeout=timedelta(hours=1), retry=TRIES, throttle_factor=3)
def line_card(job: Job[Change]) -> Wait:
    return send(job)


@changes.job(timeout=timedelta(hours=1), retry=TRIES, throttle_factor=2, windows=[window("22:00", "05:00", tz=ZONE)])
def firmware(job: Job[Change]) -> Wait:
    return send(job)


@changes.job(timeout=timedelta(minutes=10), retry=TRIES, priority=0, critical=True)
def outage(job: Job[Change]) -> Wait:
    return send(job)


def send(job: Job[Change]) -> Wait:
    """Hand a change over to the network. If that is told twice, it knows the second by its key."""
    change = {**job.data, "key": job.key, "kind": job.type, "weight": job.throttle_factor}
    network("/changes", {**change, "emergency": job.type == "outage"})
    return Wait()


@meter.answered
@line_card.answered
@firmware.answered
@outage.answered
def finished(job: Job[Change], answer: Answer) -> Ok:
    if answer.data["status"] == "rejected":
        raise Failed(f"the network does not know {job.data['device']}")
    return Ok({"attempts": job.attempt})


def network(path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(
        urllib.request.Request(os.environ["TELECOM_NETWORK"] + path, data), timeout=30
    ) as reply:
        return json.load(reply)


# -- the other channel ------------------------------------------------------------------------------------------------
def listen(stop: threading.Event, became: Counter[str]) -> None:
    """Read the stream of answers, page by page. (A consumer that may die would keep `place` with what it has read.)"""
    place = 0
    while not stop.is_set():
        try:
            page = network(f"/answers?after={place}&wait=0.5")
        except OSError:
            stop.wait(1)  # it is away: it keeps what it has to say
            continue
        answers = [
            {
                "queue": "changes", "type": record["kind"], "key": record["key"], "data": record,
                "answer_id": f"{page['stream']}/{record['number']}", "error": record["status"] == "fault",
            }
            for record in page["records"]
        ]  # fmt: skip
        became.update(app.answer_many(answers))
        place = page["next"]  # after they are stored: a crash before this reads them again, which is harmless


# -- running it -------------------------------------------------------------------------------------------------------
@contextmanager
def pretended_network() -> Iterator[None]:
    command = [sys.executable, str(Path(__file__).with_name("network.py")), "--while-open"]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True, start_new_session=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        os.environ["TELECOM_NETWORK"] = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        try:
            yield
        finally:
            process.stdin.close()


@contextmanager
def workers() -> Iterator[None]:
    """`hipq worker changes:app --processes 2`, told to stop at the end."""
    command = [sys.executable, "-m", "hipq.cli.main", "worker", "changes:app", "--processes", "2", "-c", "20"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent)}
    with subprocess.Popen([*command, "--log-level", "error"], env=environment) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)


@contextmanager
def listener() -> Iterator[Counter[str]]:
    stop, became = threading.Event(), Counter[str]()
    thread = threading.Thread(target=listen, args=[stop, became])
    thread.start()
    try:
        yield became
    finally:
        stop.set()
        thread.join()


def pretend_evening() -> None:
    """Let it be half past eight tomorrow evening."""
    now = datetime.now(ZoneInfo(ZONE))
    evening = (now + timedelta(days=1)).replace(hour=20, minute=30, second=0)
    os.environ["TELECOM_AHEAD"] = str(round(evening.timestamp() - now.timestamp()))


def pretend_night() -> None:
    """Let two hours pass."""
    os.environ["TELECOM_AHEAD"] = str(int(os.environ["TELECOM_AHEAD"]) + 2 * 3600)


def add_changes(run: str) -> list[int]:
    """120 changes, more than half of them in the east, which may take 40 % only."""
    found: list[int] = []
    for number in range(1, 121):
        region = ("east", "east", "north", "east", "west")[number % 5]
        kind = {1: line_card, 4: firmware}.get(number % 6, meter)
        if number % 40 == 7:
            kind = outage
        priority = 10 if number % 8 == 3 and kind is not outage else None
        change = Change(device=f"{kind.name}-{number}", region=region, to=f"profile {number % 4}")
        found.append(kind.enqueue(change, key=f"{run}/{number}", priority=priority))
    return found


def forget_earlier() -> None:
    """Cancel what an earlier run was stopped at: this network knows nothing of it, and it would hold its part of the
    limits until its time-out."""
    for state in ("running", "initial", "error", "retry"):
        for job in app.jobs("changes", oldest=True, state=state, limit=10_000):
            app.cancel(job.id, "the run it was part of was stopped")


def wait_for(ids: list[int], seconds: float = 120) -> None:
    limit = time.monotonic() + seconds
    for job_id in ids:
        with suppress(JobFailed):  # ended, if not well: that is in the summary
            app.result(job_id, timeout=max(limit - time.monotonic(), 0))


def main() -> int:
    parser = argparse.ArgumentParser(description="Changes to meters and line cards, sent to a network with limits.")
    parser.add_argument("--folder", type=Path, default=Path(), help="where telecom.db goes")
    options = parser.parse_args()
    os.chdir(options.folder)
    app.migrate()
    pretend_evening()
    forget_earlier()
    ids = add_changes(uuid.uuid4().hex[:8])
    at_night = [job_id for job_id in ids if app.job(job_id).type == "firmware"]
    with pretended_network(), listener() as became:
        with workers():
            wait_for([job_id for job_id in ids if job_id not in at_night])
        print(
            f"20:30: {len(ids) - len(at_night)} changes are done; {len(at_night)} wait: {app.why(at_night[0]).sentence}"
        )
        pretend_night()
        with workers():
            wait_for(at_night)
        load = network("/load")
    ended = Counter((job.type, job.code) for job in map(app.job, ids))
    app.close()
    print("22:30: all are done:", ", ".join(f"{count} {kind} {code}" for (kind, code), count in sorted(ended.items())))
    print("answers:", ", ".join(f"{count} {word}" for word, count in sorted(became.items())))
    for region, part in load["parts"].items():
        print(f"{region}: at most {load['peaks'][region]} units at a time, of {part}")
    print(f"all: at most {load['peak']} units at a time, of {load['capacity']}; refused: {load['refused']}")
    return 0 if load["refused"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
