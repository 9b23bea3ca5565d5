"""Prompts for a language model's batch API, which answers hours later.

    python examples/llm_batch/prompts.py

starts a pretend API in a second process (see `model_api.py`), collects 60 prompts, sends them as batches of 20, and
brings each answer home as a job of its own. An hour lasts a second: LLM_HOUR=3600 LLM_MINUTE=60 in the environment
would be the real thing. It ends by itself after a dozen seconds. You will see one batch expire half done and one that
never ends, and still an answer to every prompt, none of them paid for twice, and no request refused for being one too
many in its minute.

What it shows:
- `submit`: one batch is one job. It uploads, begins the batch, and waits for hours, with no process holding it.
  Only the reply says what the batch is called: `Wait(key=...)`.
- `poll` looks every half hour, by returning `Retry(...)`, and brings the answer with `submit.answer(...)`. (An API with
  callbacks would need a web handler that does so instead.)
- `collect` reads the answers and fans them out, one `keep` job each, saved together with its own end; what failed for
  now goes into another batch, what failed for good is `Failed`.
- `rate(...)` holds the API's limit over all processes; a job that makes two requests has `throttle_factor=2`.
- A batch that has not ended in time is cancelled at the API (`@submit.cancelled`), and begun anew by
  `on_timeout=Retry(...)`.

The database, `prompts.db`, is in the current folder, or where `--folder` says.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import PIPE
from threading import Thread
from typing import Any

from hipq import Answer, Failed, Hipq, Job, Ok, Retry, Wait, backoff, rate

HOUR = float(os.environ.get("LLM_HOUR", "1"))
MINUTE = float(os.environ.get("LLM_MINUTE", "1"))
REQUESTS = 10
"""That we make in a minute. The API takes twice as many: a request may be on its way for a while."""
WINDOW = 4 * HOUR
"""In which the API promises to be done."""
ROUNDS = 4
"""Batches that a prompt may be part of until we give up."""
DATABASE = "prompts.db"

app = Hipq("prompts", f"sqlite:///{DATABASE}")
batches = app.queue("batches", limits=[rate(REQUESTS, per=MINUTE)])
results = app.queue("results")
patient = backoff(attempts=8, base=0.2, cap=HOUR, on=OSError)


@dataclass(frozen=True)
class Batch:
    prompts: dict[str, str]
    """By their ids."""
    round: int = 1
    tries: int = 1
    last: str = ""
    """What the try before was called, if there was one."""


@dataclass(frozen=True)
class Output:
    file: str
    batch: Batch


# -- the jobs ---------------------------------------------------------------------------------------------------------
@batches.job(throttle_factor=2, retry=patient)
def submit(job: Job[Batch]) -> Wait | Ok:
    """Begin a batch. If the reply is lost this runs again, and the API knows it by its Idempotency-Key."""
    if job.data.last:  # its time was over: whatever became of it, it must not go on beside another
        last = json.loads(api(f"/batches/{job.data.last}/cancel", "{}", none_if=404))
        if last and last["status"] != "cancelled":
            return ended(job, last)  # we were too slow, not the API
    lines = [json.dumps({"id": job_id, "prompt": prompt}) for job_id, prompt in job.data.prompts.items()]
    file = json.loads(api("/files", "\n".join(lines)))["id"]
    headers = {"Idempotency-Key": f"{job.id}-{job.data.tries}"}
    batch = json.loads(api("/batches", json.dumps({"file": file}), headers))["id"]
    job.enqueue(poll, {"batch": batch}, key=batch, delay=HOUR)
    another = replace(job.data, tries=job.data.tries + 1, last=batch)
    return Wait(key=batch, timeout=2 * WINDOW, on_timeout=Retry(0, data=another, reason="it never ended"))


@submit.answered
def answered(job: Job[Batch], answer: Answer) -> Ok:
    return ended(job, answer.data)


def ended(job: Job[Batch], batch: dict[str, str]) -> Ok:
    job.enqueue(collect, Output(batch["output"], job.data), key=batch["id"])
    return Ok(batch)


@submit.cancelled
def given_up(job: Job[Batch]) -> None:
    """It took too long, or somebody cancelled it: what is not done yet need not be paid for."""
    api(f"/batches/{job.key}/cancel", "{}")


@batches.job(retry=patient)
def poll(job: Job[dict[str, str]]) -> dict[str, Any]:
    batch: dict[str, Any] = json.loads(api(f"/batches/{job.data['batch']}", none_if=404))
    if not batch:
        raise Failed("the API does not know it")  # as after a restart of the pretended one: it is begun anew in time
    if batch["status"] == "in_progress":
        raise Retry(HOUR / 2, reason="not yet")  # not a failure: this may go on for a day
    if batch["status"] != "cancelled":
        submit.answer(batch["id"], batch, answer_id=batch["id"])  # if we crash after this, it is a duplicate
    return batch


@batches.job(retry=patient)
def collect(job: Job[Output]) -> dict[str, int]:
    """Fan out: everything that is added here is saved with this job's end, or not at all."""
    batch, again = job.data.batch, {}
    for line in api(f"/files/{job.data.file}").splitlines():
        answer = json.loads(line)
        passing = answer.get("error") in ("overloaded", "expired")
        if passing and batch.round < ROUNDS:
            again[answer["id"]] = batch.prompts[answer["id"]]
        else:
            job.enqueue(keep, answer, key=answer["id"])
    if again:
        job.enqueue(submit, Batch(again, batch.round + 1), key=f"after-{job.key}")
    return {"kept": len(batch.prompts) - len(again), "again": len(again)}


@results.job
def keep(job: Job[dict[str, str]]) -> None:
    """One answer. What a program does with it is its own affair; it may take long, fail, and be tried again."""
    error = job.data.get("error")
    with database() as connection:
        values = ("failed" if error else "answered", job.data.get("text", ""), job.data["id"])
        connection.execute("UPDATE prompts SET state = ?, answer = ? WHERE id = ?", values)
    if error:
        raise Failed(f"the model says: {error}")


def api(path: str, body: str | None = None, headers: dict[str, str] | None = None, none_if: int = 0) -> str:
    """One request. Raises an OSError for anything but 2xx, except that a 429 says itself when to come again."""
    request = urllib.request.Request(os.environ["LLM_API"] + path, body.encode() if body else None, headers or {})
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            text: str = reply.read().decode()
            return text
    except urllib.error.HTTPError as error:
        if error.code == none_if:
            return "null"
        if error.code == 429:
            raise Retry(float(error.headers["Retry-After"]), reason="too many requests") from None
        raise


# -- the prompts ------------------------------------------------------------------------------------------------------
@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(DATABASE, timeout=30)) as connection, connection:
        yield connection


def write_prompts(many: int) -> None:
    kinds = {7: "busy", 20: "forbidden"}
    with database() as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS prompts (id TEXT PRIMARY KEY, prompt TEXT, state TEXT, answer TEXT)"
        )
        (before,) = connection.execute("SELECT count(*) FROM prompts").fetchone()
        for number in range(before + 1, before + many + 1):
            kind = next((kind for every, kind in kinds.items() if number % every == 0), "good")
            row = (f"prompt-{number}", f"say something {kind} about {number}")
            connection.execute("INSERT INTO prompts VALUES (?, ?, 'new', '')", row)


def send_prompts(most: int) -> bool:
    """Put new prompts into a batch, in one transaction: none is sent twice, none is forgotten. False: none are left."""
    with database() as connection:
        query = "SELECT id, prompt FROM prompts WHERE state = 'new' ORDER BY rowid LIMIT ?"
        prompts = dict(connection.execute(query, (most,)).fetchall())
        if not prompts:
            return False
        connection.executemany("UPDATE prompts SET state = 'sent' WHERE id = ?", [(job_id,) for job_id in prompts])
        submit.enqueue(Batch(prompts), key=f"from-{next(iter(prompts))}", conn=connection)
    return True


def states() -> dict[str, int]:
    with database() as connection:
        return dict(connection.execute("SELECT state, count(*) FROM prompts GROUP BY state").fetchall())


# -- running it -------------------------------------------------------------------------------------------------------
@contextmanager
def everything() -> Iterator[None]:
    """The pretend API and an engine; both end with the block."""
    command = [sys.executable, str(Path(__file__).with_name("model_api.py")), "--while-open"]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True, start_new_session=True) as pretended:
        assert pretended.stdin is not None
        assert pretended.stdout is not None
        os.environ["LLM_API"] = f"http://127.0.0.1:{pretended.stdout.readline().strip()}"
        engine = app.engine()
        thread = Thread(target=engine.run)
        thread.start()
        try:
            yield
        finally:
            engine.stop()
            thread.join()
            engine.executor.close()
            pretended.stdin.close()
            app.close()


def busy() -> bool:
    return any(app.jobs.count(queue.name, live=True) for queue in app.queues)


def main() -> int:
    parser = argparse.ArgumentParser(description="Prompts for a batch API that answers hours later.")
    parser.add_argument("--folder", type=Path, default=Path(), help="where prompts.db goes")
    parser.add_argument("--prompts", type=int, default=60)
    options = parser.parse_args()
    os.chdir(options.folder)
    app.migrate()
    write_prompts(options.prompts)
    with everything():
        while send_prompts(20):
            pass
        began, told = time.monotonic(), {"": 0}
        while busy():
            if (now := states()) != told:
                told = now
                shown = ", ".join(f"{count} {state}" for state, count in sorted(now.items()))
                print(f"hour {(time.monotonic() - began) / HOUR:4.1f}: {shown}", flush=True)
            time.sleep(0.05)
        usage = json.loads(api("/usage"))
    print("batches:", ", ".join(f"{count} {status}" for status, count in sorted(usage["batches"].items())))
    print("requests: {requests}, most in a minute: {peak} (limit {limit}), refused: {refused}".format(**usage))
    print(f"answered: {usage['answered']}, twice: {usage['answered twice']}")
    return 0 if set(states()) <= {"answered", "failed"} else 1


if __name__ == "__main__":
    sys.exit(main())
