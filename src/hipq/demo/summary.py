"""Whether all counts agree: the jobs the shop added, hipq's database, its events, and the bank's ledger.

Every check compares what different parties counted on their own. A check that fails is a bug, in hipq or here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hipq import Job
from hipq.demo.exchange import Reception
from hipq.demo.shop import CAPS, SHARES
from hipq.job.answer import BUFFERED, CONFLICT, DUPLICATE, LATE, MATCHED
from hipq.job.event_names import JobEvent
from hipq.job.states import FINAL, SCHEDULED, Code

if TYPE_CHECKING:
    from hipq.demo.run import Run

ORDERS: Final = 264
WORDS: Final = {MATCHED: "matched", BUFFERED: "early", DUPLICATE: "duplicate", CONFLICT: "conflict", LATE: "late"}
"""hipq's outcomes of answers, and what newcomers are told."""


class Check(NamedTuple):
    about: str
    text: str
    holds: bool


class DemoFacts(NamedTuple):
    """Everything that was counted, by whom."""

    jobs: Sequence[Job[Any]]
    """The jobs in the database."""
    added: int
    """The number of jobs that the shop itself added."""
    events: Counter[str]
    """hipq's events."""
    tomorrow: int
    cancelled: int
    rush: frozenset[int]
    first: frozenset[int]
    opens: datetime
    left: int
    """Units of limits that are still in use."""
    bank: Mapping[str, Any]
    """The bank's ledger."""
    words: Mapping[str, int]
    """hipq's outcomes of answers."""
    inbox: Mapping[str, int]
    """Answers in the inbox by state, each as often as it arrived."""

    def of_type(self, job_type: str) -> list[Job[Any]]:
        return [job for job in self.jobs if job.type == job_type]


def gathered(run: Run, reception: Reception) -> DemoFacts:
    app = run.shop.app
    return DemoFacts(
        jobs=[job for queue in app.queues for job in app.jobs(queue.name, oldest=True, limit=10_000)],
        added=len(run.added),
        events=run.news.counts,
        tomorrow=run.tomorrow,
        cancelled=run.cancelled,
        rush=frozenset(run.rush),
        first=frozenset(run.first),
        opens=run.shop.opens,
        left=sum(sum(app.store.limits(queue.number).held.values()) for queue in app.queues),
        bank=run.ledger,
        words=reception.words,
        inbox={state: count.copies for state, count in app.answers.counts().items()},
    )


def checked(facts: DemoFacts) -> list[Check]:
    """What is checked, and whether it holds."""
    return [Check(*check) for part in (_jobs, _bank, _limits, _starts, _single) for check in part(facts)]


Checks = Iterator[tuple[str, str, bool]]


def _jobs(facts: DemoFacts) -> Checks:
    every, charges, receipts = facts.jobs, facts.of_type("charge"), facts.of_type("receipt")
    paid, live = _ended(charges, Code.OK), [job for job in every if job.state != FINAL]
    ends = Counter(job.code for job in every if job.state == FINAL)
    parts = {code: ends[code] for code in (Code.OK, Code.FAILED, Code.ERROR, Code.CANCELLED)}
    yield (
        "jobs", f"{len(every)} in the database = {facts.added} added by the shop + {len(receipts)} by other jobs",
        len(every) == facts.added + len(receipts) == facts.events[JobEvent.ADDED] == len({job.id for job in every}),
    )  # fmt: skip
    yield (
        "jobs", f"{len(every)} = {_sum(parts)} + {len(live)} for tomorrow",
        len(every) == sum(parts.values()) + len(live)
        and [(job.id, job.phase, job.attempt) for job in live] == [(facts.tomorrow, SCHEDULED, 0)],
    )  # fmt: skip
    ends = Counter(job.code for job in charges)
    orders = {"paid": ends[Code.OK], "declined": ends[Code.FAILED], "given up": ends[Code.ERROR]}
    yield (
        "orders", f"{len(charges)} = {_sum(orders)}",
        sum(orders.values()) == len(charges) == ORDERS
        and sorted(job.data["number"] for job in charges) == list(range(ORDERS))
        and all(job.result == {"status": "paid"} for job in paid),
    )  # fmt: skip
    yield (
        "receipts", f"{len(receipts)} for {len(paid)} orders that were paid, each its own",
        sorted(job.key for job in receipts) == sorted(job.key for job in paid)
        and _ended(receipts, Code.OK) == receipts,
    )  # fmt: skip


def _bank(facts: DemoFacts) -> Checks:
    bank, charges = facts.bank, facts.of_type("charge")
    attempts = sum(job.attempt for job in charges)
    requests, sent, copies = bank["requests"], bank["sent"], bank["copies"]
    parts = {"answered": bank["answered"], "never answered": bank["never"], "refused": bank["refused"]}
    said = {plain: facts.words.get(word, 0) for word, plain in WORDS.items()}
    kept, unused = sum(facts.inbox.values()), facts.inbox.get(BUFFERED, 0) + facts.inbox.get(MATCHED, 0)
    text = f"{requests} came to the bank = {attempts} attempts of {len(charges)} charges"
    yield "requests", text, requests == attempts
    yield "requests", f"{requests} = {_sum(parts)}", requests == sum(parts.values())
    text = f"{sent} sent by the bank = {bank['answered']} + {copies} second ones"
    yield "answers", text, sent == bank["answered"] + copies
    yield "answers", f"{sent} = {_sum(said)}", sent == sum(said.values()) and bank["words"] == facts.words
    yield "answers", f"{kept} are in hipq's inbox, {unused} of them unused", (kept, unused) == (sent, 0)


def _limits(facts: DemoFacts) -> Checks:
    seen = facts.bank["most"]
    parts = ", ".join(f"{name} {seen.get(name)} of {CAPS[name]}" for name in SHARES)
    holds = all(0 < seen.get(name, 0) <= cap for name, cap in CAPS.items())
    yield "limit", f"{CAPS['all']} at a time; the bank saw at most {seen.get('all')}", holds and not facts.left
    yield "limit", f"regions: {parts}", holds


def _starts(facts: DemoFacts) -> Checks:
    charges, freezes = facts.of_type("charge"), facts.of_type("freeze")
    rush = _started(job for job in charges if job.id in facts.rush)
    others = _started(job for job in charges if job.id in facts.first)
    holds = (len(rush), len(others)) == (len(facts.rush), len(facts.first)) and all(
        max(at for at, job in rush if job.lane == lane) <= min(at for at, job in others if job.lane == lane)
        for lane in SHARES
    )
    yield "priority", f"rush orders waited {_wait(rush)}, others added with them {_wait(others)}", holds
    ran = _ended(freezes, Code.OK)
    text = f"{len(ran)} of {len(freezes)} ran, after {_wait(_started(ran))}, whatever the limit said"
    yield "critical", text, len(ran) == len(freezes) > 0
    reports = [job for job in facts.of_type("report") if job.id != facts.tomorrow]
    starts = [at for at, _ in _started(reports)]
    after = (min(starts) - facts.opens).total_seconds() if starts else -1.0
    yield (
        "window",
        f"opened at {facts.opens:%H:%M:%S}; {len(starts)} reports, the first {after * 1000:.0f} ms later",
        len(starts) == len(reports) == len(_ended(reports, Code.OK)) and after >= 0,
    )


def _single(facts: DemoFacts) -> Checks:
    def ends(job_type: str) -> list[tuple[str, int | None, int, int]]:
        return [(job.code, job.exitcode, job.attempt, job.failures) for job in facts.of_type(job_type)]

    yield "failed", "the audit, for good, at its first attempt", ends("audit") == [(Code.FAILED, 400, 1, 0)]
    yield "cancelled", "the newsletter, before it started", ends("newsletter") == [(Code.CANCELLED, 499, 0, 0)]
    holds = ends("reconcile") == [(Code.OK, 200, 2, 1)] and facts.events[JobEvent.CRASHED] == 1
    yield "crashed", "the job that killed its process ran again, apart, and succeeded", holds


def _started(jobs: Iterable[Job[Any]]) -> list[tuple[datetime, Job[Any]]]:
    """The first start of each job, without those that never started."""
    claims = [([entry["at"] for entry in job.history if entry["event"] == JobEvent.CLAIMED], job) for job in jobs]
    return [(at[0], job) for at, job in claims if at]


def _wait(started: Sequence[tuple[datetime, Job[Any]]]) -> str:
    return f"{median((at - job.create_time).total_seconds() for at, job in started) if started else 0:.1f} s"


def _ended(jobs: Sequence[Job[Any]], code: str) -> list[Job[Any]]:
    return [job for job in jobs if job.state == FINAL and job.code == code]


def _sum(parts: Mapping[str, int]) -> str:
    return " + ".join(f"{count} {name}" for name, count in parts.items())
