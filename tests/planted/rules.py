"""Bugs in what decides what may start: limits, rates, windows, pauses, schedules, throttlers."""

from __future__ import annotations

from tests.planted.bug import Bug

STORE = "stores/sqlite/store.py"
READER = "stores/sqlite/admit.py"
RULES = "stores/sqlite/rules.py"
ADMIT = "stores/admit.py"
ADMISSION = "throttlers/admission.py"
STRANDS = "stores/strands.py"
MOVES = "job/moves.py"
HELD = 'return dict(_held.decode(self._read("held", {})))'

RULE_BUGS = (
    Bug(
        "a limit compared with memory, not with rows",
        (
            (READER, HELD, 'return _known.setdefault(self.queue, dict(_held.decode(self._read("held", {}))))'),
            (READER, "@dataclass(slots=True)\nclass QueueReader", "_known = {}\n\n\n@dataclass\nclass QueueReader"),
        ),
    ),
    Bug(
        "waiting jobs do not count",
        (("stores/sqlite/sql/held.sql", "held <> 0 GROUP", "held <> 0 AND owner <> 0 GROUP"),),
    ),
    Bug(
        "waiting jobs give back what they hold",
        ((MOVES, "phase=WAITING, owner=0,", "phase=WAITING, owner=0, held=0,"),),
    ),
    Bug("every job counts as one unit", ((ADMISSION, "pool.take(factor)", "pool.take(1)"),)),
    Bug("a heavy job fits where a light one does", ((ADMISSION, "pool.fits(factor)", "pool.fits(1)"),)),
    Bug(
        "the share of a lane is forgotten",
        (("throttlers/share.py", "limit * self.percent.get(lane, self.other) // 100", "limit"),),
    ),
    Bug(
        "a changed limit is not heard of",
        (
            (READER, "return load(rules), memory", "return _rules.setdefault(conn, load(rules)), memory"),
            (READER, "class Rulebook:", "_rules = {}\n\n\nclass Rulebook:"),
        ),
    ),
    Bug(
        "a job above a lowered limit never starts",
        (("throttlers/pool.py", " or (factor > self.cap and self.used == 0)", ""),),
    ),
    Bug("what a rate has started is not saved", ((READER, "if picked.memory != memory:", "if False:"),)),
    Bug(
        "a rate goes by the time of the turn",
        ((ADMIT, "self.reader.held(), self.memory, self.clock())", "self.reader.held(), self.memory, self.now)"),),
    ),
    Bug("a critical job holds units", (("stores/sqlite/sql/claim.sql", "THEN 0 ELSE", "THEN throttle_factor ELSE"),)),
    Bug("a claim does not look at windows", ((STRANDS, "elif is_open:", "elif True:"),)),
    Bug(
        "a launch does not look at windows",
        (("engine/launch.py", "running.row.time_windows == ALWAYS or", "running.row.time_windows != '?' or"),),
    ),
    Bug(
        "a job whose window closed is charged an attempt",
        (
            (MOVES, 'return _postponed(row, at, order, now, "window closed")',
             'return replace(_postponed(row, at, order, now, "window closed"), attempt=row.attempt + 1)'),
        ),
    ),
    Bug("paused lanes go on", ((STRANDS, "strand.lane in rules.paused_lanes or ", ""),)),
    Bug("paused types go on", ((STRANDS, " or strand.job_type in rules.paused_types", ""),)),
    Bug(
        "a paused queue starts what a throttler admitted",
        ((ADMIT, "[] if self.rules.paused else found.able", "found.able"),),
    ),
    Bug("a tick does not look at the last one", ((RULES, "AND name = ? AND last = ?", "AND name = ? AND ? > 0"),)),
    Bug("ticks come early", (("engine/tick.py", "if 0 < known.next <= now:", "if 0 < known.next <= now + 9000000:"),)),
    Bug(
        "a tick that is refused stops the engine",
        (("engine/tick.py", "except Exception as error:", "except ZeroDivisionError as error:"),),
    ),
    Bug(
        "a claim does not look at its ticket",
        ((STORE, "if not claim.ticket or self._tickets.used(conn, claim.queue, claim.ticket, sysid):", "if True:"),),
    ),
    Bug(
        "two engines ask at a time",
        (("stores/sqlite/tickets.py", "sysid NOT IN (0, ?) AND until > ?", "0 = ? AND until > ?"),),
    ),
    Bug(
        "a rejected job is charged an attempt",
        (
            (MOVES, 'return _ended(row, Fault("rejected", reason), "failed"',
             'return _ended(replace(row, attempt=row.attempt + 1), Fault("rejected", reason), "failed"'),
        ),
    ),
    Bug(
        "jobs stay parked when their throttler is gone",
        (("engine/loop.py", "self.store.unpark(glance.queue, STEP) > 0", "glance.queue < 0"),),
    ),
)  # fmt: skip
