"""The verbs about answers: all that programs and engines ask of the inbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hipq.job.answer import KEPT, MATCHED, STATES, Kept, NewAnswer
from hipq.stores.claim_groups import TOP
from hipq.stores.filters import AnswerFilter
from hipq.stores.inbox_transaction import Key, deliver
from hipq.stores.sql.dialect import Dialect, Sql
from hipq.stores.values import Delivered

_DROPPABLE: Final = [state for state in STATES if state != MATCHED]


class AnswerVerbs(Dialect):
    def answer(
        self, answers: Sequence[NewAnswer], now: int, *, instead_of: int = 0, patient: bool = True
    ) -> list[Delivered]:
        for queue in {one.queue for one in answers}:
            self._statements.table(queue)  # before a lock is held: it may have to read the registry

        def work(sql: Sql) -> tuple[list[Delivered], set[int]]:
            self._lock_keys(sql, [*_key_of(sql, instead_of), *(one.whole_key for one in answers)])
            inbox = self._inbox(sql)
            return deliver(inbox, answers, now, instead_of), inbox.changed

        if not answers:
            return []
        delivered, _ = self._transaction(work, patient=patient, ready=lambda done: dict.fromkeys(done[1], TOP))
        self.waker.notify()
        return delivered

    def answers(self, wanted: AnswerFilter) -> list[Kept]:
        table, order = "hipq_answers", f"ORDER BY id{wanted.order}"
        if wanted.within:
            some = wanted._replace(job_type="").condition()
            table = f"(SELECT * FROM hipq_answers WHERE {some} {order} LIMIT :within) AS few"
        query = f"SELECT {', '.join(KEPT)} FROM {table} WHERE {wanted.condition()} {order} LIMIT :limit"
        with self._reading(long=not wanted.queues) as sql:
            return sql.read(Kept, self._statements.spell(query), _values(wanted))

    def count_answers(self, queue: int, tenant: str = "") -> dict[str, tuple[int, int]]:
        wanted = AnswerFilter(queue, tenant=tenant)
        query = (
            "SELECT state, count(*), CAST(sum(copies) AS BIGINT) FROM hipq_answers "
            f"WHERE {wanted.condition()} GROUP BY state ORDER BY state"
        )
        with self._reading(long=True) as sql:
            found = sql.run(self._statements.spell(query), _values(wanted))
        return {state: (count, copies) for state, count, copies in found}

    def unused_answers(self, queues: Sequence[int], most: int) -> dict[str, int]:
        with self._reading() as sql:
            return dict(sql.found("unused_answers", queues=list(queues), most=most))

    def drop_answer(self, answer_id: int) -> bool:
        def work(sql: Sql) -> bool:
            # Without the lock the answer might be deleted after a job has looked, and before the job is given it.
            self._lock_keys(sql, _key_of(sql, answer_id))
            return sql.changed("answer_withdraw", id=answer_id, states=_DROPPABLE) == 1

        return self._transaction(work)

    def _mark_late_answers(self, queues: Sequence[int], limit: int) -> int:
        with self._reading() as sql:
            some = {queue for (queue,) in sql.found("early_queues")}
        return sum(self._changed_if_any("answer_late", queue, limit=limit) for queue in sorted(some & set(queues)))

    def _prune_answers(self, now: int, limit: int) -> int:
        return self._changed_if_any("answer_prune", now=now, limit=limit)


def _key_of(sql: Sql, answer_id: int) -> list[Key]:
    """The key of an answer, to be locked: a transaction that is about to give the answer to a job holds that lock."""
    found = sql.kept("answer", id=answer_id) if answer_id else []
    return [(one.queue, one.tenant, one.job_type, one.job_key) for one in found]


def _values(wanted: AnswerFilter) -> dict[str, Any]:
    return {name: list(value) if name == "queues" else value for name, value in wanted._asdict().items()}
