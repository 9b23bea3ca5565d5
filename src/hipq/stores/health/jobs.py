"""The jobs of a queue that something may be wrong with, found by looking at the heads of indexes.

All databases understand these statements. A table is written `{_ready}`: the live table by that index, since SQLite
would look through all of it once it was analyzed at another time. `:name` is a parameter, and what the databases write
otherwise is in `words`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from hipq.job.activity import ANSWER, COUNTERS, DAY, Histogram
from hipq.job.model import COLUMNS, Row
from hipq.job.order import BEHIND
from hipq.job.wait_transitions import LONGEST_PAUSE
from hipq.job.when import SECOND
from hipq.limits.admission import Remembered
from hipq.limits.rules import load
from hipq.stores import migrations
from hipq.stores.asking import HOLDERS
from hipq.stores.health.facts import COUNTED, Outstanding, Sample, UnclaimedAnswers
from hipq.stores.health.words import Words
from hipq.stores.values import LISTENERS, Holder, Limits, QueueTables

Ask = Callable[[str, Mapping[str, Any]], list[tuple[Any, ...]]]
"""Put a statement to the database."""

TYPES: Final = 100
"""Job types of a queue that are looked at, at most;"""
CLAIM_GROUPS: Final = 20
"""claim groups of each of them;"""
OWNERS: Final = 200
"""engines that have jobs of it;"""
NEWEST: Final = 100
"""rows by which a calendar that was set back is noticed;"""
HEAVY: Final = 50
"""jobs that others pass;"""
ANSWERS: Final = 10 * COUNTED
"""and answers, of all queues."""
ENOUGH: Final = 20
"""Answers by which one knows how long they usually take."""

NOT_RUNNABLE: Final = 501
"""What a daemon ends jobs with whose handler is not there, or lacks something."""

_COLUMNS: Final = ", ".join("''" if name == "job_data" else name for name in COLUMNS)  # nobody here reads a payload
_remembered = msgspec.json.Decoder(Remembered)


class Jobs:
    def __init__(self, ask: Ask, queue: QueueTables, words: Words) -> None:
        self._put = ask
        self._queue = queue
        self._words = words

    # -- what waits to start ----------------------------------------------------------------------------------------
    def ready(self) -> list[Sample]:
        """The head of each claim group: one probe of the index a group, however many jobs the group has."""
        query = "SELECT job_type FROM {_ready} WHERE phase = 'ready' AND job_type > :after ORDER BY job_type LIMIT 1"
        found: list[Sample] = []
        after = ""
        for _ in range(TYPES):
            types = self._ask(query, after=after)
            if not types:
                break
            after = types[0][0]
            found += self._groups(after)
        return found

    def _groups(self, job_type: str) -> list[Sample]:
        head = (
            f"SELECT {_COLUMNS} FROM {{_ready}} WHERE phase = 'ready' AND job_type = :type "
            f"AND {self._words.later} ORDER BY lane, {self._words.windows}, throttle_factor, rank, id LIMIT 1"
        )
        same = (
            "{_ready} WHERE phase = 'ready' AND job_type = :type AND lane = :lane "
            f"AND {self._words.windows} = {self._words.these_windows} AND throttle_factor = :factor"
        )
        found: list[Sample] = []
        place: dict[str, Any] = {"type": job_type, "lane": "", "windows": "", "factor": 0, "rank": ""}
        for _ in range(CLAIM_GROUPS):
            rows = self._rows(head, **place)
            if not rows:
                break
            (row,) = rows
            place |= {"lane": row.lane, "windows": row.time_windows, "factor": row.throttle_factor, "rank": BEHIND}
            found.append(Sample(row, row.scheduled_run_time, self._count(same, **place)))
        return found

    def parked(self) -> list[Sample]:
        found = self._by_type(f"{{_parked}} WHERE {self._words.parked}, id")
        return [Sample(row, row.update_time, jobs) for row, jobs in found]

    def scheduled(self, now: int) -> list[Sample]:
        """Due, and nobody has made them ready."""
        time = self._words.run_time
        due = f"{{_stage}} WHERE phase = 'scheduled' AND {time} <= :now ORDER BY {time}"
        return [Sample(row, row.scheduled_run_time, jobs) for row, jobs in self._by_type(due, now=now)]

    def not_runnable(self, now: int) -> list[Sample]:
        """Of the jobs whose turn is next: those of tenants that no daemon could run, without a handler or a secret."""
        time = self._words.run_time
        query = (
            "SELECT min(id), count(*) FROM (SELECT id, tenant, job_type, exitcode FROM {_stage} "
            f"WHERE phase = 'scheduled' AND {time} > :now ORDER BY {time} LIMIT :many) AS next "
            "WHERE tenant <> '' AND exitcode = :status GROUP BY tenant, job_type ORDER BY 1"
        )
        counts = dict(self._ask(query, now=now, many=COUNTED, status=NOT_RUNNABLE))
        return [Sample(row, row.create_time, counts[row.id]) for row in self._by_id(list(counts)[:TYPES])]

    # -- what waits for something else ------------------------------------------------------------------------------
    def waiting(self, now: int) -> list[Sample]:
        """Past their deadline, and nobody has noticed."""
        time = self._words.deadline
        over = f"{{_wait}} WHERE phase = 'waiting' AND {time} <= :now ORDER BY {time}"
        return [Sample(row, row.deadline, jobs) for row, jobs in self._by_type(over, now=now)]

    def outstanding(self, now: int) -> list[Outstanding]:
        time = self._words.deadline
        query = (
            f"SELECT id, job_type, wait FROM {{_wait}} WHERE phase = 'waiting' AND {time} > :now "
            f"ORDER BY {time} LIMIT :many"
        )
        return [Outstanding(*row) for row in self._ask(query, now=now, many=COUNTED)]

    def usual(self, now: int) -> dict[str, float]:
        """From the counters of the last day (primary key)."""
        sums = ", ".join(f"sum({name})" for name in COUNTERS[ANSWER:])
        query = (
            f"SELECT job_type, {sums} FROM hipq_activity "
            "WHERE queue = :number AND grain IN (60, 3600, 86400) AND starts >= :since GROUP BY job_type"
        )
        rows = self._ask(query, number=self._queue.number, since=now - DAY * SECOND)
        found = {job_type: Histogram(tuple(map(int, counts))) for job_type, *counts in rows}
        return {name: one.percentile(0.95) or 0.0 for name, one in found.items() if one.total >= ENOUGH}

    def unread(self, now: int) -> list[Sample]:
        """The first job of each type whose answer handler has failed three times or more with its answer: the next time
        is soon, so they are at the head of the index of those that wait."""
        time = self._words.deadline
        query = (
            "SELECT min(id), count(*) FROM (SELECT id, job_type FROM {_wait} WHERE phase = 'waiting' "
            f"AND {time} > :now AND {time} <= :soon AND wait LIKE :failed AND wait NOT LIKE :once "
            "AND wait NOT LIKE :twice LIMIT :many) AS few GROUP BY job_type ORDER BY 1"
        )
        words = {"failed": '%"tries":%', "once": '%"tries":1,%', "twice": '%"tries":2,%'}
        soon = now + round(LONGEST_PAUSE * SECOND)
        counts = dict(self._ask(query, now=now, soon=soon, many=COUNTED, **words))
        return [Sample(row, row.update_time, counts[row.id]) for row in self._by_id(list(counts))]

    def left(self) -> list[Sample]:
        """For their retry handler, answer handler or cancel handler: the first of each type and retry strategy."""
        left, (first, second) = self._words.left, self._words.left_by
        queries = [  # two, since SQLite reads all of a type to find the next strategy by (job_type, ...) > (...)
            f"SELECT {first}, {second}, {_COLUMNS} FROM {{_todo}} WHERE {left} AND {after} "
            f"ORDER BY {first}, {second}, id LIMIT 1"
            for after in (f"{first} = :first AND {second} > :second", f"{first} > :first")
        ]
        same = f"{{_todo}} WHERE {left} AND {first} = :first AND {second} = :second"
        found: list[Sample] = []
        place = {"first": "", "second": ""}
        for _ in range(TYPES):
            heads = self._ask(queries[0], **place) or self._ask(queries[1], **place)
            if not heads:
                break
            row = Row(*heads[0][2:])
            place = {"first": heads[0][0], "second": heads[0][1]}
            found.append(Sample(row, row.update_time, self._count(same, **place)))
        return found

    def orphans(self, alive: set[int]) -> list[Sample]:
        """The first job of each engine that has some and is not alive."""
        query = f"SELECT {_COLUMNS} FROM {{_owner}} WHERE owner <> 0 AND owner > :after ORDER BY owner LIMIT 1"
        found: list[Sample] = []
        after = 0
        for _ in range(OWNERS):
            rows = self._rows(query, after=after)
            if not rows:
                break
            after = rows[0].owner
            if after not in alive:
                count = self._count("{_owner} WHERE owner <> 0 AND owner = :owner", owner=after)
                found.append(Sample(rows[0], rows[0].update_time, count))
        return found

    # -- the rest ---------------------------------------------------------------------------------------------------
    def limits(self, note: str) -> Limits:
        """Its rules, and, where they limit something, what is held."""
        query = "SELECT rules, admission FROM hipq_queues WHERE number = :number"
        ((text, memory),) = self._ask(query, number=self._queue.number)
        rules = load(text)
        if not rules.in_force:
            return Limits(rules, memory, {}, [], note)
        held = self._ask(f"SELECT lane, sum(held) FROM {{_owner}} WHERE {self._words.held} GROUP BY lane")
        query = (
            f"SELECT id, lane, held, owner FROM {{_owner}} WHERE {self._words.held} ORDER BY held DESC, id LIMIT :many"
        )
        holders = [Holder(*row) for row in self._ask(query, many=HOLDERS)]
        return Limits(rules, memory, {lane: int(units) for lane, units in held}, holders, note)

    def heavy(self, limits: Limits) -> list[Row]:
        passed = _remembered.decode(limits.memory).passed
        return self._by_id(sorted({job_id for job_id, _, _ in passed.values()})[:HEAVY])

    def latest(self) -> int:
        """When its newest rows were written: those that were added last, and those that ended last (index _time)."""
        query = (
            "SELECT max(create_time), max(update_time) FROM "
            "(SELECT create_time, update_time FROM {live} ORDER BY id DESC LIMIT :many) AS few"
        )
        moments = [*self._ask(query, many=NEWEST)[0]]
        moments += [row[0] for row in self._ask("SELECT update_time FROM {final} ORDER BY update_time DESC LIMIT 1")]
        return max((moment for moment in moments if moment is not None), default=0)

    def crons(self) -> dict[str, int]:
        last = "CASE WHEN last > since THEN last ELSE since END"
        query = f"SELECT name, {last} FROM hipq_crons WHERE next <> 0 AND queue = :number ORDER BY name LIMIT :many"
        return dict(self._ask(query, number=self._queue.number, many=COUNTED))

    # -- how --------------------------------------------------------------------------------------------------------
    def _by_type(self, which: str, **values: Any) -> list[tuple[Row, int]]:
        """The first job of each type among the first of these, and how many of the type are among them."""
        rows = self._ask(f"SELECT id, job_type FROM {which} LIMIT :many", **values, many=COUNTED)
        first = {job_type: job_id for job_id, job_type in reversed(rows)}
        counts = Counter(job_type for _, job_type in rows)
        return [(row, counts[row.job_type]) for row in self._by_id(sorted(first.values())[:TYPES])]

    def _by_id(self, ids: list[int]) -> list[Row]:
        return [
            row for job_id in ids for row in self._rows(f"SELECT {_COLUMNS} FROM {{live}} WHERE id = :id", id=job_id)
        ]

    def _rows(self, query: str, **values: Any) -> list[Row]:
        return [Row(*found) for found in self._ask(query, **values)]

    def _count(self, which: str, **values: Any) -> int:
        """It stops where it would be too much to count."""
        ((count,),) = self._ask(
            f"SELECT count(*) FROM (SELECT 1 FROM {which} LIMIT :many) AS few", **values, many=COUNTED
        )
        return int(count)

    def _ask(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        for index in ("ready", "parked", "stage", "wait", "todo", "owner"):
            query = query.replace(f"{{_{index}}}", self._words.by_index("{live}", index))
        return self._put(migrations.tables(query, self._queue), values)


def unclaimed(ask: Ask, now: int, words: Words) -> list[UnclaimedAnswers]:
    """Answers that belong to no job and came too long ago for one that is added now (index hipq_answers_open)."""
    table = words.by_index("hipq_answers", "open")
    query = (
        "SELECT queue, count(*), min(arrived), min(keep_until) FROM ("
        f"SELECT queue, job, arrived, early_until, keep_until FROM {table} WHERE {words.buffered} LIMIT :many"
        ") AS few WHERE job = 0 AND early_until < :now GROUP BY queue ORDER BY queue"
    )
    return [UnclaimedAnswers(*row) for row in ask(query, {"many": ANSWERS, "now": now})]


def listeners(ask: Ask) -> dict[str, str]:
    query = "SELECT name, value FROM hipq_notes WHERE kind = :kind ORDER BY name LIMIT :many"
    return dict(ask(query, {"kind": LISTENERS, "many": COUNTED}))
