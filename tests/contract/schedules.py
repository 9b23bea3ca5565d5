"""What cron schedules need of a store: each write happens if nobody was faster, with its jobs; and changes are seen."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from msgspec.structs import replace

from hipq.job import ticks
from hipq.job.schedule import Definition, Schedule, ScheduleChange, Settings
from hipq.job.when import SECOND
from hipq.stores.protocols import Store
from hipq.stores.values import QueueTables
from tests.contract.database import Database, raw
from tests.contract.jobs import LATER, NOW, TYPE, add_one, everything, new, row_of

HOURLY = Definition(Settings("0 * * * *", data='{"deep":true}', lane="east"))


def schedule(name: str = "nightly", definition: Definition = HOURLY) -> Schedule:
    return ticks.begun(name, TYPE, definition, NOW)


def stored(store: Store, queue: int, *names: str) -> list[Schedule]:
    """New schedules, as the store has them then."""
    store.change_schedules(queue, [ScheduleChange(None, schedule(name)) for name in names or ("nightly",)])
    return store.schedules(queue, names=names or ("nightly",))


def version(store: Store, queue: int) -> int:
    return store.peek([(queue, (TYPE,))])[0].crons


class TestSchedules:
    def test_a_schedule_is_read_as_it_was_written(
        self, store: Store, other: Store, queue: QueueTables, queue2: QueueTables
    ) -> None:
        wanted = Settings("5 4 * * *", "Europe/Rome", '"\\u0001 é"', "all", True, -7, 2500, 0.5, '[{"start":"22:00"}]')
        definition = Definition(wanted, replace(wanted, meta='{"retry":null}', lane="eu"), paused=True)
        store.change_schedules(queue.number, [ScheduleChange(None, schedule(definition=definition))])
        (found,) = other.schedules(queue.number)
        assert found == schedule(definition=definition)._replace(version=1)
        assert found.definition.in_force.lane == "eu"
        assert store.schedules(queue2.number) == []

    def test_they_are_read_by_name_or_since_a_change(self, store: Store, queue: QueueTables) -> None:
        first = stored(store, queue.number, "b", "a", "c")
        assert [one.name for one in first] == ["a", "b", "c"]
        assert [one.name for one in store.schedules(queue.number, names=["c", "a", "x"])] == ["a", "c"]
        seen = version(store, queue.number)
        assert store.schedules(queue.number, seen) == []
        paused = ticks.redefined(first[1], replace(HOURLY, paused=True), NOW)
        store.change_schedules(queue.number, [ScheduleChange(first[1], paused)])
        assert [one.name for one in store.schedules(queue.number, seen)] == ["b"]
        assert version(store, queue.number) == seen + 1

    def test_a_peek_tells_of_changes_and_not_of_ticks(self, store: Store, queue: QueueTables) -> None:
        assert version(store, queue.number) == 0
        (one,) = stored(store, queue.number)
        assert version(store, queue.number) == 1
        store.change_schedules(queue.number, [ScheduleChange(one, ticks.ticked(one, LATER))])
        assert version(store, queue.number) == 1
        (one,) = store.schedules(queue.number)
        assert (one.last, one.version) == (LATER, 1)
        store.change_schedules(queue.number, [ScheduleChange(one, None)])
        assert version(store, queue.number) == 2
        assert store.schedules(queue.number) == []

    def test_a_tick_is_added_once(self, store: Store, other: Store, queue: QueueTables) -> None:
        (one,) = stored(store, queue.number)
        change = ScheduleChange(one, ticks.ticked(one, LATER), (new(queue.number, "tick"), new(queue.number, "more")))
        (added,) = store.change_schedules(queue.number, [change])
        assert added is not None
        assert other.change_schedules(queue.number, [change]) == [None]
        assert [row_of(store, job.id).job_key for job in added] == ["tick", "more"]
        assert len(everything(store, queue.number)) == 2

    def test_of_those_that_are_written_together_each_is_on_its_own(
        self, store: Store, other: Store, queue: QueueTables
    ) -> None:
        some = stored(store, queue.number, "a", "b", "c")
        changes = [ScheduleChange(one, ticks.ticked(one, LATER), (new(queue.number, one.name),)) for one in some]
        other.change_schedules(queue.number, [changes[1]])
        found = store.change_schedules(queue.number, changes)
        assert [one is None for one in found] == [False, True, False]
        assert [row_of(store, job.id).job_key for jobs in found if jobs for job in jobs] == ["a", "c"]
        assert [row.job_key for row in everything(store, queue.number)] == ["b", "a", "c"]

    def test_a_tick_by_another_definition_is_none(self, store: Store, other: Store, queue: QueueTables) -> None:
        """The next tick is the same, and the data of its job are not."""
        (one,) = stored(store, queue.number)
        changed = ticks.redefined(one, Definition(replace(HOURLY.code or Settings(), data="2")), NOW)
        assert changed.next == one.next
        assert other.change_schedules(queue.number, [ScheduleChange(one, changed)]) == [[]]
        tick = ScheduleChange(one, ticks.ticked(one, one.next), (new(queue.number),))
        assert store.change_schedules(queue.number, [tick]) == [None]
        assert everything(store, queue.number) == []

    def test_what_is_new_is_stored_once(self, store: Store, other: Store, queue: QueueTables) -> None:
        assert store.change_schedules(queue.number, [ScheduleChange(None, schedule())]) == [[]]
        later = ScheduleChange(None, schedule(definition=Definition(Settings("* * * * *"))))
        assert other.change_schedules(queue.number, [later]) == [None]
        assert store.schedules(queue.number)[0].definition == HOURLY

    def test_what_was_removed_is_not_written_again(self, store: Store, other: Store, queue: QueueTables) -> None:
        (one,) = stored(store, queue.number)
        store.change_schedules(queue.number, [ScheduleChange(one, None)])
        tick = ScheduleChange(one, ticks.ticked(one, LATER), (new(queue.number),))
        assert other.change_schedules(queue.number, [tick]) == [None]
        assert other.change_schedules(queue.number, [ScheduleChange(one, None)]) == [None]
        assert other.schedules(queue.number) == []
        assert everything(store, queue.number) == []

    def test_a_live_job_with_the_key_is_left_alone_and_the_tick_counts(self, store: Store, queue: QueueTables) -> None:
        job_id = add_one(store, new(queue.number, "tick"))
        (one,) = stored(store, queue.number)
        change = ScheduleChange(one, ticks.ticked(one, LATER), (new(queue.number, "tick"),))
        assert store.change_schedules(queue.number, [change]) == [[(job_id, True)]]
        assert store.schedules(queue.number)[0].last == LATER

    def test_of_many_that_try_at_once_one_adds_it(self, store: Store, other: Store, queue: QueueTables) -> None:
        some = stored(store, queue.number, "a", "b", "c")
        found: list[Sequence[object]] = []

        def tick(one: Store, order: int) -> None:
            changes = [ScheduleChange(each, ticks.ticked(each, LATER), (new(queue.number),)) for each in some]
            found.append(one.change_schedules(queue.number, changes[::order]))

        threads = [threading.Thread(target=tick, args=one) for one in [(store, 1), (other, -1)] * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(one is not None for each in found for one in each) == len(everything(store, queue.number)) == 3

    def test_changes_at_the_same_time_are_all_seen(self, store: Store, other: Store, queue: QueueTables) -> None:
        """Who looks, and looks again for what was changed since, has missed none."""
        seen: dict[str, Schedule] = {}
        done = threading.Event()

        def change(one: Store, name: str) -> None:
            for n in range(10):
                one.change_schedules(queue.number, [ScheduleChange(None, schedule(f"{name}{n}"))])

        def look() -> None:
            last = 0
            while not done.is_set() or last < version(store, queue.number):
                for one in store.schedules(queue.number, last):
                    seen[one.name], last = one, max(last, one.version)

        looker = threading.Thread(target=look)
        threads = [threading.Thread(target=change, args=one) for one in [(store, "a"), (other, "b"), (other, "c")]]
        for thread in (looker, *threads):
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        looker.join()
        assert len(seen) == 30

    def test_ten_thousand_are_written_and_read_in_few_statements(
        self, store: Store, queue: QueueTables, database: Database
    ) -> None:
        names = [f"s{n:05}" for n in range(10_000)]
        assert len(stored(store, queue.number, *names)) == 10_000
        some = store.schedules(queue.number, names=names[:100])
        found = store.change_schedules(queue.number, [ScheduleChange(one, ticks.ticked(one, LATER)) for one in some])
        assert found == [[]] * 100
        where = f"queue = {queue.number} AND last = {LATER} AND next = {LATER + 3600 * SECOND}"
        assert raw(database, f"SELECT count(*) FROM hipq_crons WHERE {where}") == [(100,)]
