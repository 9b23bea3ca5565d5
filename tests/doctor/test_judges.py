"""Judges are pure: facts in, findings out. Here are those facts that no test can have for real."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from hipq.answers.reports import STALE, Member, Stream
from hipq.doctor.clock import clock
from hipq.doctor.database import database, schema
from hipq.doctor.diagnose import diagnose
from hipq.doctor.finding import Finding, View, lasting, several, size
from hipq.doctor.indexes import indexes
from hipq.doctor.outstanding import listeners, outstanding
from hipq.doctor.storage import file, server_storage
from hipq.job.waiting import Waiting
from hipq.job.when import SECOND
from hipq.stores.health.facts import (
    POSTGRESQL,
    SQLITE,
    FileHealth,
    Health,
    Holdback,
    Level,
    Outstanding,
    PagesHealth,
    Part,
    QueueHealth,
    ServerHealth,
    TableHealth,
    Unread,
)
from hipq.stores.health.parts import expected
from hipq.stores.migrations import Migration
from hipq.stores.sqlite.health_file import file_system
from hipq.stores.values import QueueTables

VIEW = View("shop:app", "shop:app", 300.0)
FILE = FileHealth("/data/shop.db", 5_000_000, 0, (), "ext4", 50_000_000_000, 100_000_000_000)
SERVER = ServerHealth(
    False, {"autovacuum": "on", "track_counts": "on", "fsync": "on", "full_page_writes": "on"}, 3, 97, True
)
TABLE = TableHealth("shop_orders", 100, 0, 50_000, 30.0, True)
ORDERS = QueueTables(1, "shop", "orders", "shop_orders")


def bad(found: Iterable[Finding]) -> list[tuple[str, str]]:
    findings = list(found)
    for finding in findings:
        assert bool(finding.advice) == (finding.level != "ok")
    return [(finding.level, finding.sentence) for finding in findings if finding.level != "ok"]


def on_disk(**changed: Any) -> list[tuple[str, str]]:
    return bad(file(Health(SQLITE, (3, 52, 0), file=FILE._replace(**changed)), VIEW))


# -- a file ----------------------------------------------------------------------------------------------------------
def test_a_good_file_is_good() -> None:
    assert on_disk() == []


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "9p", "fuse.sshfs"])
def test_a_network_file_system_is_a_problem(kind: str) -> None:
    ((level, sentence),) = on_disk(file_system=kind)
    assert level == "problem"
    assert f"is on a network file system ({kind})" in sentence


@pytest.mark.parametrize(("free", "level"), [(999_000_000, "warning"), (99_000_000, "problem")])
def test_a_full_disk(free: int, level: str) -> None:
    ((found, sentence),) = on_disk(disk_free=free)
    assert found == level
    assert "of 100 GB are free on the disk of /data/shop.db" in sentence


def test_a_log_that_cannot_be_emptied() -> None:
    assert on_disk(log_size=255_000_000) == []
    ((level, sentence),) = on_disk(log_size=300_000_000)
    assert level == "warning"
    assert "/data/shop.db-wal has 300 MB" in sentence


def test_free_pages_are_worth_a_word_only_if_they_are_many_and_most() -> None:
    def found(pages: int, free: int) -> list[tuple[str, str]]:
        health = Health(SQLITE, (3, 52, 0), file=FILE, pages=PagesHealth("wal", 4096, pages, free))
        return bad(file(health, VIEW))

    assert found(100, 90) == []
    assert found(100_000, 49_000) == []
    assert [level for level, _ in found(100_000, 51_000)] == ["note"]


MOUNTS = r"""
22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:40 / /mnt/our\040share rw,relatime shared:1 - nfs4 server:/share rw
31 30 0:41 / /mnt/our\040share/fast rw - xfs /dev/sdb rw
32 22 0:42 / /data rw - cifs //a/b rw
33 22 0:43 / /data rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/shop.db", "ext4"),
        ("/mnt/our share/shop.db", "nfs4"),
        ("/mnt/our shared/shop.db", "ext4"),
        ("/mnt/our share/fast/shop.db", "xfs"),
        ("/data/shop.db", "tmpfs"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    assert file_system(path, MOUNTS) == kind
    assert file_system(path, "") == ""


# -- a server --------------------------------------------------------------------------------------------------------
def test_versions_that_are_too_old() -> None:
    assert bad(database(Health(POSTGRESQL, (13, 0), server=SERVER), VIEW)) == []
    ((level, sentence),) = bad(database(Health(POSTGRESQL, (12, 9)), VIEW))
    assert (level, sentence) == ("problem", "hipq needs PostgreSQL 13, and this is 12.9")
    (level, sentence), _ = bad(database(Health(SQLITE, (3, 34, 1)), VIEW))
    assert (level, sentence) == ("problem", "hipq needs SQLite 3.35, and this is 3.34.1")


def test_the_lock_file_is_a_note_below_the_sqlite_that_needs_none() -> None:
    ((level, sentence),) = bad(database(Health(SQLITE, (3, 51, 2)), VIEW))
    assert level == "note"
    assert "conn=" in sentence
    assert bad(database(Health(SQLITE, (3, 51, 3)), VIEW)) == []


def test_a_standby_server_cannot_be_written() -> None:
    ((level, sentence),) = bad(database(Health(POSTGRESQL, (17, 0), server=SERVER._replace(standby=True)), VIEW))
    assert level == "problem"
    assert "standby" in sentence


@pytest.mark.parametrize(("used", "levels"), [(77, []), (78, ["warning"]), (92, ["warning"]), (93, ["problem"])])
def test_connections(used: int, levels: list[str]) -> None:
    found = bad(database(Health(POSTGRESQL, (17, 0), server=SERVER._replace(connections=used)), VIEW))
    assert [level for level, _ in found] == levels


def stored(table: TableHealth = TABLE, *held: Holdback) -> list[tuple[str, str]]:
    health = Health(POSTGRESQL, (17, 0), server=SERVER, tables=[table], holdbacks=list(held))
    health.queues = [QueueHealth(ORDERS, 1)]
    return bad(server_storage(health, VIEW))


def test_dead_rows_between_two_vacuums_are_nothing_to_talk_about() -> None:
    assert stored() == []
    assert stored(TABLE._replace(dead=5_000_000)) == []  # vacuumed half a minute ago
    assert stored(TABLE._replace(dead=9_000, vacuumed=None)) == []
    assert stored(TABLE._replace(dead=90_000, live=1_000_000, vacuumed=None)) == []
    ((level, sentence),) = stored(TABLE._replace(dead=90_000, vacuumed=3600.0))
    assert level == "warning"
    assert sentence == "table shop_orders has 90,000 dead rows beside 100 others, and its last vacuum was 1 h ago"


def test_a_table_that_is_mostly_empty_is_a_note() -> None:
    ((level, sentence),) = stored(TABLE._replace(size=2_000_000_000))
    assert (level, sentence) == ("note", "table shop_orders has 2 GB for 100 rows: most of that is empty")
    assert stored(TABLE._replace(size=2_000_000_000, live=1_000_000)) == []


def test_what_holds_dead_rows_back() -> None:
    young = Holdback("transaction", "17", "ann", 299.0, 5)
    assert stored(TABLE, young) == []
    ((level, sentence),) = stored(TABLE, young._replace(age=7500.0))
    assert level == "warning"
    assert sentence.startswith("a transaction has been open for 2 h 5 min (pid 17: ann)")
    slot = Holdback("slot", "replica", "physical", None, 0, 900_000_000, active=False)
    assert stored(TABLE, slot) == []
    assert [level for level, _ in stored(TABLE, slot._replace(transactions=10))] == ["warning"]
    assert [level for level, _ in stored(TABLE, slot._replace(log_size=2_000_000_000))] == ["warning"]
    assert stored(TABLE, slot._replace(log_size=2_000_000_000, active=True)) == []


def test_counters_that_are_off() -> None:
    settings = SERVER.settings | {"track_counts": "off"}
    found = bad(server_storage(Health(POSTGRESQL, (17, 0), server=SERVER._replace(settings=settings)), VIEW))
    assert [level for level, _ in found] == ["problem"]


# -- clocks ----------------------------------------------------------------------------------------------------------
NOW = 1_800_000_000_000_000


@pytest.mark.parametrize(("ahead", "said"), [(60, "1 min ahead of"), (-60, "1 min behind"), (4, None), (-4, None)])
def test_clocks_that_are_apart(ahead: int, said: str | None) -> None:
    found = bad(clock(Health(POSTGRESQL, here=NOW + ahead * 1_000_000, now=NOW), VIEW))
    assert [level for level, _ in found] == ["warning"] * bool(said)
    assert all(said and said in sentence for _, sentence in found)


def test_a_slow_way_to_the_server_is_no_wrong_clock() -> None:
    assert bad(clock(Health(POSTGRESQL, here=NOW + 8_000_000, now=NOW, uncertain=4.0), VIEW)) == []


# -- the schema ------------------------------------------------------------------------------------------------------
def test_a_newer_schema_that_takes_this_program_is_a_note() -> None:
    health = Health(SQLITE, level=Level(3, 2, 2))
    assert bad(schema(health, VIEW)) == [("note", "the database is at schema 3, this program at 2: that works")]


def test_parts_of_a_newer_schema_are_not_judged() -> None:
    health = Health(SQLITE, level=Level(3, 2, 2), expected=[Part("table", "hipq_meta", "hipq_meta")])
    assert list(indexes(health, VIEW)) == []
    health.level = Level(2, 2, 2)
    assert bad(indexes(health, VIEW)) == [("problem", "table hipq_meta is missing")]


def test_what_later_migrations_drop_is_not_expected() -> None:
    database = "CREATE TABLE a (\n  x INTEGER,\n  CONSTRAINT a_x CHECK (x > (0))\n);\n"
    queue = "CREATE TABLE {live} (id INTEGER);\nCREATE INDEX {live}_id ON {live} (id) WHERE id <> 0;\n"
    first = Migration(1, "1.sql", 1, database, queue)
    second = Migration(2, "2.sql", 1, "-- CREATE TABLE none\n", "DROP INDEX {live}_id;\n")
    known = [first, second]
    names = [part.name for part in expected(known, 2, [(ORDERS, 1)])]
    assert names == ["a", "a_x", "shop_orders", "shop_orders_id"]
    assert [part.name for part in expected(known, 2, [(ORDERS, 2)])] == ["a", "a_x", "shop_orders"]
    check, index = (part for part in expected(known, 1, [(ORDERS, 1)]) if part.kind != "table")
    assert check.sql == "CONSTRAINT a_x CHECK (x > (0))"
    assert index[2:6] == ("shop_orders", ("id",), False, True)


# -- all together ----------------------------------------------------------------------------------------------------
def test_what_could_not_be_read_is_never_called_good() -> None:
    health = Health(SQLITE, (3, 52, 0), now=NOW, here=NOW, level=Level(1, 1, 1), file=FILE)
    health.queues = [QueueHealth(ORDERS, 1)]
    good = {finding.check for finding in diagnose(health, VIEW) if finding.level == "ok"}
    assert {"jobs", "answers", "clock"} <= good
    health.unread = [Unread("jobs", "shop.orders", "no such index"), Unread("answers", "", "denied")]
    found = diagnose(health, VIEW)
    assert not {"jobs", "answers"} & {finding.check for finding in found if finding.level == "ok"}
    assert ("warning", "this could not be checked: denied") in bad(found)


def test_rows_that_make_no_sense_do_not_hide_what_else_is_found() -> None:
    health = Health(SQLITE, (3, 52, 0), now=NOW, here=NOW, level=Level(1, 1, 1), file=FILE._replace(disk_free=0))
    nonsense: Any = "yesterday"
    health.queues = [QueueHealth(ORDERS, 1, latest=nonsense)]
    found = diagnose(health, VIEW)
    assert {one.check for one in found if one.level == "problem"} == {"clock", "storage"}
    assert any("makes no sense (TypeError" in one.sentence for one in found)


def test_of_a_database_that_cannot_be_read_only_the_file_is_judged() -> None:
    health = Health(SQLITE, (3, 52, 0), "SQLite: disk I/O error", now=NOW, file=FILE._replace(disk_free=0))
    assert [(one.check, one.level) for one in diagnose(health, VIEW)] == [
        ("database", "problem"),
        ("storage", "problem"),
    ]


# -- words -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0 s"), (59.4, "59 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h"), (11_100, "3 h 5 min"),
     (86_400, "1 day"), (180_000, "2 days 2 h")],
)  # fmt: skip
def test_times(seconds: float, text: str) -> None:
    assert lasting(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (999_900, "1 MB"), (3_456_000, "3.46 MB"), (5e15, "5e+03 TB")],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


def test_counts_that_stopped_say_so() -> None:
    assert [several(n, "job") for n in (0, 1, 2, 999, 1000)] == [
        "0 jobs", "1 job", "2 jobs", "999 jobs", "1,000 jobs or more"
    ]  # fmt: skip


def test_commands_in_advice_can_be_copied() -> None:
    view = View("--db 'sqlite:////a b.db'")
    assert view.command("queue resume", "--lane", "the east", queue="shop.orders") == (
        "`hipq queue resume --db 'sqlite:////a b.db' shop.orders --lane 'the east'`"
    )
    assert view.command("migrate") == "`hipq migrate --db 'sqlite:////a b.db'`"
    assert view.worker("shop.orders") == "`hipq worker MODULE:APP -q orders`"


def test_a_file_whose_jobs_are_being_moved_is_no_trouble() -> None:
    ((level, sentence),) = on_disk(moving=True, held_by="process 5")
    assert level == "note"
    assert "are being moved" in sentence


# -- answers that are outstanding, and their listeners -----------------------------------------------------------------
NOW = 1_800_000_000 * SECOND


def outstanding_for(seconds: float, left: float, usual: dict[str, float], **wait: Any) -> list[tuple[str, str]]:
    found = Waiting(until=NOW + round(left * SECOND), since=NOW - round(seconds * SECOND), **wait)
    queue = QueueHealth(ORDERS, 9, outstanding=[Outstanding(17, "charge", found.dump())], usual=usual)
    return bad(outstanding(Health(SQLITE, now=NOW, queues=[queue]), VIEW))


def test_a_wait_is_too_long_compared_with_what_is_usual() -> None:
    assert outstanding_for(400, 4000, {"charge": 200}) == []
    ((level, sentence),) = outstanding_for(700, 4000, {"charge": 200})
    assert level == "warning"
    assert "waits for its answer for longer than usual: 95 % of them come within 3 min; the first is job 17" in sentence
    assert outstanding_for(299, 4000, {"charge": 2}) == []  # not worth a word yet
    assert outstanding_for(700, 4000, {"charge": 200}, tries=1) == []  # it has its answer


def test_where_nobody_knows_what_is_usual_a_deadline_that_is_near_counts() -> None:
    assert outstanding_for(900, 101, {}) == []
    ((_, sentence),) = outstanding_for(900, 99, {})
    assert "waits for its answer and will soon give up; the first is job 17, after 15 min, with 1 min left" in sentence


def told_by(*members: Member, app: str = "shop", awaited: bool = False) -> list[tuple[str, str]]:
    stream = Stream("kafka://b/paid", {}, {f"web:{n}": one for n, one in enumerate(members)})
    jobs = [Outstanding(17, "charge", Waiting(until=NOW + SECOND).dump())] if awaited else []
    queue = QueueHealth(ORDERS, 9, outstanding=jobs)
    names = {f"{app} orders.charge kafka://b/paid": msgspec.json.encode(stream).decode()}
    return bad(listeners(Health(SQLITE, now=NOW, queues=[queue], listeners=names), VIEW))


def test_listeners_that_lag_or_cannot_read() -> None:
    assert told_by(Member(NOW, 1000), Member(NOW)) == []
    assert ["2,000 messages behind" in one for _, one in told_by(Member(NOW, 3), Member(NOW, 2000))] == [True]
    assert ["in trouble: no route" in one for _, one in told_by(Member(NOW, error="no\nroute"))] == [True]
    assert told_by(Member(NOW, 2000), app="farm") == []


def test_a_stream_that_nobody_listens_to_although_jobs_wait() -> None:
    assert told_by() == []
    gone = Member(NOW - 2 * STALE, 5000)
    assert ["nobody listens to kafka://b/paid" in one for _, one in told_by(gone, awaited=True)] == [True]
    assert told_by(gone, Member(NOW), awaited=True) == []
