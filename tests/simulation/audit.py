"""What must always hold (RELIABILITY I1 to I8, I10, I13), checked over everything that happened in a run.

Triggers in the database keep the trail: a write that was rolled back leaves none, and none can go unseen. What may
start, by limits, pauses, windows and throttlers, is checked in `starts`.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hipq.job import transitions
from hipq.job.answer import KEPT
from hipq.job.fault import Fault
from hipq.job.model import ALONE, COLUMNS
from hipq.job.states import (
    ANSWERED,
    CANCELLING,
    DECIDING,
    EXECUTING,
    FINAL,
    INITIAL,
    PARKED,
    READY,
    RETRY,
    TRANSITIONS,
    WAITING,
    reachable,
)
from tests.simulation.scene import FENCED, URGENT

if TYPE_CHECKING:
    from tests.simulation.world import World

ATTEMPTS = 4
"""How often jobs that have a retry handler may fail."""
CRON = "cron"
"""The marker of jobs that a schedule adds: there may be many."""


class Broken(AssertionError):
    """An invariant does not hold."""


class Write(NamedTuple):
    """One write of one row, as a trigger saw it."""

    number: int
    table: str
    verb: str
    id: int
    actor: int
    """The engine_id of the engine that wrote; 0 = a client."""
    now: int
    steady: int
    call: int
    """Which call of the store it was part of: a call is one transaction."""
    old: dict[str, Any]
    new: dict[str, Any]
    lease: int
    """Until when the old owner's lease lasted (0 = it had none)."""
    claimer: int
    """Until when the new owner's lease lasts."""


def install(conn: sqlite3.Connection, table: str, world: World) -> None:
    """Put triggers on a queue's two tables, its rules, its ticket, its schedules and the inbox."""
    conn.create_function("sim_actor", 0, lambda: world.actor)
    conn.create_function("sim_call", 0, lambda: world.call)
    conn.create_function("sim_now", 0, world.clock.now)
    conn.create_function("sim_steady", 0, world.clock.steady)
    conn.execute(
        "CREATE TABLE IF NOT EXISTS sim_audit "
        "(number INTEGER PRIMARY KEY, tab, verb, id, actor, now, steady, call, old, new, lease, claimer)"
    )
    conn.execute("CREATE TABLE IF NOT EXISTS sim_leases (engine_id, lease_until, steady)")
    conn.execute(
        "CREATE TRIGGER IF NOT EXISTS sim_renewed AFTER UPDATE ON hipq_engines BEGIN "
        "INSERT INTO sim_leases VALUES (old.engine_id, old.lease_until, sim_steady()); END"
    )
    for verb in ("INSERT", "UPDATE", "DELETE"):
        _watch(conn, "live", table, verb, "id", "owner", COLUMNS)
        _watch(conn, "final", f"{table}_final", verb, "id", "owner", COLUMNS)
        _watch(conn, "answer", "hipq_answers", verb, "id", "0", KEPT)
        _watch(conn, "cron", "hipq_crons", verb, "queue", "0", ("name", "since", "last", "next"))
    _watch(conn, "ticket", "hipq_tickets", "UPDATE", "queue", "engine_id", ("number", "engine_id", "until"))
    _watch(conn, "rules", "hipq_queues", "UPDATE OF rules", "number", "0", ("rules",))


def _watch(
    conn: sqlite3.Connection, kind: str, table: str, event: str, job_id: str, owner: str, columns: Sequence[str]
) -> None:
    verb = event.partition(" ")[0]
    sides = {
        side: "'{}'"
        if missing == verb
        else "json_object(" + ", ".join(f"'{column}', {side}.{column}" for column in columns) + ")"
        for side, missing in (("old", "INSERT"), ("new", "DELETE"))
    }
    row = "new" if verb == "INSERT" else "old"
    lease, claimer = (
        "0" if owner == "0" or not side
        else f"coalesce((SELECT lease_until FROM hipq_engines WHERE engine_id = {side}.{owner}), 0)"
        for side in (row, "new" if verb == "UPDATE" else "")
    )  # fmt: skip
    conn.execute(
        f"CREATE TRIGGER sim_{table}_{verb} AFTER {event} ON {table} BEGIN INSERT INTO sim_audit "
        f"(tab, verb, id, actor, now, steady, call, old, new, lease, claimer) VALUES ('{kind}', '{verb}', "
        f"{row}.{job_id}, sim_actor(), sim_now(), sim_steady(), sim_call(), "
        f"{sides['old']}, {sides['new']}, {lease}, {claimer}); END"
    )


def trail(conn: sqlite3.Connection) -> list[Write]:
    rows = conn.execute("SELECT * FROM sim_audit ORDER BY number").fetchall()
    return [Write._make((*row[:8], json.loads(row[8]), json.loads(row[9]), *row[10:])) for row in rows]


def check_leases(conn: sqlite3.Connection) -> None:
    for engine_id, until, steady in conn.execute("SELECT * FROM sim_leases").fetchall():
        require(until > steady, "I7", f"engine {engine_id} renewed a lease that had run out")


def require(holds: bool, invariant: str, message: str, write: object = "") -> None:
    if not holds:
        raise Broken(f"{invariant}: {message} {write}")


def check_writes(writes: Iterable[Write], started: set[tuple[int, int]]) -> dict[int, dict[str, Any]]:
    """Go through the trail once; the rows as they are at its end. `started`: id and token of runs that began."""
    rows: dict[int, dict[str, Any]] = {}
    keys: dict[tuple[str, str, str], int] = {}
    leaving: dict[int, Write] = {}
    for write in writes:
        if write.table == "final":
            _check_final(write, leaving)
            rows[write.id] = write.new
        elif write.verb == "INSERT":
            key = (write.new["tenant"], write.new["job_type"], write.new["job_key"])
            require(key not in keys, "I6", f"two live jobs with the key {key}", write)
            require(write.id not in rows, "I4", f"job {write.id} came back after it was final", write)
            keys[key] = write.id
            rows[write.id] = write.new
        elif write.verb == "DELETE":
            keys.pop((write.old["tenant"], write.old["job_type"], write.old["job_key"]), None)
            require(rows[write.id]["state"] == FINAL, "I1", f"job {write.id} was deleted and is not final", write)
        else:
            _check_move(write, write.old, write.new)
            same = write.old["job_key"] == write.new["job_key"]
            require(same, "I6", f"job {write.id} has another key than it was added with", write)
            if write.old["phase"] == write.new["phase"] == EXECUTING and (write.id, write.old["token"]) in started:
                started.add((write.id, write.new["token"]))  # the same run, adopted under its engine's new lease
            taken_back = write.new["attempt"] < write.old["attempt"]
            ran = (write.id, write.old["token"]) in started
            require(not (taken_back and ran), "I5", f"job {write.id} ran, and its attempt was taken back", write)
            rows[write.id] = write.new
    return rows


def _check_final(write: Write, leaving: dict[int, Write]) -> None:
    require(write.verb == "INSERT", "I4", f"final job {write.id} was changed", write)
    require(write.id not in leaving, "I4", f"job {write.id} became final twice", write)
    leaving[write.id] = write


def _check_move(write: Write, old: dict[str, Any], new: dict[str, Any]) -> None:
    """One change of one live row, or (checked at the end) its step from live to final."""
    require(new["token"] == old["token"] + 1, "I8", f"job {write.id} was written without a new token", write)
    same = new["state"] == old["state"]
    require(same or reachable(old["state"], new["state"]), "I5", f"{old['state']} -> {new['state']}", write)
    if same and new["state"] == INITIAL:
        require(new["attempt"] == 0, "I5", "an initial job has attempts", write)
    claimed = new["phase"] == EXECUTING and old["phase"] != EXECUTING
    grown = new["attempt"] - old["attempt"]
    if claimed:
        require(grown == 1, "I5", f"attempt grew by {grown} at a claim", write)
        sampled = max(write.now, new["update_time"])  # the turn's own time: the calendar may be set back during a turn
        require(new["scheduled_run_time"] <= sampled, "I10", f"job {write.id} started before its time", write)
        require(new["owner"] == write.actor, "I7", f"engine {write.actor} claimed for {new['owner']}", write)
        require(write.claimer > write.steady, "I7", f"engine {write.actor} claimed without a lease", write)
    else:
        back = grown == -1 and old["phase"] == EXECUTING
        require(grown == 0 or back, "I5", f"attempt went from {old['attempt']} to {new['attempt']}", write)
    _check_failure(write, old, new)
    _check_owner(write, old)


def _check_failure(write: Write, old: dict[str, Any], new: dict[str, Any]) -> None:
    """A crash of the process that ran a job alone is a failure of the job; the crash of an engine is none of any. And
    what a retry handler leaves in its copy of a job is saved with its verdict."""
    failed = new["failures"] - old["failures"]
    require(failed in (0, 1), "I5", f"failures went from {old['failures']} to {new['failures']}", write)
    kind = _kind(new)
    if old["phase"] == EXECUTING and kind != _kind(old):
        require(failed == 0 or kind != "rescued", "I13", f"a crash of its engine cost job {write.id} a failure", write)
        alone = old["crashes"] >= ALONE  # among others it costs nothing, but only once
        require(failed == alone or kind != "crash", "I13", f"job {write.id} crashed, with {failed} failures", write)
    if new["state"] == RETRY and (failed or old["phase"] == DECIDING) and new["job_type"] != URGENT:
        tries = json.loads(new["job_data"])["tries"]
        require(tries == new["failures"], "I3", f"the retry handler left {new['failures']}, saved is {tries}", write)


def _check_owner(write: Write, old: dict[str, Any]) -> None:
    """An engine writes what it owns, or what nobody with a live lease owns. (A client's cancel may write anything.)"""
    if write.actor and old["owner"] not in (0, write.actor):
        dead = write.lease <= write.steady
        require(dead, "I7", f"engine {write.actor} took job {write.id} from engine {old['owner']}, which lives", write)


def check_endings(writes: list[Write], settled: Mapping[int, int]) -> None:
    """A job becomes final by the engine that owns it, with the token it owned it by, or when its time is over; or by a
    client that cancels it or brings its answer. `settled`: the call in which an answer ended it."""
    live: dict[int, dict[str, Any]] = {}
    for write in writes:
        if write.table == "live" and write.verb != "DELETE":
            live[write.id] = write.new
        elif write.table == "final":
            old, new = live[write.id], write.new
            require(new["token"] == old["token"] + 1, "I8", f"job {write.id} became final without a new token", write)
            require(reachable(old["state"], FINAL), "I5", f"{old['state']} -> final", write)
            require(new["attempt"] == old["attempt"], "I5", "attempt changed when it became final", write)
            if write.actor:
                mine = old["owner"] == write.actor and old["phase"] in (EXECUTING, DECIDING, ANSWERED, CANCELLING)
                mine |= old["phase"] == WAITING and "on_timeout" in old["wait"]
                mine |= _kind(new) == "rejected" and old["phase"] in (READY, PARKED)
                require(mine, "I8", f"engine {write.actor} ended job {write.id}, which it does not own", write)
            else:
                wanted = _kind(new) == "cancelled" or settled.get(write.id) == write.call
                require(wanted, "I8", f"job {write.id} was ended from outside, and not cancelled", write)


def check_end(
    rows: dict[int, dict[str, Any]],
    acknowledged: dict[int, str],
    submitted: dict[str, str],
    executed: list[tuple[int, str, str]],
    poison: set[str],
    settled: Mapping[int, int],
) -> None:
    """Once quiet: nothing lost, nothing invented, nothing doubled, and a poison job ends only itself.

    `acknowledged` id -> marker, `submitted` marker -> payload, `executed` (id, marker, payload).
    """
    for job_id, marker in acknowledged.items():
        require(job_id in rows, "I1", f"job {job_id} ({marker}) was acknowledged and is gone")
    by_marker: dict[str, list[int]] = defaultdict(list)
    for job_id, row in rows.items():
        marker = _marker(row["job_data"])
        by_marker[marker].append(job_id)
        require(marker in submitted, "I3", f"nobody submitted job {job_id} ({marker})")
        require(
            row["state"] == FINAL, "I1", f"job {job_id} is {row['state']}/{row['phase']} for good: {row['history']}"
        )
        kind = _kind(row)
        stopped = kind in ("cancelled", "rejected")
        require(row["attempt"] >= 1 or stopped, "I1", f"job {job_id} ended without a try: {row['history']}")
        crashed = kind == "crash"
        require(not crashed or marker in poison, "I13", f"job {job_id} ({marker}) was ended for another's crash")
        most = transitions.CRASHES_ALLOWED if row["job_type"] == URGENT else ATTEMPTS
        asked = row["failures"] >= most or row["job_type"] == FENCED  # which has a lifetime
        require(not crashed or asked, "I13", f"job {job_id} was given up after {row['failures']} crashes")
        stopped |= job_id in settled
        require(marker not in poison or crashed or stopped, "I13", f"poison {marker} ended as {row['code']}")
    for marker, ids in by_marker.items():
        require(len(ids) == 1 or marker == CRON, "I2", f"{marker} was stored {len(ids)} times: {ids}")
    for job_id, marker, data in executed:
        require(job_id in rows, "I3", f"job {job_id} ran and is not in the store")
        require(submitted.get(marker) == data, "I3", f"job {job_id} ran with other data than was submitted: {data}")


def _marker(data: str) -> str:
    return str(json.loads(data)["marker"])


def _kind(row: dict[str, Any]) -> str:
    return Fault.load(row["error"]).kind if row["error"] != "NONE" else ""


def check_table() -> None:
    """The audit's own idea of legal moves is the product's table: nothing leads out of final."""
    require(not TRANSITIONS[FINAL], "I4", "the table has a way out of final")
