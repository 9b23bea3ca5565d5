"""Which engines are alive, what they serve, and whose jobs nobody has taken over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from hipq.doctor.finding import Finding, View, lasting, note, ok, problem, several, warning
from hipq.job.units import number, units_text
from hipq.stores.health.facts import EngineHealth, Health, QueueHealth, Sample

NAMED: Final = 20
"""The most engines that are listed one by one."""


def engines(health: Health, view: View) -> Iterator[Finding]:
    if not health.level or not health.level.found:
        return
    names = {str(queue.tables.number): queue.name for queue in health.queues}
    alive = [engine for engine in health.engines if engine.alive]
    for engine in alive[:NAMED]:
        yield _alive(engine, names)
    if len(alive) > NAMED:
        yield ok(f"and {len(alive) - NAMED} more engines are alive")
    if not alive:
        yield note("no engine is alive", f"start one when there is work: {view.worker()}")
    yield from _ended(health)
    for queue in health.queues:
        for sample in queue.orphans:
            yield _orphans(queue, sample, health, view)


def _ended(health: Health) -> Iterator[Finding]:
    """Engines that are not alive any more and have no job."""
    owning = {sample.row.owner for queue in health.queues for sample in queue.orphans}
    for engine in health.engines:  # one without a lease, of an earlier boot, ended with that boot
        if not engine.alive and engine.lease_left is not None and engine.seen.engine_id not in owning:
            sentence = f"{_named(engine)} ended without a word {lasting(-engine.lease_left)} ago, and has no job"
            facts = {"engine_id": engine.seen.engine_id, "lease_over": -engine.lease_left}
            yield note(sentence, "look into its log; the next engine that starts removes this", facts=facts)


def _alive(engine: EngineHealth, names: dict[str, str]) -> Finding:
    serves = {names.get(number, f"queue {number}"): types for number, types in engine.seen.serves.items()}
    text = "; ".join(f"{queue}: {', '.join(types) or 'nothing'}" for queue, types in serves.items()) or "nothing"
    left = engine.lease_left or 0.0
    facts = {"engine_id": engine.seen.engine_id, "label": engine.seen.label, "lease_left": left, "serves": serves}
    return ok(f"{_named(engine)} is alive, its lease for {left:.1f} s more; it serves {text}", facts=facts)


def _orphans(queue: QueueHealth, sample: Sample, health: Health, view: View) -> Finding:
    """Jobs of dead engines. Any engine on the queue takes them over, within a third of a lease."""
    owner = sample.row.owner
    named = next((_named(one) for one in health.engines if one.seen.engine_id == owner), f"engine {owner}")
    facts: dict[str, Any] = {"engine_id": owner, "jobs": sample.jobs, "first": sample.row.id}
    are = "is" if sample.jobs == 1 else "are"
    sentence = f"{several(sample.jobs, 'job')} {are} in the hands of {named}, which is not alive any more"
    held = sum(one.held for one in queue.limits.holders if one.owner == owner) if queue.limits else 0
    if held:
        sentence += f", and {'holds' if sample.jobs == 1 else 'hold'} {units_text(held)} of the queue's limits"
        facts["held"] = number(held)
    if any(str(queue.tables.number) in one.serves for one in health.alive):
        advice = "look again in some seconds; if it is the same then, look into the logs of the engines that are alive"
        return warning(f"{sentence}; an engine will notice soon", advice, queue.name, facts)
    sentence += ", and no engine of this queue is there to take over"
    return problem(sentence, f"start one: {view.worker(queue.name)}", queue.name, facts)


def _named(engine: EngineHealth) -> str:
    return f"engine {engine.seen.engine_id} ({engine.seen.label})"
