"""Answers that no job took: they belong to no job, and are too old for a job that is added from now on."""

from __future__ import annotations

from typing import Final

from hipq.doctor.finding import NOTE, OK, WARNING, Finding, View
from hipq.doctor.words import at, lasting, several
from hipq.job.when import SECOND
from hipq.stores.health.facts import Health

CHECK: Final = "answers"
MANY: Final = 100


def answers(health: Health, view: View) -> list[Finding]:
    if not health.queues:
        return []
    names = {queue.tables.number: queue.name for queue in health.queues}
    found = []
    for one in health.answers:
        if one.queue not in names:
            continue  # another instance's queue
        name, age = names[one.queue], (health.now - one.oldest) / SECOND
        sentence = (
            f"{several(one.answers, 'answer')} came for jobs that are not there, the oldest {lasting(age)} ago; "
            f"the first is deleted at {at(one.first_forgotten)}"
        )
        look = view.command("answers list", "--state", "buffered", "-q", name.partition(".")[2])
        advice = f"see whether their keys are those of jobs: {look}; then rekey or drop them"
        level = WARNING if one.answers >= MANY else NOTE
        facts = {"answers": one.answers, "oldest_seconds": age}
        found.append(Finding(CHECK, level, sentence, advice, name, facts))
    return found or [Finding(CHECK, OK, "no answer is left without a job")]
