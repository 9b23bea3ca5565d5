"""`hipq demo`: a few jobs on SQLite in a temporary folder, and what happens to them. Ends by itself."""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import Any

import click

from hipq import Answer, Failed, Hipq, Job, Ok, Wait, fixed
from hipq.cli.show import clock, described, print_json, print_table, timeline
from hipq.cli.target import announced, json_option
from hipq.events import Event


def _app(folder: Path) -> Hipq:
    app = Hipq("demo", f"sqlite:///{folder / 'demo.db'}")
    orders = app.queue("orders")

    @orders.job
    def receipt(job: Job[Any]) -> dict[str, Any]:
        """Succeeds."""
        return {"mailed": job.data["order"]}

    @orders.job(retry=fixed(0.3, attempts=3))
    def charge(job: Job[Any]) -> str:
        """Fails twice, then succeeds, and adds the next job together with its own success."""
        if job.attempt < 3:
            raise ConnectionError("the bank does not answer")
        job.enqueue("receipt", job.data)
        return "paid"

    @orders.job
    def reserve(job: Job[Any]) -> None:
        """Can never succeed, and says so."""
        raise Failed(f"order {job.data['order']} has nothing in stock")

    @orders.job
    def refund(_job: Job[Any]) -> Wait:
        """Asks the bank, and waits for its answer."""
        return Wait()

    @refund.answered
    def refunded(_job: Job[Any], answer: Answer) -> Ok | Failed:
        return Ok(answer.data) if answer.data["status"] == "done" else Failed("declined")

    @orders.job
    def ship(_job: Job[Any]) -> Wait:
        """Sends its request and waits for an answer that never comes."""
        return Wait()

    return app


@click.command()
@json_option
def demo(as_json: bool) -> int:
    """See jobs succeed, fail, retry, wait and be answered, in a few seconds."""
    with tempfile.TemporaryDirectory(prefix="hipq-demo-") as folder:
        app = announced(_app(Path(folder)))
        engine = app.engine(concurrency=4)
        started = time.monotonic()
        final = 0

        def tell(event: Event) -> None:
            nonlocal final
            if event.job is None or event.name == "answered":  # that its answer has come is said by "matched"
                return
            final += event.job.state == "final"
            if final == 6:
                engine.stop()
            if (event.name, event.job.job_type) == ("waits", "refund"):
                Timer(0.3, _bank, [app, event.job.job_key]).start()
            with suppress(BrokenPipeError):  # the reader has gone; said at the end, when nothing runs any more
                if not as_json:
                    click.echo(f"{time.monotonic() - started:5.2f} s  {_said(event)}")

        app.events.subscribe(tell)
        (orders,) = app.queues
        orders.enqueue("receipt", {"order": 16}, key="order-16")
        orders.enqueue("charge", {"order": 17}, key="order-17")
        orders.enqueue("reserve", {"order": 18}, key="order-18")
        orders.enqueue("refund", {"order": 15}, key="order-15")
        orders.enqueue("ship", {"order": 19}, key="order-19", delay=0.5, timeout=1)
        try:
            engine.run()
        finally:
            engine.hands.close()
        jobs = [described(app.name, orders.name, job) for job in app.jobs(orders.name)]
        app.close()  # before its folder goes
    if as_json:
        print_json(jobs)
    else:
        _print(jobs)
    return 0 if [job["code"] for job in jobs] == ["ok", "ok", "failed", "ok", "error", "ok"] else 1


def _bank(app: Hipq, key: str) -> None:
    """Somebody else, somewhere else, a while later."""
    app.answer("orders", "refund", key, {"status": "done"})


def _said(event: Event) -> str:
    job, name = event.job, event.name
    assert job is not None
    why = f": {fault}" if (fault := Job(job).fault) else ""
    match name:
        case "added":
            soon = job.scheduled_run_time - job.create_time
            text = f"added, to start in {soon / 1e6:.1f} s" if soon > 0 else "added"
        case "claimed" if job.state == "error":
            text = "is judged"
        case "claimed" if job.phase == "answered":
            text = "looks at its answer"
        case "matched":
            text = f"its answer has come, {event.details['waited']:.1f} s after it asked"
        case "claimed":
            text = f"starts, attempt {job.attempt}"
        case "again":
            text = f"failed{why}; again in {(job.scheduled_run_time - event.at) / 1e6:.1f} s"
        case "ok":
            text = f"succeeded: {job.result}"
        case "waits":
            text = f"has sent its request and waits, at most {(job.deadline - event.at) / 1e6:.1f} s"
        case _:
            text = f"{name}{why}"
    return f"{job.job_type:<8} {job.job_key:<9} {text}"


def _print(jobs: list[dict[str, Any]]) -> None:
    click.echo("\nAll of them are final now; nothing about them changes any more:\n")
    print_table(("id", "type", "key", "attempt", "code", "error"), jobs)
    charge = jobs[1]
    click.echo(f"\nThe history of job {charge['id']}, kept on its row (`hipq job show` prints it):\n")
    for at, text in timeline(charge):
        click.echo(f"  {clock(at)}  {text}")
