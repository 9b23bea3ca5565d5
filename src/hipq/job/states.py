"""The state machine, as one table. The transitions in code, the CHECKs in the database and docs/states.md derive from
it.

`state` is what users see. `phase` is the step of the engine's work that the job is in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

INITIAL: Final = "initial"
RUNNING: Final = "running"
ERROR: Final = "error"
RETRY: Final = "retry"
FINAL: Final = "final"

TRANSITIONS: Final[Mapping[str, frozenset[str]]] = {
    INITIAL: frozenset({RUNNING}),
    RUNNING: frozenset({ERROR, FINAL}),
    ERROR: frozenset({RETRY, FINAL}),
    RETRY: frozenset({RUNNING}),
    FINAL: frozenset(),
}

SCHEDULED: Final = "scheduled"
READY: Final = "ready"
PARKED: Final = "parked"
EXECUTING: Final = "executing"
WAITING: Final = "waiting"
ANSWERED: Final = "answered"
CANCELLING: Final = "cancelling"
DECIDING: Final = "deciding"
DONE: Final = "done"

PHASES: Final[Mapping[str, tuple[str, ...]]] = {
    INITIAL: (SCHEDULED, READY, PARKED),
    RUNNING: (EXECUTING, WAITING, ANSWERED, CANCELLING),
    ERROR: (DECIDING,),
    RETRY: (SCHEDULED, READY, PARKED),
    FINAL: (DONE,),
}

NONE: Final = "NONE"
"""The value of an empty text column: no column is ever NULL."""


class Code:
    """How a job ended, or what went wrong the last time."""

    OK: Final = "ok"
    FAILED: Final = "failed"
    RETRY: Final = "retry"
    ERROR: Final = "error"
    CANCELLED: Final = "cancelled"


CODES: Final = (NONE, Code.OK, Code.FAILED, Code.RETRY, Code.ERROR, Code.CANCELLED)

MEANING: Final[Mapping[str, str]] = {
    INITIAL: "the job was added and never tried; `error` is NONE",
    RUNNING: "the job is claimed: its handler runs, or the job waits for its answer; `error` is NONE",
    ERROR: "the job failed, and its retry handler has not been asked yet; `error` says why",
    RETRY: "the job failed or was given back, and will run again at `scheduled_run_time`; `error` says why",
    FINAL: "the job is finished for good; `error` is NONE, or says why it did not succeed",
}


class IllegalTransition(AssertionError):
    """A job was about to make a transition that is not in the table."""


def follow(state: str, *path: str) -> str:
    """Follow transitions one by one and return the last state. IllegalTransition if one is not allowed."""
    for step in path:
        if step not in TRANSITIONS[state]:
            raise IllegalTransition(f"{state} -> {step} is not a legal transition")
        state = step
    return state


def reachable(before: str, after: str) -> bool:
    """Whether transitions lead from one stored state to another, for an audit that sees the rows only."""
    seen, todo = set[str](), [before]
    while todo:
        for step in TRANSITIONS[todo.pop()] - seen:
            seen.add(step)
            todo.append(step)
    return after in seen


def _texts(values: tuple[str, ...]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def check(table: str) -> str:
    """The CHECK of the "live" or the "final" table, as SQL for every database."""
    states = [state for state in TRANSITIONS if (state == FINAL) == (table == "final")]
    cases = []
    for state in states:
        case = f"state = '{state}' AND phase IN ({_texts(PHASES[state])})"
        if state in (INITIAL, RUNNING):
            case += f" AND error = '{NONE}'"
        elif state in (ERROR, RETRY):
            case += f" AND error <> '{NONE}'"
        cases.append(f"({case})")
    return "(" + " OR ".join(cases) + f") AND code IN ({_texts(CODES)}) AND attempt >= 0 AND throttle_factor >= 1"


def document() -> str:
    """The text of docs/states.md; a test keeps the file equal to it."""
    lines = [
        "# States",
        "",
        "A job is in one of five states; these are all moves between them. The phases say more exactly what it does.",
        "(This page comes from `src/hipq/job/states.py`, as do the code and the checks in the database.)",
        "",
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> initial",
        *(f"    {a} --> {b}" for a, following in TRANSITIONS.items() for b in sorted(following)),
        "    final --> [*]",
        "```",
        "",
        "| state | next states | phases | meaning |",
        "|---|---|---|---|",
    ]
    for state, following in TRANSITIONS.items():
        targets = ", ".join(sorted(following)) or "nothing, ever"
        lines.append(f"| {state} | {targets} | {', '.join(PHASES[state])} | {MEANING[state]} |")
    for table in ("live", "final"):
        lines += ["", f"CHECK of the {table} table:", "", "```sql", check(table), "```"]
    return "\n".join(lines) + "\n"
