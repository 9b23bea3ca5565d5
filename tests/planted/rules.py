"""Bugs in what decides what may start: limits, rates, windows, pauses, schedules, throttlers."""

from __future__ import annotations

from tests.planted.bug import Bug

STORE = "stores/sqlite/store.py"
READER = "stores/sqlite/rule_claims.py"
ADMIT = "stores/rule_claims.py"
ADMISSION = "limits/admission.py"
CLAIM_GROUPS = "stores/claim_groups.py"
TICK = "engine/tick.py"
MOVES = "job/transitions.py"
SHARED_READER = "stores/sql/rule_claims.py"
HELD = 'return Held.of(self.sql.found("held", self.queue))'

RULE_BUGS = (
    Bug(
        "a limit compared with memory, not with rows",
        "I9",
        (
            (SHARED_READER, HELD, HELD.replace("Held.of(", "_known.setdefault(self.sql.conn, Held.of(") + ")"),
            (SHARED_READER, "class Rulebook(ABC):", "_known = {}\n\n\nclass Rulebook(ABC):"),
        ),
    ),
    Bug(
        "waiting jobs do not count",
        "I9",
        (("stores/sqlite/sql/held.sql", "held <> 0 GROUP", "held <> 0 AND owner <> 0 GROUP"),),
    ),
    Bug(
        "waiting jobs give back what they hold",
        "I9",
        (("job/wait_transitions.py", "deadline=wait.deadline(now), ", "deadline=wait.deadline(now), held=0, "),),
    ),
    Bug("every job counts as one unit", "I9", ((ADMISSION, "pool.take(factor, place)", "pool.take(1, place)"),)),
    Bug("a heavy job fits where a light one does", "I9", ((ADMISSION, "pool.fits(factor)", "pool.fits(1)"),)),
    Bug(
        "the share of a lane is forgotten",
        "I9",
        (("limits/share.py", "whole * counted(self.percent.get(lane, self.other)) // (100 * UNIT)", "whole"),),
    ),
    Bug(
        "a changed limit is not heard of",
        "I9|I11",
        (
            (READER, "return Ruled(load(rules), memory)",
             "found = load(rules)\n        limits = found.in_force and _known.setdefault(sql.conn, found.in_force)\n"
             "        return Ruled(msgspec.structs.replace(found, changed=limits), memory)"),
            (READER, "class SqliteRulebook(Rulebook):", "_known = {}\n\n\nclass SqliteRulebook(Rulebook):"),
        ),
    ),
    Bug(
        "a job above a lowered limit never starts",
        "I1|I13",
        (("limits/pool.py", " or (self.alone and factor > self.cap and self.used == 0)", ""),),
    ),
    Bug(
        "heads in reverse order",
        "I11",
        ((CLAIM_GROUPS, "        place, index = heappop(heap)\n", "        place, index = heap.pop()\n"),),
    ),
    Bug(
        "a heavy job may be passed for ever",
        "I11",
        ((ADMISSION, "if pool.heavy and pool.passes(place) and pool.passed + factor > pool.cap:", "if False:"),),
    ),
    Bug(
        "engines without its code pass a heavy job for ever",
        "I11",
        ((ADMISSION, "                if job_type:\n", "                if job_type and ours:\n"),),
    ),
    Bug("what a rate has started is not saved", "I9", (("limits/rate.py", "if not taken:", "if True:"),)),
    Bug(
        "a rate goes by the time of the turn",
        "I9",
        ((ADMIT, "held.by_lane, self.memory, now, held", "held.by_lane, self.memory, self.now, held"),),
    ),
    Bug(
        "a critical job holds units",
        "I9",
        (("stores/sqlite/sql/claim.sql", "THEN 0 ELSE", "THEN throttle_factor ELSE"),),
    ),
    Bug("a claim does not look at windows", "I10", ((CLAIM_GROUPS, "elif is_open:", "elif True:"),)),
    Bug(
        "a launch does not look at windows",
        "I10",
        (("engine/launch.py", "if is_open(execution.row.time_windows, self._now()):", "if execution:"),),
    ),
    Bug(
        "a job whose window closed is charged an attempt",
        "I5",
        (
            (MOVES, 'return _postponed(row, at, order, now, JobEvent.WINDOW_CLOSED)',
             'return replace(_postponed(row, at, order, now, JobEvent.WINDOW_CLOSED), attempt=row.attempt + 1)'),
        ),
    ),
    Bug("paused lanes go on", "pause", ((CLAIM_GROUPS, "group.lane in rules.paused_lanes or ", ""),)),
    Bug("paused types go on", "pause", ((CLAIM_GROUPS, " or group.job_type in rules.paused_types", ""),)),
    Bug(
        "a paused queue starts what a throttler admitted",
        "pause",
        ((ADMIT, "[] if self.rules.paused else found.able", "found.able"),),
    ),
    Bug("no tick comes", "cron", ((TICK, "self.next = min((", "self.next = 0 * min(("),)),
    Bug(
        "a tick adds no job",
        "cron",
        ((TICK, "self._made(known.queue, one, each, now) for one", "{} for one"),),
    ),
    Bug(
        "a tick does not look at the last one",
        "cron",
        (
            (TICK, "self._store.schedules(number, names=names)", "[known.mine[name] for name in names]"),
            ("stores/sql/crons.py", "if there.get(change.name) == _state(change.before)]", "]"),
        ),
    ),
    Bug(
        "ticks come early",
        "cron",
        ((TICK, "        found = False\n", "        found, now = False, now + 9000000\n"),),
    ),
    Bug(
        "a tick that is refused stops the engine",
        "Invalid",
        ((TICK, "except Exception as error:", "except ZeroDivisionError as error:"),),
    ),
    Bug(
        "a claim does not look at its ticket",
        "throttler",
        ((STORE, "if not claim.ticket or self._is_held(sql, claim, engine_id):", "if True:"),),
    ),
    Bug(
        "two engines ask at a time",
        "throttler",
        (("stores/sqlite/sql/take_ticket.sql", "WHERE engine_id IN (0,", "WHERE true OR engine_id IN (0,"),),
    ),
    Bug(
        "a rejected job is charged an attempt",
        "I5",
        (
            (MOVES, 'return _ended(row, Fault(FaultKind.REJECTED, reason), Code.FAILED',
             'return _ended(replace(row, attempt=row.attempt + 1), Fault(FaultKind.REJECTED, reason), "failed"'),
        ),
    ),
    Bug(
        "jobs stay parked when their throttler is gone",
        "I1|I13",
        (("engine/due.py", "self._setup.store.stage(peek.queue, PARKED, 0, STEP) > 0", "peek.queue < 0"),),
    ),
)  # fmt: skip
