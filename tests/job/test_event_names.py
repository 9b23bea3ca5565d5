"""Events, reasons, kinds of faults and codes are spelled in one place: everybody else names the constant."""

from __future__ import annotations

import ast
from pathlib import Path

import hipq
from hipq.events import ALL_EVENTS
from hipq.job.event_names import LEFT_OUT, RAN, names_in
from hipq.job.fault import FaultKind
from hipq.job.states import CODES
from hipq.job.why import Reason

SOURCE = Path(hipq.__file__).parent
NAMING = {"emit", "wanted", "subscribe", "remember", "Change", "Why", "Fault", "_Settled", "_back", "drop"}
WORDS = {*ALL_EVENTS, *names_in(Reason), *names_in(FaultKind), RAN, LEFT_OUT}


def test_no_call_spells_out_an_event_a_reason_or_a_kind_of_fault() -> None:
    spelled = [
        f"{file.relative_to(SOURCE)}:{call.lineno}: {given.value}"
        for file in SOURCE.rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "attr", getattr(call.func, "id", "")) in NAMING
        for given in call.args
        if isinstance(given, ast.Constant) and given.value in WORDS
    ]
    assert spelled == []


def test_nobody_spells_out_a_code() -> None:
    """But for the client, which knows nothing of the rest."""
    spelled = [
        f"{file.relative_to(SOURCE)}:{node.lineno}"
        for file in SOURCE.rglob("*.py")
        if file.parent.name != "client"
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, (ast.Compare, ast.keyword))
        and "code" in (getattr(node, "arg", ""), getattr(getattr(node, "left", None), "attr", ""))
        and any(isinstance(one, ast.Constant) and one.value in CODES for one in ast.walk(node))
    ]
    assert spelled == []
