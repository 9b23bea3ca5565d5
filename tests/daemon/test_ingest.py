"""From the journal into the store: each job once and under the id it was promised, whatever dies between them."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import msgspec
import pytest

from hipq import Hipq
from hipq.cli.main import run
from hipq.daemon import ingest as module
from hipq.daemon import payloads
from hipq.daemon.http.feed import Feed
from hipq.daemon.ids import BLOCK, FIRST, JournalIds
from hipq.daemon.ingest import Ingest
from hipq.daemon.jobs import Jobs
from hipq.errors import JournalBehind, JournalRefused, StoreDefect, StoreError, StoreRefused, StoreUnavailable
from hipq.job.model import New, Row, numbered, sequence_of
from hipq.job.states import READY, SCHEDULED
from hipq.journal import Batch, Journal
from hipq.journal.directory import synced
from hipq.journal.quarantine import kept_refused
from hipq.stores.filters import Filter
from hipq.stores.values import JOURNALS, Stored
from tests.daemon.working import added, refuse
from tests.engine.conftest import url
from tests.engine.working import until
from tests.journal.conftest import in_memory

__all__ = ["in_memory", "url"]


class Died(BaseException):
    """The process is gone."""


class Fuse:
    """Burns at a step, when that comes for the nth time."""

    def __init__(self, step: str = "", times: int = 1) -> None:
        self.step = step
        self.times = times
        self.at: list[str] = []
        self.armed = True

    def burn(self, step: str) -> None:
        if self.armed:
            self.at.append(step)
            if step == self.step and self.at.count(step) == self.times:
                raise Died


def fuses() -> Iterator[Fuse]:
    """One that burns nowhere, and one for each step that came with it. Steps are named, not counted over all: a slow
    machine adds some, and another would be left out."""
    whole = Fuse()
    yield whole
    times = Counter[str]()
    for step in whole.at:
        times[step] += 1
        yield Fuse(step, times[step])


class Dying:
    """A store or a journal during, or after, one of whose verbs the process dies."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner, self._fuse = inner, fuse

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self._fuse.burn(f"before {name}")
            result = found(*arguments, **named)
            self._fuse.burn(f"after {name}")
            return result

        return call


class Odd:
    """A store whose `ingest` does as it is told: `act` gets the real one to call, or not."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.act: Callable[[Callable[[], bool]], bool] = lambda ingest: ingest()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def ingest(self, *arguments: Any) -> bool:
        return self.act(lambda: bool(self._inner.ingest(*arguments)))


class Part:
    """What of a daemon takes jobs in."""

    def __init__(
        self, url: str, folder: Path, fuse: Fuse | None = None, app: Hipq | None = None, segment_bytes: int = 400
    ) -> None:
        self._is_own = app is None
        self.app = app or Hipq("daemon", url)
        self.queue = self.app.queue("jobs") if self._is_own else self.app.queues[0]
        self.app.migrate()
        self.journal = Journal(folder / "journal", segment_bytes=segment_bytes)
        self.store = Odd(self.app.store)
        self.stored: list[int] = []
        self.fuse = fuse or Fuse()
        self.ids = JournalIds(self.app.store, self.queue.number, self.journal.identity, range(0), lambda _: None)
        self.ids.reserve()
        self.jobs = Jobs(self.app, self.queue, self.journal, self.ids, Feed(self.app.events))
        store, journal = Dying(self.store, self.fuse), Dying(self.journal, self.fuse)
        self.ingest = Ingest(store, journal, self.jobs, self.ids, self._told)  # type: ignore[arg-type]

    def _told(self, _news: Sequence[New], stored: Sequence[Stored]) -> None:
        self.stored += [one.id for one in stored]

    def add(self, *payloads: bytes, tenant: str = "acme", **options: Any) -> list[int]:
        return added(self.jobs, tenant, "work", payloads, **options)

    def drain(self) -> None:
        while self.journal.waiting_jobs:
            self.ingest.step()

    def rows(self, tenant: str = "acme") -> list[Row]:
        return self.app.store.find(Filter(self.queue.number, tenant=tenant, limit=10_000))

    def close(self) -> None:
        self.ingest.stop()
        self.journal.close()
        if self._is_own:
            self.app.close()


@contextmanager
def opened(
    url: str, folder: Path, fuse: Fuse | None = None, app: Hipq | None = None, segment_bytes: int = 400
) -> Iterator[Part]:
    part = Part(url, folder, fuse, app, segment_bytes)
    try:
        yield part
    finally:
        part.close()


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT", 0.01)
    monkeypatch.setattr(module, "REST", 0.0)


@pytest.fixture
def other_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/another.db"


@pytest.fixture
def app(url: str) -> Iterator[Hipq]:
    """For those who open a hundred parts, one after the other: to connect takes longer than what they do."""
    found = Hipq("daemon", url)
    found.queue("jobs")
    yield found
    found.close()


@pytest.fixture
def part(url: str, tmp_path: Path) -> Iterator[Part]:
    with opened(url, tmp_path) as found:
        yield found


def test_jobs_are_stored_under_the_ids_they_were_promised(part: Part) -> None:
    first = part.add(b"one", b"two \xff")
    second = part.add(b"three")
    assert first + second == [numbered(FIRST + n, part.queue.number) for n in range(3)]
    assert part.rows() == []
    part.drain()
    rows = part.rows()
    assert [row.id for row in rows] == first + second == part.stored
    assert [part.jobs.payload(row) for row in rows] == [b"one", b"two \xff", b"three"]
    assert {(row.tenant, row.lane, row.phase, row.attempt) for row in rows} == {("acme", "acme/work", READY, 0)}


def test_what_was_said_about_them_is_kept(part: Part) -> None:
    (job_id,) = part.add(b"x", delay=3600, priority=7, timeout=12.5, then="next")
    part.drain()
    (row,) = part.rows()
    assert (row.id, row.phase, row.priority, row.timeout) == (job_id, SCHEDULED, 7, 12.5)
    assert row.scheduled_run_time - row.create_time == 3_600_000_000
    assert (row.meta, row.history) == ('{"then":"next"}', "[]")


def test_a_commit_whose_end_was_not_heard_of_stores_each_job_once(part: Part) -> None:
    ids = part.add(b"a", b"b")
    part.drain()
    lost = []

    def unheard(ingest: Callable[[], bool]) -> bool:
        lost.append(ingest())
        raise StoreUnavailable("the connection broke")

    part.store.act = unheard
    ids += part.add(b"c", b"d")
    with pytest.raises(StoreUnavailable):
        part.ingest.step()
    part.ingest._place = None  # as its thread does
    part.store.act = lambda ingest: ingest()
    ids += part.add(b"e")
    part.drain()
    assert lost == [True]
    assert [row.id for row in part.rows()] == ids


def test_if_the_store_has_more_than_was_known_it_is_asked(part: Part) -> None:
    """An earlier connection's commit may come through late."""
    ids = part.add(b"a")

    def late(ingest: Callable[[], bool]) -> bool:
        ingest()
        return ingest()

    part.store.act = late
    part.ingest.step()
    assert part.ingest._place is None
    part.store.act = lambda ingest: ingest()
    ids += part.add(b"b")
    part.drain()
    assert [row.id for row in part.rows()] == ids


def test_a_crash_at_any_step_loses_nothing_and_stores_nothing_twice(url: str, app: Hipq, in_memory: Path) -> None:
    seen: set[str] = set()
    for number, fuse in enumerate(fuses()):
        folder, tenant = Path(mkdtemp(dir=in_memory)), f"tenant{number}"
        with opened(url, folder, fuse, app) as part:
            promised = part.add(b"1", b"2", tenant=tenant) + part.add(b"3", tenant=tenant)
            try:
                part.drain()
                promised += part.add(b"4", tenant=tenant)
                part.drain()
            except Died:
                seen.add(fuse.step)
            fuse.armed = False
        with opened(url, folder, app=app) as part:
            promised += part.add(b"after", tenant=tenant)
            part.drain()
            part.ingest.step()
            rows = part.rows(tenant)
            assert [row.id for row in rows] == promised, fuse.at[-1:]
            assert len({row.id for row in rows}) == len(rows)
    verbs = ("notes", "start_at", "read_reserve", "read", "ingest", "rsync")
    assert {f"{when} {verb}" for when in ("before", "after") for verb in verbs} <= seen


def test_while_the_store_is_away_jobs_are_accepted_and_taken_in_when_it_is_back(
    part: Part, caplog: pytest.LogCaptureFixture
) -> None:
    def away(_ingest: Callable[[], bool]) -> bool:
        raise StoreUnavailable("the database is away")

    part.store.act = away
    caplog.set_level(logging.INFO, "hipq")
    ids = part.add(b"first")
    part.ingest.start()
    until(lambda: part.ingest.away)
    assert part.ingest.away == "the database is away"
    for n in range(20):
        ids += part.add(str(n).encode())
    assert part.rows() == []
    part.store.act = lambda ingest: ingest()
    until(lambda: not part.journal.waiting_jobs)
    until(lambda: not part.ingest.away)
    assert [row.id for row in part.rows()] == ids
    said = [record.getMessage() for record in caplog.records]
    assert said.count("the store is away: the database is away") == 1, "and not with every try"
    assert "the store is back" in said


def test_what_goes_wrong_otherwise_is_told_and_tried_again(part: Part, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_ingest: Callable[[], bool]) -> bool:
        raise StoreError("")

    part.store.act = broken
    ids = part.add(b"x")
    part.ingest.start()
    until(lambda: part.ingest.stuck)
    assert not part.ingest.away, "the store is there"
    part.store.act = lambda ingest: ingest()
    until(lambda: not part.journal.waiting_jobs)
    until(lambda: not part.ingest.stuck)
    assert [row.id for row in part.rows()] == ids
    assert [record.levelname for record in caplog.records].count("ERROR") == 1


def test_a_stop_leaves_in_the_journal_what_is_there(part: Part) -> None:
    part.ingest.start()
    part.ingest.stop()
    ids = part.add(b"x")
    assert part.journal.waiting_jobs == 1
    part.ingest.step()  # its thread would not come here
    assert part.rows() == []
    assert ids


def test_a_full_journal_refuses_and_what_was_accepted_is_kept(url: str, tmp_path: Path) -> None:
    with opened(url, tmp_path) as part:
        part.journal.most_bytes = 2_000
        ids: list[int] = []
        while part.journal.waiting_bytes < 1_700:
            ids += part.add(b"x" * 100)
        with pytest.raises(JournalBehind):
            part.add(b"x" * 400)
        part.drain()
        assert [row.id for row in part.rows()] == ids
        part.add(b"there is room again")


def test_more_ids_are_reserved_before_they_are_used_up_and_none_are_given_out_when_they_are(part: Part) -> None:
    part.ids.take("acme", BLOCK - 1)
    (last,) = part.add(b"x")
    with pytest.raises(StoreUnavailable, match="used up"):
        part.add(b"y")
    part.drain()
    (next_one,) = part.add(b"y")
    assert next_one == numbered(FIRST + BLOCK, part.queue.number) > last


def test_two_daemons_on_one_store_take_in_what_each_has(url: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with opened(url, tmp_path / "a") as one, opened(url, tmp_path / "b") as other:
        ids = []
        for n in range(10):
            ids += one.add(b"one", b"more") + other.add(b"other")
            (one if n % 2 else other).drain()
        one.drain()
        other.drain()
        assert sorted(row.id for row in one.rows()) == sorted(ids)
        assert len(set(ids)) == 30


# -- what the store will not take -------------------------------------------------------------------------------------
def bad(part: Part, payload: bytes = b"bad") -> None:
    """A batch whose id another job has."""
    (job_id,) = part.add(b"first")
    part.drain()
    part.journal.write_now(Batch("acme", "work", sequence_of(job_id), (payload,), 1))


def bad_among_others(part: Part, tenant: str = "acme") -> list[int]:
    """A batch of which the second and the fourth job have ids that other jobs have; the ids of its others."""
    part.ids.take(tenant, 1)
    (second,) = part.add(b"second", tenant=tenant)
    part.ids.take(tenant, 1)
    part.add(b"fourth", tenant=tenant)
    part.ids.take(tenant, 1)
    part.drain()
    payloads = (b"1", b"bad 2", b"3", b"bad \xff\n4", b"5")
    first = sequence_of(second) - 1
    part.journal.write_now(Batch(tenant, "work", first, payloads, 1, '{"priority":7}'))
    return [numbered(first + n, part.queue.number) for n in (0, 2, 4)]


def set_aside(part: Part) -> list[tuple[str, int, tuple[bytes, ...]]]:
    batches = [one.batch for one in kept_refused(part.journal._folder)]
    return [(batch.tenant, batch.first, batch.payloads) for batch in batches if batch]


def test_of_a_batch_only_what_the_store_refuses_is_set_aside(part: Part) -> None:
    ids = bad_among_others(part)
    assert part.journal.waiting_jobs == 5
    before = len(part.stored)
    part.drain()
    assert part.stored[before:] == ids
    rows = {row.id: row for row in part.rows()}
    assert [part.jobs.payload(rows[job_id]) for job_id in ids] == [b"1", b"3", b"5"]
    assert {rows[job_id].priority for job_id in ids} == {7}
    assert sorted(part.jobs.payload(row) for row in rows.values()) == [b"1", b"3", b"5", b"fourth", b"second"]
    first = sequence_of(ids[0])
    assert set_aside(part) == [("acme", first + 1, (b"bad 2",)), ("acme", first + 3, (b"bad \xff\n4",))]
    for finding, n in zip(part.journal.found, (1, 3), strict=True):
        assert finding.kind == "refused"
        assert f"the job {numbered(first + n, part.queue.number)} of acme-work: " in finding.why
        assert "ids that other jobs have" in finding.why


def test_many_tenants_jobs_are_stored_beside_those_that_the_database_refuses(url: str, part: Part) -> None:
    refuse(part.app.store, url, "poison")
    ids = {
        tenant: part.add(*(b"poison %d" % n if n in bad else b"%d" % n for n in range(1500)), tenant=tenant)
        for tenant, bad in (("acme", {0, 700, 1499}), ("bcme", set()), ("ccme", {3}))
    }
    ids["dcme"] = [
        job_id for _ in range(30) for job_id in part.add(b"good", tenant="dcme") + part.add(b"poison", tenant="dcme")
    ]
    part.drain()
    poisoned = {"acme": [0, 700, 1499], "bcme": [], "ccme": [3], "dcme": list(range(1, 60, 2))}
    for tenant, all_of_them in ids.items():
        bad = [all_of_them[n] for n in poisoned[tenant]]
        assert [row.id for row in part.rows(tenant)] == [job_id for job_id in all_of_them if job_id not in bad]
        assert [first for name, first, _ in set_aside(part) if name == tenant] == [
            sequence_of(job_id) for job_id in bad
        ]
    assert all(b"poison" in payload for _, _, some in set_aside(part) for payload in some)
    assert all("picky" in one.finding.why for one in kept_refused(part.journal._folder))
    assert len(part.journal.found) == 34


def test_what_no_job_can_be_made_of_takes_no_other_along(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    real = payloads.stored

    def fails(payload: bytes) -> str:
        if payload == b"odd":
            raise ValueError("that is odd")
        return real(payload)

    monkeypatch.setattr(payloads, "stored", fails)
    ids = part.add(b"a", b"odd", b"c")
    part.drain()
    assert [row.id for row in part.rows()] == [ids[0], ids[2]]
    assert set_aside(part) == [("acme", sequence_of(ids[1]), (b"odd",))]
    assert "that is odd" in part.journal.found[0].why


def test_if_the_rest_is_refused_as_well_all_of_the_batch_is_set_aside_once(part: Part) -> None:
    ids = bad_among_others(part)

    def refusing(_ingest: Callable[[], bool]) -> bool:
        asked.append(1)
        if len(asked) < 3:
            raise StoreRefused(f"no {len(asked)}")
        return _ingest()

    asked: list[int] = []
    part.store.act = refusing
    part.drain()
    assert [len(payloads) for _, _, payloads in set_aside(part)] == [5]
    assert kept_refused(part.journal._folder)[0].finding.why.endswith("no 2")
    assert not {row.id for row in part.rows()} & set(ids)
    assert part.ingest._refusals == 1


def test_a_store_that_goes_away_between_gets_the_rest_when_it_is_back_and_nothing_is_said_twice(part: Part) -> None:
    ids = bad_among_others(part)

    def away(_ingest: Callable[[], bool]) -> bool:
        asked.append(1)
        if len(asked) == 2:
            raise StoreUnavailable("the database is away")
        return _ingest()

    asked: list[int] = []
    part.store.act = away
    with pytest.raises(StoreUnavailable):
        part.drain()
    assert len(set_aside(part)) == 2
    part.ingest._place = None  # as its thread does
    part.drain()
    assert part.stored[-3:] == ids
    assert (len(set_aside(part)), len(part.journal.found)) == (2, 2)


def test_to_find_out_which_are_refused_may_take_long(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of them cost a database minutes. A reservation that ran out meanwhile is void: the batch would be
    divided again and again, and nothing behind it ever be stored."""
    ids = bad_among_others(part)
    ahead = 0.0
    find = part.app.store.refusals

    def slowly(jobs: Sequence[tuple[int, New]]) -> dict[int, str]:
        nonlocal ahead
        ahead += 3600.0
        return find(jobs)

    monkeypatch.setattr(part.journal, "_clock", lambda: time.monotonic() + ahead)
    monkeypatch.setattr(part.store, "refusals", slowly, raising=False)
    part.drain()
    assert part.stored[-3:] == ids
    assert len(set_aside(part)) == 2


def test_batches_that_are_refused_in_part_do_not_count_as_a_store_that_takes_none(url: str, part: Part) -> None:
    refuse(part.app.store, url, "poison")
    ids = [part.add(b"poison", b"good") for _ in range(module.REFUSED_MOST + 5)]
    part.drain()
    assert [row.id for row in part.rows()] == [good for _, good in ids]
    assert len(set_aside(part)) == module.REFUSED_MOST + 5
    part.add(b"poison")
    part.drain()
    assert len(set_aside(part)) == module.REFUSED_MOST + 6, "one that is refused whole does not hold up others"


def test_one_tenant_whose_posts_are_refused_one_after_the_other_holds_up_nobody(
    url: str, part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(module, "TRIED", 7)  # it is not in the first look
    refuse(part.app.store, url, "poison")
    poison = [part.add(b"poison %d" % n, tenant="evil") for n in range(3 * module.REFUSED_MOST)]
    part.ingest.start()
    until(lambda: part.ingest.stuck)  # as far as anybody knows, the store takes nothing
    assert len(set_aside(part)) == module.REFUSED_MOST
    ids = part.add(b"good")
    until(lambda: not part.journal.waiting_jobs)
    until(lambda: not part.ingest.stuck)
    assert [row.id for row in part.rows()] == ids
    assert part.rows("evil") == []
    assert [(first, len(some)) for _, first, some in set_aside(part)] == [
        (sequence_of(job_id), 1) for (job_id,) in poison
    ]


def test_a_look_behind_what_is_refused_goes_on_where_the_last_one_ended(
    url: str, part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TRIED", 1)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    refuse(part.app.store, url, "poison")
    part.ingest.begin()
    for n in range(5):
        part.add(b"poison %d" % n)
    token = part.journal.read_reserve(1, 60)
    assert token is not None
    looking = part.ingest._behind
    assert not looking.has_some(token)
    assert looking._looked is None, "no time was left to look at anything"
    monkeypatch.setattr(module, "LOOK_SECONDS", 60.0)
    assert not looking.has_some(token)
    part.add(b"good")
    assert looking.has_some(token)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    assert looking.has_some(token), "it is known"
    looking.forget()
    assert not looking.has_some(token)


def test_a_batch_that_the_store_will_not_take_is_set_aside_and_the_others_go_on(part: Part) -> None:
    before = part.add(b"before")
    bad(part, b"bad \xff\n")
    part.journal.write_now(Batch("acme", "work", 1 << 47, (b"odd",), 1, '{"priority":"high"}'))
    ids = [job_id for n in range(40) for job_id in part.add(b"%d" % n, b"more")]
    part.drain()
    assert [row.id for row in part.rows() if row.id in {*before, *ids}] == before + ids
    assert b"bad \xff\n" not in [part.jobs.payload(row) for row in part.rows()]
    assert [finding.kind for finding in part.journal.found] == ["refused", "refused"]
    first, second = kept_refused(part.journal._folder)
    assert first.batch is not None
    assert second.batch is not None
    assert (first.batch.payloads, second.batch.options) == ((b"bad \xff\n",), '{"priority":"high"}')
    assert "have ids that other jobs have" in first.finding.why
    assert "acme-work" in first.finding.why
    assert part.ingest._step > 80, "and it takes more at a time again"


def test_what_was_set_aside_is_said_at_every_start_and_by_the_command_line(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(url, tmp_path) as part:
        bad(part)
        part.drain()
    with opened(url, tmp_path) as part:
        assert [finding.kind for finding in part.journal.found] == ["refused"]
        part.ingest.begin()
        assert not part.journal.waiting_jobs
    folder = str(tmp_path / "journal")
    assert run(["journal", "check", folder]) == 1
    assert "the database has refused the job" in capsys.readouterr().out
    assert run(["journal", "show", folder, "--refused", "--json"]) == 0
    (shown,) = msgspec.json.decode(capsys.readouterr().out)
    assert shown["jobs"][0]["text"] == "bad"
    assert run(["journal", "recover", folder]) == 0
    assert "1 refused by the database" in capsys.readouterr().out


def test_what_was_set_aside_of_a_batch_is_shown_on_one_page(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(url, tmp_path) as part:
        bad_among_others(part)
        part.drain()
        bad_among_others(part)
        part.drain()
    folder = str(tmp_path / "journal")
    assert run(["journal", "check", folder, "--json"]) == 1
    found = msgspec.json.decode(capsys.readouterr().out)["found"]
    assert [one["kind"] for one in found] == ["refused"] * 4
    assert len({one["why"] for one in found}) == 4
    assert run(["journal", "show", folder, "--refused", "--json", "--limit", "1"]) == 0
    out, err = capsys.readouterr()
    shown = msgspec.json.decode(out)
    assert [one["jobs"][0].get("text") for one in shown] == ["bad 2", None]
    after = err.split("--after ")[1].split()[0]
    assert run(["journal", "show", folder, "--refused", "--json", "--limit", "1", "--after", after]) == 0
    out, err = capsys.readouterr()
    assert ([len(one["jobs"]) for one in msgspec.json.decode(out)], err) == ([1, 1], "")
    assert run(["journal", "recover", folder]) == 0
    assert "4 refused by the database" in capsys.readouterr().out


def test_all_that_was_set_aside_is_on_some_page_in_the_order_of_the_journal(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(url, tmp_path, segment_bytes=1 << 20) as part:
        refuse(part.app.store, url, "poison")
        for n in range(12):  # their offsets have three digits, and four
            part.add(b"poison %d" % n, b"good" * 50)
        part.drain()
    found: list[str] = []
    page = ["journal", "show", str(tmp_path / "journal"), "--refused", "--json", "--limit", "2"]
    after: list[str] = []
    while True:
        assert run([*page, *after]) == 0
        out, err = capsys.readouterr()
        found += [batch["jobs"][0]["text"] for batch in msgspec.json.decode(out)]
        if not err:
            break
        after = ["--after", err.split("--after ")[1].split()[0]]
    assert found == [f"poison {n}" for n in range(12)]


def test_a_store_that_takes_nothing_at_all_gets_nothing_set_aside_for_ever(
    part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the table: what waits stays in the journal, and is stored when that is mended."""
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.05)

    class Refusing(Odd):
        refuses = True

        def ingest(self, jobs: Any, *arguments: Any) -> bool:
            if jobs and self.refuses:
                raise StoreRefused("no such column")
            return bool(self._inner.ingest(jobs, *arguments))

    store = Refusing(part.app.store)
    part.ingest._store = store
    ids = [job_id for n in range(module.REFUSED_MOST + 20) for job_id in part.add(b"%d" % n)]
    part.ingest.start()
    until(lambda: part.ingest.stuck)
    assert part.ingest.stuck == "no such column"
    assert (part.journal.waiting_jobs, len(kept_refused(part.journal._folder))) == (20, module.REFUSED_MOST)
    store.refuses = False
    until(lambda: not part.journal.waiting_jobs)
    until(lambda: not part.ingest.stuck)
    assert [row.id for row in part.rows()] == ids[module.REFUSED_MOST :]


def test_a_defect_is_said_with_its_trace_and_is_no_outage(
    part: Part, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.05)

    class Defective(Odd):
        def ingest(self, *_: Any) -> bool:
            raise StoreDefect("a defect of hipq's: syntax error")

    part.ingest._store = Defective(part.app.store)
    part.add(b"x")
    part.ingest.start()
    until(lambda: part.ingest.stuck)
    assert (part.ingest.stuck, part.ingest.away) == ("a defect of hipq's: syntax error", "")
    (told,) = [one for one in caplog.records if one.exc_info and one.exc_info[0] is StoreDefect]
    assert told.levelname == "ERROR"


def test_a_crash_at_any_step_of_setting_aside_keeps_it_and_stores_the_others_once(
    url: str, app: Hipq, in_memory: Path
) -> None:
    seen: set[str] = set()
    for number, fuse in enumerate(fuses()):
        folder, tenant = Path(mkdtemp(dir=in_memory)), f"tenant{number}"
        with opened(url, folder, app=app) as part:
            (taken,) = part.add(b"taken", tenant=tenant)
            part.drain()
        with opened(url, folder, fuse, app) as part:
            promised = part.add(b"1", tenant=tenant)
            part.journal.write_now(Batch(tenant, "work", sequence_of(taken), (b"bad",), 1))
            promised += part.add(b"2", b"3", tenant=tenant)
            try:
                part.drain()
            except Died:
                seen.add(fuse.step)
            fuse.armed = False
        with opened(url, folder, app=app) as part:
            part.drain()
            part.ingest.step()
            assert [row.id for row in part.rows(tenant)] == [taken, *promised], fuse.at[-1:]
            assert [one.batch.payloads for one in kept_refused(part.journal._folder) if one.batch] == [(b"bad",)]
    assert {"before quarantine", "after quarantine", "before ingest", "after ingest", "after rsync"} <= seen


def test_a_crash_at_any_step_of_setting_a_part_aside_loses_nothing_and_stores_nothing_twice(
    url: str, tmp_path: Path
) -> None:
    seen: set[str] = set()
    for number, fuse in enumerate(fuses()):
        folder, tenant = tmp_path / str(number), f"tenant{number}"
        folder.mkdir()
        fuse.armed = False
        with opened(url, folder, fuse) as part:
            ids = bad_among_others(part, tenant)
            ids += part.add(b"behind", tenant=tenant)
            fuse.armed = True
            try:
                part.drain()
            except Died:
                seen.add(fuse.step)
            fuse.armed = False
        for _ in range(2):
            with opened(url, folder) as part:
                part.ingest.begin()
                part.drain()
                part.ingest.step()
                payloads = sorted(part.jobs.payload(row) for row in part.rows(tenant))
                assert payloads == [b"1", b"3", b"5", b"behind", b"fourth", b"second"], fuse.at[-1:]
                assert set(ids) <= {row.id for row in part.rows(tenant)}
                assert [some for _, _, some in set_aside(part)] == [(b"bad 2",), (b"bad \xff\n4",)], fuse.at[-1:]
                assert len(part.journal.found) == 2
    verbs = ("refusals", "quarantine", "ingest", "rsync")
    assert {f"{when} {verb}" for when in ("before", "after") for verb in verbs} <= seen


def test_what_is_set_aside_is_on_disk_before_the_place_moves_past_it(
    part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad_among_others(part)
    at: list[str] = []

    def sync(descriptor: int, name: str) -> None:
        synced(descriptor, name)
        at.append("sync")

    monkeypatch.setattr("hipq.journal.directory.synced", sync)

    def act(ingest: Callable[[], bool]) -> bool:
        at.append("ingest")
        return ingest()

    part.store.act = act
    part.drain()
    assert at == ["ingest", "sync", "sync", "sync", "ingest"], (
        "refused; the folder made, the file and its folder synced; stored"
    )


# -- whose a journal is -----------------------------------------------------------------------------------------------
def test_a_journal_is_refused_by_another_database_which_would_run_its_jobs_again(
    url: str, tmp_path: Path, other_url: str
) -> None:
    with opened(url, tmp_path) as part:
        ids = part.add(b"stored")
        part.drain()
        ids += part.add(b"waits")
    with opened(other_url, tmp_path) as part:
        with pytest.raises(JournalRefused, match="belongs to another database"):
            part.ingest.begin()
        part.ingest.start()
        until(lambda: "belongs to another database" in part.ingest.stuck)
        assert part.rows() == []
    with opened(url, tmp_path) as part:
        part.drain()
        assert [row.id for row in part.rows()] == ids, "with its own all is well"
    folder = str(tmp_path / "journal")
    assert run(["journal", "recover", folder, "--as-new", "--yes"]) == 0
    with opened(other_url, tmp_path) as part:
        part.drain()
        assert [part.jobs.payload(row) for row in part.rows()][-1:] == [b"waits"], "it was asked for"


def test_a_journal_in_which_there_never_was_a_job_may_change_its_database(
    url: str, tmp_path: Path, other_url: str
) -> None:
    for one in (url, other_url, url):
        with opened(one, tmp_path) as part:
            part.ingest.begin()
    with opened(other_url, tmp_path) as part:
        part.ingest.begin()
        ids = part.add(b"x")
        part.drain()
        assert [row.id for row in part.rows()] == ids


def test_a_database_that_is_made_anew_under_a_daemon_gets_nothing_that_was_in_the_old_one(
    url: str, tmp_path: Path
) -> None:
    with opened(url, tmp_path) as part:
        part.add(b"stored")
        part.drain()
        for kind in (JOURNALS, module.IDENTITIES):
            for name in (part.journal.identity, ""):
                part.app.store.change_note(kind, name, lambda _: "")
        before = part.rows()
        part.add(b"next")
        part.ingest.step()
        assert part.ingest._place is None, "it does not know how far it is"
        with pytest.raises(JournalRefused, match=r"belongs to another database.*`hipq journal recover \S+ --as-new`"):
            part.ingest.step()
        assert part.rows() == before


def test_a_journal_of_an_older_hipq_belongs_to_the_database_it_meets_first(url: str, tmp_path: Path) -> None:
    with opened(url, tmp_path) as part:
        part.add(b"a")
        part.drain()
        ids = part.add(b"b")
    (tmp_path / "journal" / "store").write_bytes(b"damaged, or not there")
    with opened(url, tmp_path) as part:
        part.drain()
        assert [row.id for row in part.rows()][1:] == ids
        part.journal.belong_to(module.identity_of(part.app.store))
