"""The verb that deletes what nobody needs any longer, part by part."""

from __future__ import annotations

from collections.abc import Sequence

from hipq.stores.sql.activity import ActivityVerbs
from hipq.stores.sql.answers import AnswerVerbs
from hipq.stores.sql.jobs import JobVerbs
from hipq.stores.values import Maintained


class MaintenanceVerbs(JobVerbs, AnswerVerbs, ActivityVerbs):
    def maintain(self, queues: Sequence[int], now: int, limit: int) -> Maintained:
        late = self._mark_late_answers(queues, limit) if queues else 0
        answers = self._prune_answers(now, limit)
        progress = self._prune_progress(queues, limit) if queues else 0
        return Maintained(late, answers, progress, bool(queues) and self._fold_activity(queues, now))
