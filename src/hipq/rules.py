"""`app.rules`: the rules of queues, changed while engines run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec.structs import replace

from hipq.errors import Invalid, nearest, shown
from hipq.job import names
from hipq.job.event_names import EngineEvent
from hipq.job.names import whole
from hipq.limits.limit import limit, without_limit
from hipq.limits.rules import AnyLimit, Rules, checked
from hipq.stores.claims import Claim

if TYPE_CHECKING:
    from hipq.app import Hipq
    from hipq.limits.code import DryRun, Throttler
    from hipq.queue import Queue
    from hipq.stores.claim_groups import Head


NewLimits = float | Literal["none"] | Sequence[AnyLimit] | None


class Trial(NamedTuple):
    """What other limits would do to the jobs that are due."""

    before: Rules
    after: Rules
    starts_before: dict[str, int]
    """How many jobs could start now by the limits in force, by lane;"""
    starts_after: dict[str, int]
    """and by the others."""
    ready: int
    """Jobs that are due and not running, as far as they were counted."""
    held: dict[str, int]
    """What jobs hold now, by lane, in thousandths of units."""
    most: int
    """Where counting stopped."""


class QueueRules:
    """The limits and pauses of an instance's queues."""

    def __init__(self, app: Hipq) -> None:
        self._app = app

    def set_limit(self, queue: str, to: NewLimits, *, only: bool = True) -> None:
        """Change a queue's limits while it runs: a number replaces its `limit`, "none" removes that, and both leave the
        others; a list replaces them all or, if it is not the `only` ones, those of the same kinds; None goes back to
        what the code says. Every engine's next claim goes by the new limits."""
        self._change(queue, self._limited(queue, to, only))

    def try_limit(self, queue: str, to: NewLimits, *, most: int = 1000) -> Trial:
        """What `set_limit` would do to the jobs that are due now: up to `most` that could start are counted. Nothing is
        changed. A throttler is not asked: what starts may be less, where the queue has one."""
        whole(most, "most", 1, 10_000)
        found, store = self._app.declared.find(queue), self._app.store
        limits, now = store.limits(found.number), store.now()
        types = tuple(store.waiting_types(found.number))
        critical = tuple(one.name for one in found.job_types if one.spec.critical)
        claim = Claim(found.number, types, most, critical)
        after = self._limited(queue, to)(limits.rules)
        starts, others = store.would_start(claim, now), store.would_start(claim, now, after)
        ready = store.counts(found.number, most, now, now).ready
        return Trial(limits.rules, after, _by_lane(starts), _by_lane(others), ready, limits.held, most)

    def _limited(self, queue: str, to: NewLimits, only: bool = True) -> Callable[[Rules], Rules]:
        declared = self._app.declared.find(queue).declared.limits

        def change(rules: Rules) -> Rules:
            if to is None:
                return replace(rules, changed=None)
            if isinstance(to, bool):
                raise Invalid(f"a limit is a number or a list of limits, not {to}")
            if to == 0:
                raise Invalid(
                    f'a limit of 0 lets nothing run: set_limit({queue!r}, "none") removes the limit, '
                    f"pause({queue!r}) stops the queue"
                )
            before = rules.whole if rules.changed is not None else declared or rules.limits
            if to == "none":  # shares stay, for when there is a limit again
                return replace(rules, changed=tuple(without_limit(before)))
            given = [limit(to)] if isinstance(to, (int, float)) else to
            if only and given is to:
                return replace(rules, changed=checked(to))
            kinds = {type(one) for one in given}
            return replace(rules, changed=checked([*given, *(one for one in before if type(one) not in kinds)]))

        return change

    def set_paused(self, queue: str, lane: str | None, job_type: str | None, paused: bool) -> None:
        """Pause or resume a queue, one of its lanes, or one job type; see `Hipq.pause`."""
        if job_type is not None and lane is None:
            found = self._app.declared.find(queue)
            if paused or job_type not in self._app.store.rules(found.number).paused_types:
                check_known(found, job_type)
        self._change(queue, lambda rules: _paused(rules, lane, job_type, paused))

    def dry_run(self, queue: str, throttler: Throttler, limit: int) -> DryRun:
        """See `Hipq.dry_run`."""
        from hipq.engine.throttle import HEAD
        from hipq.limits.code import DryRun, verdict

        whole(limit, "limit", 1, 10_000)
        chosen, now = self._app.declared.find(queue), self._app.store.now()
        critical = tuple(one.name for one in chosen.job_types if one.spec.critical)
        claim = Claim(chosen.number, tuple(one.name for one in chosen.job_types), limit, critical)
        asked = self._app.store.ask(0, claim, HEAD, 0, limit, now)
        assert asked is not None
        specs = {one.name: one.spec for one in chosen.job_types}
        return DryRun.of(verdict(throttler, asked.due, asked.running, specs, now), len(asked.running))

    def _change(self, queue: str, change: Callable[[Rules], Rules]) -> None:
        changed = self._app.declared.find(queue)
        changed.learn(self._app.store.change_rules(changed.number, change))
        self._app.events.emit(EngineEvent.RULES_CHANGED, self._app.store.now(), queue)


def _by_lane(found: Sequence[Head]) -> dict[str, int]:
    return dict(Counter(one.group.lane for one in found))


def check_known(queue: Queue, job_type: str) -> None:
    """Invalid, if nobody knows a job type of this name."""
    if not queue.is_known(job_type):
        known = [one.name for one in queue.job_types if one.name != job_type]
        others = nearest(job_type, known) or f"; there are {', '.join(known) or 'none'}"
        raise Invalid(
            f"queue {queue.name} has no job type {shown(job_type)}, neither in this code nor in an engine's, and no "
            f"job of it{others}"
        )


def _paused(rules: Rules, lane: str | None, job_type: str | None, wanted: bool) -> Rules:
    if lane is not None and job_type is not None:
        raise Invalid("pause a lane or a job type, not both at once")
    if lane is not None:
        return replace(rules, paused_lanes=_with(rules.paused_lanes, names.lane(lane), wanted))
    if job_type is not None:
        return replace(rules, paused_types=_with(rules.paused_types, names.job_type(job_type), wanted))
    return replace(rules, paused=wanted)


def _with(some: tuple[str, ...], one: str, wanted: bool) -> tuple[str, ...]:
    return tuple(sorted({*some, one} if wanted else {*some} - {one}))
