"""The part of a turn that all SQL stores share: saving what stopped, and reading the answers of the jobs that were
claimed."""

from __future__ import annotations

from collections.abc import Sequence

from hipq.job.model import Change, queue_of
from hipq.job.states import ANSWERED, READY
from hipq.stores.claim_groups import TOP, RankPosition
from hipq.stores.claims import Turned
from hipq.stores.inbox_transaction import close_out, keys_to_lock, match_waiting
from hipq.stores.sql.dialect import Dialect, Sql
from hipq.stores.sql.rule_claims import Rulebook
from hipq.stores.sql.settle import Saved
from hipq.stores.waker import lowest, soon


class TurnVerbs(Dialect):
    _rulebook: Rulebook

    def _settled(self, sql: Sql, changes: Sequence[Change], now: int) -> tuple[Turned, Saved]:
        """The first half of a turn, in its transaction: save what stopped, and write the consequences for the inbox."""
        self._lock_keys(sql, keys_to_lock(changes), changes)
        inbox = self._inbox(sql)
        matched = match_waiting(inbox, changes, now)
        saved = self._settle.save(sql.conn, matched.changes)
        placed = close_out(inbox, saved.changes, matched, now)
        return Turned(saved.lost, [], saved.children, answered=matched.answered(saved.lost), placed=placed), saved

    def _news_of(self, engine_id: int, changes: Sequence[Change], saved: Saved) -> dict[int, RankPosition]:
        """What the changes of a turn mean for engines elsewhere: there is work; others may have waited for what was
        freed; handlers of jobs that are theirs need not go on."""
        due, rulebook = ready(saved), self._rulebook
        waited_for = {queue for queue in freed(saved) if rulebook.limited(queue) and rulebook.shared(queue)}
        taken = {queue_of(change.before.id) for change in changes if change.before.owner not in (0, engine_id)}
        return due | dict.fromkeys((waited_for | taken) - due.keys(), TOP)

    def _with_answers(self, sql: Sql, turned: Turned) -> Turned:
        """Add the answers that claimed jobs have to look at. From the claim on they belong to these jobs, and stay
        so."""
        if jobs := [row.id for row in turned.won if row.phase == ANSWERED]:
            turned.answers.update((one.job, one) for one in sql.kept("answer_given", jobs=jobs))
        return turned


def ready(saved: Saved) -> dict[int, RankPosition]:
    """The queues that have work now, each with the first place of it."""
    rows = [change.after for change in saved.changes if change.after.phase == READY]
    children, stored = [child for child, _ in saved.children], [one for _, one in saved.children]
    return lowest([*((queue_of(row.id), (row.rank, row.id)) for row in rows), *soon(children, stored)])


def freed(saved: Saved) -> set[int]:
    """The queues in which jobs no longer count against limits."""
    return {queue_of(change.before.id) for change in saved.changes if change.before.held > change.after.held}
