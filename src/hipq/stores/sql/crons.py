"""The verbs about cron schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec

from hipq.job.schedule import Schedule, ScheduleChange, loaded
from hipq.stores.claim_groups import TOP, RankPosition
from hipq.stores.sql.dialect import Dialect, Sql
from hipq.stores.values import Stored
from hipq.stores.waker import lowest, soon

Written = list[list[Stored] | None]


class CronVerbs(Dialect):
    def schedules(self, queue: int, after: int = 0, names: Sequence[str] | None = None) -> list[Schedule]:
        with self._reading() as sql:
            if names is None:
                return loaded(sql.found("schedules", queue, after=after))
            return loaded(sql.found("schedules_named", queue, after=after, names=list(names)))

    def change_schedules(self, queue: int, changes: Sequence[ScheduleChange]) -> Written:
        redefines = any(change.redefines for change in changes)

        def work(sql: Sql) -> Written:
            version = sql.found("change_schedules", queue)[0][0] if redefines else 0
            done = self._write_schedules(sql, queue, changes, version)
            jobs = [job for change in done for job in change.jobs]
            stored = iter(self._insert.many(sql.conn, jobs, all_or_nothing=False) if jobs else [])
            names = {change.name for change in done}
            return [list(islice(stored, len(one.jobs))) if one.name in names else None for one in changes]

        def ready(written: Written) -> Mapping[int, RankPosition]:
            pairs = [(change.jobs, stored) for change, stored in zip(changes, written, strict=True) if stored]
            places = lowest(place for jobs, stored in pairs for place in soon(jobs, stored))
            return {queue: TOP} | places if redefines else places

        written = self._transaction(work, patient=False, ready=ready)
        self.waker.notify()
        return written

    def _write_schedules(
        self, sql: Sql, queue: int, changes: Sequence[ScheduleChange], version: int
    ) -> list[ScheduleChange]:
        """Those that are as they were before. Nobody adds or removes schedules meanwhile: who does has the number."""
        found = sql.found("lock_schedules", queue, names=[change.name for change in changes])
        there = {name: (number, following) for name, number, following in found}
        done = [change for change in changes if there.get(change.name) == _state(change.before)]
        kept = [(one.after, version if one.redefines else one.after.version) for one in done if one.after]
        rows = [(*one[:2], one.definition.dump(), *one[3:6], number) for one, number in kept]
        if rows:
            sql.changed("write_schedules", queue, rows=msgspec.json.encode(rows).decode())
        if gone := [one.name for one in done if one.after is None]:
            sql.changed("drop_schedules", queue, names=gone)
        return done


def _state(schedule: Schedule | None) -> tuple[int, int] | None:
    return (schedule.version, schedule.next) if schedule else None
