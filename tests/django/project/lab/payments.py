"""An application of hipq's own on Django's database."""

from __future__ import annotations

from hipq import Answer, Hipq, Job, Ok, Wait
from hipq.django import django_database
from hipq.middleware import DjangoConnections
from lab import tasks
from lab.models import Note

app = Hipq("payments", django_database())
app.use(DjangoConnections())
charges = app.queue("charges", throttle_limit=2)


@charges.job
def charge(job: Job) -> Wait:
    Note.objects.create(text=f"asked for {job.data['amount']}")
    return Wait()


@charge.answered
def settled(job: Job, answer: Answer) -> Ok:
    tasks.note.enqueue("thanks")
    receipt.enqueue({"of": job.key})
    return Ok(answer.data)


@charges.job
async def receipt(job: Job) -> str:
    return f"receipt of {job.data['of']}"
