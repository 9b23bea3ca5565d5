"""`Queue`: what a user declares: its order, its rules, its job types."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Unpack, overload

from msgspec.structs import replace

from hipq.engine.accept import LaneBy, called
from hipq.engine.queues import EngineQueue
from hipq.errors import Invalid, StoreUnavailable, shown
from hipq.job import names
from hipq.job.answer import DEFAULT_KEEPING, Keeping, NewAnswer
from hipq.job.model import New
from hipq.job.options import JobOptions, TickOptions
from hipq.job.order import AnyOrder
from hipq.job.schedule import DeclaredSchedule, Schedule
from hipq.job.spec import Handler, Spec
from hipq.job.states import RUNNING
from hipq.job.type_options import TypeOptions, set_handler, settings
from hipq.job.typevars import R, T
from hipq.job.units import Number
from hipq.job.view import Job
from hipq.job.when import seconds
from hipq.job_id import JobId
from hipq.job_type import Declare, JobType, OnDuplicate, Outcome
from hipq.limits.code import Throttler
from hipq.limits.rules import NO_RULES, Rules
from hipq.stores.filters import Filter
from hipq.stores.protocols import RuleStore

if TYPE_CHECKING:
    from hipq.answers.reading import Read
    from hipq.app import Hipq
    from hipq.requests.reply import ReplyKey

RELEARN: Final = 5_000_000
"""Microseconds after which a program that adds jobs looks whether a queue's rules were changed."""


class Queue:
    """A queue: its job types, its order, and (in the database) its pair of tables."""

    def __init__(
        self,
        app: Hipq,
        name: str,
        order: AnyOrder | None,
        declared: Rules = NO_RULES,
        throttler: Throttler | None = None,
        lane_by: LaneBy | None = None,
        shard_key: LaneBy | None = None,
    ) -> None:
        self.app = app
        self.name = names.name(name, "a queue's name")
        self._order = order
        self.declared = declared
        """The rules its code gives it; what is in force is in the database."""
        self.throttler = throttler
        self.lane_by = lane_by
        self._shard_key = shard_key
        self._types: dict[str, JobType] = {}
        self._specs: dict[str, Spec] = {}
        self._crons: dict[str, DeclaredSchedule] = {}
        self._number = 0
        self._rules: Rules | None = None
        self._learned = 0
        """When, on the steady clock."""
        self.find_type: Callable[[str], None] | None = None
        """Registers the code of a job type that is not registered in this process, such as a child forked earlier."""

    @property
    def order(self) -> AnyOrder:
        """In which its jobs start. One that only the database knows goes by what its engines' code said."""
        return self._order or self.rules.order

    @property
    def number(self) -> int:
        """The number the database knows it by. Its tables are made at the first use, not at the declaration."""
        if not self._number:
            self._number = self.app.store.queue(self.app.name, self.name, self.app.declared.table(self.name)).number
        return self._number

    @property
    def numbers(self) -> list[int]:
        """Its numbers in all shards; ids of its jobs contain one of them."""
        return self.app.database.numbers(self.number)

    def recall(self, number: int) -> None:
        """This is its number, as the database said at another time: it need not be asked for it."""
        self._number = number

    @property
    def rules(self) -> Rules:
        """The rules as this program knows them: new jobs are checked by these. An engine goes by what the database says
        at that moment."""
        if self._rules is None:
            return self.look_again()
        if self.app.database.steady() - self._learned >= RELEARN:
            self._learned = self.app.database.steady()
            # What is known will do. A job that is added in a transaction of the caller's (`conn=`) must not wait here
            # for an engine of this program that waits for that transaction.
            with contextlib.suppress(StoreUnavailable):
                return self.look_again(patient=False)
        return self._rules

    def look_again(self, *, patient: bool = True) -> Rules:
        self.learn(self.app.store.rules(self.number, patient=patient))
        assert self._rules is not None
        return self._rules

    def learn(self, stored: Rules) -> None:
        """What the database says; but limits given in this program's code are newer than another's."""
        limits = self.declared.limits or stored.limits
        self._rules = replace(stored, limits=limits, slice=None)  # a job must fit the whole, not a shard's part of it
        self._learned = self.app.database.steady()

    def leave(self) -> Callable[[], None]:
        """Forget what the database said, since another one follows; what is returned brings it back."""
        before = self._number, self._rules, self._learned

        def back() -> None:
            self._number, self._rules, self._learned = before

        self._number, self._rules, self._learned = 0, None, 0
        return back

    @property
    def throttle_limit(self) -> Number:
        """How many units may run at a time; 0 = no limit."""
        return self.rules.most

    @property
    def job_types(self) -> list[JobType]:
        """The job types that this program knows: those it has declared, and those it has added jobs of by name."""
        return list(self._types.values())

    @property
    def running_jobs(self) -> list[Job[Any]]:
        """All jobs in state running, wherever they run: also those that wait for an answer."""
        return self.app.jobs.find(Filter(self.number, state=RUNNING, limit=(1 << 63) - 1))

    @overload
    def job(self, name: Callable[[Job[T]], Coroutine[Any, Any, Outcome]], /) -> JobType[T, Any]: ...
    @overload
    def job(self, name: Callable[[Job[T]], Coroutine[Any, Any, R | Outcome]], /) -> JobType[T, R]: ...
    @overload
    def job(self, name: Callable[[Job[T]], Outcome], /) -> JobType[T, Any]: ...
    @overload
    def job(self, name: Callable[[Job[T]], R | Outcome], /) -> JobType[T, R]: ...
    @overload
    def job(self, name: str | None = None, **options: Unpack[TypeOptions]) -> Declare: ...
    def job(self, name: Any = None, **options: Unpack[TypeOptions]) -> Any:
        """Decorator: this function is the handler of a job type, named like it unless `name` says otherwise."""
        given = settings(options)

        def declare(fn: Handler) -> JobType:
            found = self.job_type(name if isinstance(name, str) else getattr(fn, "__name__", ""))
            set_handler(found.spec, fn, given)
            return found

        if callable(name):
            return declare(name)
        if name is not None:
            names.job_type(name)
        return declare

    def request(
        self, name: str, *, to: str, answers: str | None = None, callback: bool = False, key: Read | str | None = None,
        error: Read | str | None = None, answer_id: Read | str | None = None, data: Read | str | None = None,
        secret: str = "", method: str = "POST", headers: Mapping[str, str] | None = None, body: Any = None,
        sign: str = "", reply_key: ReplyKey | None = None, send_timeout: float | timedelta = 30.0,
        **options: Unpack[TypeOptions],
    ) -> JobType:  # fmt: skip
        """A job type without code, called `name`: each of its jobs sends a request `to` this URL, of HTTP (by `method`)
        or of a stream, and gives it `send_timeout` seconds.

        `answers`: the stream, or the webhook, on which its answer comes; `key`, `error`, `answer_id`, `data` and
        `secret` say how to read that, as for `Hipq.listen`. `callback`: its answer is brought to a signed URL, which
        the header `hipq-callback` names. With neither, the reply is all there is (but 202 waits).

        `to`, `headers` and `body` may have {key}, {id}, {attempt}, {callback_url}, {data} and {data.field} in them;
        without `body`, the job's data is sent. `reply_key`: where the reply to a request by HTTP names the key its
        answer will have. `sign`: the environment variable with the secret by which a request by HTTP is signed, as
        Standard Webhooks says. Other options are those of `job`.
        """
        from hipq.requests.declared import Request  # most programs declare none
        from hipq.streams import Reading, check_reading

        reading = Reading(key=key, error=error, answer_id=answer_id, data=data)
        check_reading(answers, secret, reading)
        made = Request(
            to, answered=answers is not None, callback=callback, method=method, headers=headers, body=body, sign=sign,
            reply_key=reply_key, seconds=seconds(send_timeout, "send_timeout", least=0.001),
        )  # fmt: skip
        found = self.job(names.job_type(name), **options)(made)
        if answers is not None:
            self.app.listen(answers, to=found, secret=secret, **reading)
        return found

    def cron(
        self, expression: str, data: Any = None, *, tz: str = "UTC", name: str | None = None, missed: str = "one",
        overlap: bool = False, **options: Unpack[TickOptions],
    ) -> Callable[[Handler], JobType]:  # fmt: skip
        """Decorator: this function handles the jobs that a cron expression adds, tick by tick; see `JobType.cron`."""

        def declare(fn: Handler) -> JobType:
            found = self.job(fn)
            found.cron(expression, data, tz=tz, name=name, missed=missed, overlap=overlap, **options)
            return found

        return declare

    @property
    def schedules(self) -> Mapping[str, DeclaredSchedule]:
        """The cron schedules in this program's code, by name."""
        return self._crons

    def add_schedule(self, schedule: DeclaredSchedule) -> None:
        if schedule.name in self._crons:
            raise Invalid(f"queue {self.name} has a schedule {schedule.name} already: give this one another name=")
        self._crons[schedule.name] = schedule

    def enqueue(
        self, job_type: str, data: Any = None, *, key: str | None = None, on_duplicate: OnDuplicate = "raise",
        conn: Any = None, **options: Unpack[JobOptions],
    ) -> JobId:  # fmt: skip
        """Add a job by the name of its type, `job_type`; a type unknown here is registered by it. `data`, `key`,
        `on_duplicate` and `conn` mean what they do in `JobType.enqueue`."""
        return self.job_type(job_type).enqueue(data, key=key, on_duplicate=on_duplicate, conn=conn, **options)

    def enqueue_many(
        self, job_type: str, data: Iterable[Any], *, keys: Sequence[str] | None = None,
        on_duplicate: OnDuplicate = "raise", conn: Any = None, **options: Unpack[JobOptions],
    ) -> list[JobId]:  # fmt: skip
        """Add many jobs by the name of their type, `job_type`, in one transaction. `data`, `keys`, `on_duplicate` and
        `conn` mean what they do in `JobType.enqueue_many`."""
        return self.job_type(job_type).enqueue_many(data, keys=keys, on_duplicate=on_duplicate, conn=conn, **options)

    def job_type(self, name: str) -> JobType:
        """The job type of this name; one that is unknown here has no code."""
        names.job_type(name)
        if name not in self._types:
            app = self.app
            self._specs[name] = Spec(
                name,
                self.name,
                callback=lambda row, valid: app.signer.url(app.callback_url, row, valid),
                middlewares=app.middlewares,
                strategies=app.strategies,
            )
            self._types[name] = JobType(self, self._specs[name])
        return self._types[name]

    def chained(self, job_type: Any, data: Any, options: dict[str, Any]) -> New:
        """What `job.enqueue` inside a handler asks for: a job of another type object, or of a name in this queue."""
        target = job_type if isinstance(job_type, JobType) else self.job_type(job_type)
        own = JobOptions(**{name: value for name, value in options.items() if name != "key"})  # type: ignore[typeddict-item]
        wanted = target._wanted(data, options.get("key"), own)
        return target._new(*wanted, self.app.traces.current() if self.app.traces else "")

    def spec(self, job_type: str) -> Spec:
        if self.find_type is not None and job_type not in self._specs:
            self.find_type(job_type)
        return self._specs.get(job_type) or self.job_type(job_type).spec

    @property
    def keeping(self) -> Keeping:
        """How long it keeps answers: what this program's code says or, if that says nothing, what others' did."""
        return self.declared.keeping if self.declared.keeping != DEFAULT_KEEPING else self.rules.keeping

    def arrived(self, job_type: str, key: str, data: Any, *, now: int = 0, **options: Any) -> NewAnswer:
        """An answer to one of its jobs. The job type need not be known here. `now`: the time, if it was asked for."""
        from hipq.answers.arrive import arrive  # a program that only adds jobs need not load it

        known, now = self.known(names.job_type(job_type)), now or self.app.store.now()
        return arrive(self.number, job_type, key, data, now, spec=known, keeping=self.keeping, **options)

    def is_known(self, job_type: str) -> bool:
        """Whether this program's code has this type, an engine serves it, or a job is of it."""
        known = self._specs.get(names.job_type(job_type))
        return (
            (known is not None and known.fn is not None)
            or any(job_type in one.serves.get(str(self.number), ()) for one in self.app.store.engines())
            or self.app.store.count(Filter(self.number, job_type=job_type, limit=1)) > 0
        )

    def known(self, job_type: str) -> Spec | None:
        return self._specs.get(job_type)

    def shard_key_of(self, new: New) -> str:
        """What says to which shard a new job belongs; "" if any will do."""
        if self._shard_key is None:
            return new.job_key
        found = called(self._shard_key, "shard_key", new, self.spec(new.job_type))
        if not isinstance(found, str) or not found:
            raise Invalid(f"shard_key must return a text that is not empty, not {shown(found)}")
        return found

    def for_engine(self, store: RuleStore | None = None, number: int = 0, *, ticks: bool = True) -> EngineQueue:
        """For an engine that works on it, in the store of a shard by its number there: from here on the database says
        what this program's code says. `ticks`: whether its cron schedules tick in that engine."""
        declared, number = self.declared, number or self.number
        stored = (store or self.app.store).change_rules(
            number,
            lambda rules: replace(
                rules,
                limits=declared.limits,
                order=self.order,
                lanes=declared.lanes,
                throttled=declared.throttled,
                keeping=declared.keeping,
            ),
        )
        self.learn(stored)
        return EngineQueue(
            number, self.name, self.order, self._specs, self.throttler, self._crons if ticks else {},
            self._tick if ticks else None, self.app.strategies,
        )  # fmt: skip

    def _tick(self, schedule: Schedule, tick: int) -> New:
        from hipq.cron import job_of  # most programs have no schedule

        return job_of(self, schedule, tick)

    def __repr__(self) -> str:
        return f"<Queue {self.app.name}.{self.name}>"
