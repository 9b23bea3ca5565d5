"""Reminders with Celery: those further ahead than a limit are kept by hipq, and published when they are due.

    python examples/celery_far_eta/remind_me.py worker        # a Celery worker; it publishes what is due, too
    python examples/celery_far_eta/remind_me.py send          # in another terminal

The second sends four reminders: one for now, one for four seconds from now, one that it takes back, one for next year.
The broker sees the first at once, the second in four seconds, and of the others nothing. The limit is two seconds here;
yours will be minutes. Look at what is kept with `hipq job list --db sqlite:///reminders.db`.

Messages go through files in the current folder, so that no server is needed; `BROKER_URL=redis://127.0.0.1:6379/5` uses
one. Kill the worker with -9 while a reminder is waiting, and start it again: it comes in time, or as soon as it can.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from celery import Celery

import hipq.celery

app = Celery("reminders", broker=os.environ.get("BROKER_URL", "filesystem://"))
if "BROKER_URL" not in os.environ:
    messages = Path("reminders-broker").resolve()
    messages.mkdir(exist_ok=True)
    app.conf.broker_transport_options = {
        "data_folder_in": str(messages),
        "data_folder_out": str(messages),
        "control_folder": str(messages / "control"),
    }
app.conf.task_ignore_result = True

kept = hipq.celery.install(app, "sqlite:///reminders.db", further_than=2)


@app.task(name="remind")
def remind(text: str) -> None:
    with Path("reminders.txt").open("a") as file:
        file.write(f"{text}\n")
    print(f"remember: {text}", flush=True)


def send() -> None:
    remind.delay("to begin")
    remind.apply_async(("the tea",), countdown=4)
    meeting = remind.apply_async(("the meeting that was called off",), countdown=5)
    remind.apply_async(("the taxes",), countdown=365 * 86_400)
    meeting.revoke()
    for job in kept.jobs("eta", oldest=True, state="initial"):
        print(f"{job.key} is kept until {job.scheduled_run_time:%Y-%m-%d %H:%M:%S} UTC")


if __name__ == "__main__":
    if sys.argv[1:] == ["send"]:
        send()
    elif sys.argv[1:] == ["worker"]:
        app.worker_main(["worker", "--pool", "solo", "--loglevel", "WARNING", "--without-mingle", "--without-gossip"])
    else:
        sys.exit("say worker, or send")
