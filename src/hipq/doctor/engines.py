"""Which engines are alive, what they serve, and whose jobs nobody has taken over."""

from __future__ import annotations

from typing import Final

from hipq.doctor.finding import NOTE, OK, PROBLEM, WARNING, Finding, View
from hipq.doctor.words import lasting, several
from hipq.stores.health.facts import EngineHealth, Health, QueueHealth, Sample

CHECK: Final = "engines"
NAMED: Final = 20
"""The most engines that are listed one by one."""


def engines(health: Health, view: View) -> list[Finding]:
    if not health.level or not health.level.found:
        return []
    names = {str(queue.tables.number): queue.name for queue in health.queues}
    alive = [engine for engine in health.engines if engine.alive]
    found = [_alive(engine, names) for engine in alive[:NAMED]]
    if len(alive) > NAMED:
        found.append(Finding(CHECK, OK, f"and {len(alive) - NAMED} more engines are alive"))
    if not found:
        found.append(Finding(CHECK, NOTE, "no engine is alive", f"start one when there is work: {view.worker()}"))
    owning = {sample.row.owner for queue in health.queues for sample in queue.orphans}
    found += [
        _silent(engine) for engine in health.engines if _is_silent(engine) and engine.seen.engine_id not in owning
    ]
    for queue in health.queues:
        found += [_orphans(queue, sample, health, view) for sample in queue.orphans]
    return found


def _alive(engine: EngineHealth, names: dict[str, str]) -> Finding:
    serves = {names.get(number, f"queue {number}"): types for number, types in engine.seen.serves.items()}
    text = "; ".join(f"{queue}: {', '.join(types) or 'nothing'}" for queue, types in serves.items()) or "nothing"
    left = engine.lease_left or 0.0
    facts = {"engine_id": engine.seen.engine_id, "label": engine.seen.label, "lease_left": left, "serves": serves}
    sentence = f"{_named(engine)} is alive, its lease for {left:.1f} s more; it serves {text}"
    return Finding(CHECK, OK, sentence, facts=facts)


def _is_silent(engine: EngineHealth) -> bool:
    """Whether the engine stopped renewing its lease without leaving; one of an earlier boot ended with that boot."""
    return not engine.alive and engine.lease_left is not None


def _silent(engine: EngineHealth) -> Finding:
    over = -(engine.lease_left or 0.0)
    sentence = f"{_named(engine)} ended without a word {lasting(over)} ago, and has no job"
    advice = "look into its log; the next engine that starts removes this"
    return Finding(CHECK, NOTE, sentence, advice, facts={"engine_id": engine.seen.engine_id, "lease_over": over})


def _orphans(queue: QueueHealth, sample: Sample, health: Health, view: View) -> Finding:
    """Jobs of dead engines. Any engine on the queue takes them over, within a third of a lease."""
    owner = sample.row.owner
    named = next((_named(one) for one in health.engines if one.seen.engine_id == owner), f"engine {owner}")
    facts = {"engine_id": owner, "jobs": sample.jobs, "first": sample.row.id}
    are = "is" if sample.jobs == 1 else "are"
    sentence = f"{several(sample.jobs, 'job')} {are} in the hands of {named}, which is not alive any more"
    if any(str(queue.tables.number) in one.serves for one in health.alive):
        advice = "look again in some seconds; if it is the same then, look into the logs of the engines that are alive"
        return Finding(CHECK, WARNING, f"{sentence}; an engine will notice soon", advice, queue.name, facts)
    sentence += ", and no engine of this queue is there to take over"
    return Finding(CHECK, PROBLEM, sentence, f"start one: {view.worker(queue.name)}", queue.name, facts)


def _named(engine: EngineHealth) -> str:
    return f"engine {engine.seen.engine_id} ({engine.seen.label})"
