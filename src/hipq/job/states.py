"""The state machine, as one table. Moves in code, CHECKs in the database and docs/states.md derive from it.

`state` is what the user sees (seed 004). `phase` is where the engine has the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

INITIAL: Final = "initial"
RUNNING: Final = "running"
ERROR: Final = "error"
RETRY: Final = "retry"
FINAL: Final = "final"

MOVES: Final[Mapping[str, frozenset[str]]] = {
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
"""What a text column says when there is nothing to say: no column is ever NULL."""

CODES: Final = (NONE, "ok", "failed", "retry", "error")

MEANING: Final[Mapping[str, str]] = {
    INITIAL: "added, never tried; `error` is NONE",
    RUNNING: "claimed: its handler runs, or it waits for its answer; `error` is NONE",
    ERROR: "it failed, and its retry handler has not been asked yet; `error` says why",
    RETRY: "it failed, or was given back, and will run again at `scheduled_run_time`; `error` says why",
    FINAL: "finished for good; `error` is NONE, or says why it did not succeed",
}


class IllegalMove(AssertionError):
    """A job was about to make a move the table does not have."""


def follow(state: str, *path: str) -> str:
    """Follow legal moves one by one and return where they end; an illegal one raises."""
    for step in path:
        if step not in MOVES[state]:
            raise IllegalMove(f"{state} -> {step} is not a legal move")
        state = step
    return state


def reachable(before: str, after: str) -> bool:
    """Whether legal moves lead from one stored state to another: what an audit of the rows may see."""
    seen, todo = set[str](), [before]
    while todo:
        for step in MOVES[todo.pop()] - seen:
            seen.add(step)
            todo.append(step)
    return after in seen


def _texts(values: tuple[str, ...]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def check(table: str) -> str:
    """The CHECK of the "live" or the "final" table, as SQL that both databases take."""
    states = [state for state in MOVES if (state == FINAL) == (table == "final")]
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
    """docs/states.md, whole: a test keeps the file equal to this."""
    lines = [
        "# States",
        "",
        "Generated from `src/hipq/job/states.py` by `make docs`; a test keeps it true.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> initial",
        *(f"    {a} --> {b}" for a, moves in MOVES.items() for b in sorted(moves)),
        "    final --> [*]",
        "```",
        "",
        "| state | moves to | phases | meaning |",
        "|---|---|---|---|",
    ]
    for state, moves in MOVES.items():
        targets = ", ".join(sorted(moves)) or "nothing, ever"
        lines.append(f"| {state} | {targets} | {', '.join(PHASES[state])} | {MEANING[state]} |")
    for table in ("live", "final"):
        lines += ["", f"CHECK of the {table} table:", "", "```sql", check(table), "```"]
    return "\n".join(lines) + "\n"
