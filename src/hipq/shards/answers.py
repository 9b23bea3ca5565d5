"""The verbs about answers, over several databases.

An answer goes to the shard to which its key belongs. Where that knows no job for it, the other shards are asked: jobs
with a shard key of their own, children, and jobs that wait under another key may be anywhere. Such a job looks for its
answer, too, once it waits (`hipq.shards.view`): whoever comes second finds the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from hipq.errors import Conflict, NotFound, StoreBusy, StoreUnavailable
from hipq.job.answer import BUFFERED, REPLAYABLE, STATES, Answered, Kept, NewAnswer
from hipq.job.model import Row, queue_of
from hipq.shards import merge, place
from hipq.shards.shard import Shard
from hipq.shards.shard_set import ShardSet
from hipq.stores.filters import AnswerFilter
from hipq.stores.values import Delivered


class ShardedAnswers(ShardSet):
    def answer(
        self, answers: Sequence[NewAnswer], now: int, *, instead_of: int = 0, patient: bool = True
    ) -> list[Delivered]:
        if instead_of:
            self._check_replayable(instead_of)
        by_shard = defaultdict[Shard, list[int]](list)
        for n, new in enumerate(answers):
            by_shard[self.of_job(new.job) if new.job else self.home(new.job_key)].append(n)
        found: list[Delivered | None] = [None] * len(answers)
        for shard, some in by_shard.items():
            is_its = bool(instead_of) and place.slot_of_answer(instead_of) == shard.slot
            replaced = instead_of if is_its else 0
            delivered = self.bring(shard, [answers[n] for n in some], now, replaced, patient)
            for n, one in zip(some, delivered, strict=True):
                found[n] = self.elsewhere(shard, answers[n], one, now, patient)
            if instead_of and not is_its:
                self.drop_answer(instead_of)
        return [one for one in found if one is not None]

    def _check_replayable(self, answer_id: int) -> None:
        """As the shard itself does, where the answer is to go to another shard."""
        found = self.answers(AnswerFilter(id=answer_id))
        if not found:
            raise NotFound(f"there is no answer {answer_id}")
        if found[0].state not in REPLAYABLE:
            raise Conflict(f"answer {answer_id} is {found[0].state}: {STATES[found[0].state]}")

    def bring(
        self, shard: Shard, answers: Sequence[NewAnswer], now: int, instead_of: int, patient: bool
    ) -> list[Delivered]:
        try:
            theirs = [replace(new, queue=self.own(new.queue, shard)) for new in answers]
            with shard.asked() as store:
                return store.answer(theirs, now, instead_of=instead_of, patient=patient)
        except StoreUnavailable as error:
            if patient or isinstance(error, StoreBusy):
                raise
            raise StoreBusy(str(error)) from error  # for an engine of another shard, whose own store is there

    def elsewhere(self, home: Shard, new: NewAnswer, kept: Delivered, now: int, patient: bool) -> Delivered:
        """What became of an answer after all: if no job at home wants it, but one in another shard does, it is there.
        An answer that came before is offered again: whoever brought it then may have died before that."""
        if kept.job or new.job or new.unreadable or kept.outcome not in (Answered.BUFFERED, Answered.DUPLICATE):
            return kept
        for shard in self.shards:
            if shard is home:
                continue
            if not shard.is_asked:
                self.fetcher.add(partial(self._offer, shard, new, kept.id))
                continue
            if found := self._taken(shard, new, kept.id, now, patient):
                return found
        return kept

    def _taken(self, shard: Shard, new: NewAnswer, kept: int, now: int, patient: bool = True) -> Delivered | None:
        """Bring a shard an answer that is kept in another. None = no job there wants it."""
        (there,) = self.bring(shard, [new], now, 0, patient)
        if there.outcome == Answered.BUFFERED and not there.job and self.drop_answer(there.id):
            return None
        self.drop_answer(kept)
        return there

    def _offer(self, shard: Shard, new: NewAnswer, kept: int) -> None:
        """What was kept while a shard was away, and may be for a job there."""
        if any(one.state == BUFFERED and not one.job for one in self.answers(AnswerFilter(id=kept))):
            with shard.asked() as store:
                now = store.now()
            self._taken(shard, new, kept, now)

    def fetch_soon(self, shard: Shard, row: Row, now: int) -> None:
        """A job of this shard waits from now on: bring it the answers that are kept where its keys belong. Those shards
        may be slow, or away, and nobody waits for them."""
        for key in row.answer_keys:
            if self.home(key) is not shard:
                self.fetcher.add(partial(self._fetch, shard, row, key, now))

    def _fetch(self, shard: Shard, row: Row, key: str, now: int) -> None:
        home, queue = self.home(key), queue_of(row.id)
        wanted = AnswerFilter(self.own(queue, home), row.job_type, key, BUFFERED, limit=1_000, tenant=row.tenant)
        with home.asked() as store:
            kept = store.answers(wanted)
        for one in kept:
            if not one.job and one.early_until >= row.create_time:
                self._taken(shard, _again(one, queue), one.id, now)

    def answers(self, wanted: AnswerFilter) -> list[Kept]:
        asked = self.shards
        if slot := wanted.id and place.slot_of_answer(wanted.id):
            asked = [self.with_slot(slot, f"no answer {wanted.id}")]
        if wanted.job:
            asked = [self.of_job(wanted.job)]
        found = []
        for shard in asked:
            theirs = wanted._replace(queues=tuple(self.own(queue, shard) for queue in wanted.queues))
            if wanted.queue:
                theirs = theirs._replace(queue=self.own(wanted.queue, shard))
            with shard.asked() as store:
                found.append(store.answers(theirs))
        return merge.by_id(found, wanted)

    def count_answers(self, queue: int, tenant: str = "") -> dict[str, tuple[int, int]]:
        parts = self.all(queue, lambda store, own: store.count_answers(own, tenant))
        return merge.sums(parts, lambda one, other: (one[0] + other[0], one[1] + other[1]))

    def unused_answers(self, queues: Sequence[int], most: int) -> dict[str, int]:
        parts = [self.all(queue, lambda store, own: store.unused_answers([own], most)) for queue in queues]
        return merge.sums((part for some in parts for part in some), lambda one, other: min(one + other, most))

    def drop_answer(self, answer_id: int) -> bool:
        with self.with_slot(place.slot_of_answer(answer_id), f"no answer {answer_id}").asked() as store:
            return store.drop_answer(answer_id)


def _again(kept: Kept, queue: int) -> NewAnswer:
    """A kept answer, to be delivered once more."""
    return NewAnswer(
        queue, kept.job_type, kept.job_key, kept.data, kept.arrived, kept.early_until, kept.remember_until,
        kept.keep_until, max(kept.early_until - kept.arrived, 0), kept.tenant, kept.answer_id, bool(kept.error),
        kept.attempt,
    )  # fmt: skip
