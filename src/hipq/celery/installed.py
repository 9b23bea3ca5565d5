"""`install` puts the parts together and hooks them into a Celery app; `uninstall` removes them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from celery.utils.imports import instantiate
from msgspec import convert

from hipq import Hipq, Job, backoff
from hipq.celery.keeper import Keeper
from hipq.celery.message import TaskMessage
from hipq.celery.publisher import Publisher
from hipq.celery.worker import step
from hipq.errors import Invalid, shown
from hipq.job.when import seconds
from hipq.job_type import JobType

FURTHER_THAN: Final = 900.0
"""Seconds: half of the shortest time after which brokers usually redeliver (SQS and RabbitMQ: 30 minutes)."""
HISTORY: Final = 7 * 86_400.0
"""Seconds for which a published task can still be looked up."""
PUBLISH_SECONDS: Final = 120.0
"""Seconds after which a publish is given up, until the next try, if the broker takes the message and does not
answer."""
LOGGER: Final = logging.getLogger("hipq.celery")


class Installed(NamedTuple):
    settings: tuple[Any, ...]
    hipq: Hipq
    keeper: Keeper
    publisher: Publisher
    step: type[Any] | None
    restore: Callable[[], None]


_installed: WeakKeyDictionary[Any, Installed] = WeakKeyDictionary()
_lock = threading.RLock()


def install(
    app: Any,
    db: str | Mapping[str, Any] | None = None,
    *,
    further_than: float | timedelta = FURTHER_THAN,
    in_workers: bool = True,
    name: str = "celery",
    history: float | timedelta = HISTORY,
) -> Hipq:
    """Keep this Celery app's tasks that are further out than `further_than` in a database from now on.

    `db` and `name` are those of the `Hipq` that keeps them and is returned: producers and workers must give the same,
    and apps with different brokers that share a database need different names. `in_workers`: Celery's workers publish
    tasks that are due; otherwise only `hipq worker` with the returned `Hipq` does. A published task is forgotten after
    `history`.
    """
    settings = (db, seconds(further_than, "further_than"), in_workers, name, seconds(history, "history"))
    if not hasattr(app, "amqp_cls"):
        raise Invalid(f"install takes a Celery app, not {shown(app)}")
    with _lock:
        if found := _installed.get(app):
            if found.settings != settings:
                raise Invalid("hipq is installed in this Celery app already, with other settings: uninstall it first")
            return found.hipq
        hipq, publisher = Hipq(name, db), Publisher(app)
        keeper = Keeper(app, hipq, _kept(hipq, publisher, history), settings[1])
        beside = step(hipq) if in_workers else None
        if beside:
            app.steps["worker"].add(beside)
        _installed[app] = Installed(settings, hipq, keeper, publisher, beside, _hooked_into(app, keeper))
        return hipq


def _kept(hipq: Hipq, publisher: Publisher, history: float | timedelta) -> JobType:
    """The job type of tasks that are kept."""
    queue = hipq.queue("eta")

    @queue.job(retry=backoff(attempts=1_000_000, cap=60), run_timeout=PUBLISH_SECONDS)
    def publish(job: Job[Any]) -> None:
        publisher.publish(convert(job.data, TaskMessage))

    @queue.cron("17 * * * *")
    def forget(_job: Job[Any]) -> dict[str, int]:
        return {"forgotten": hipq.jobs.prune(history, "eta")}

    return publish


def uninstall(app: Any) -> None:
    """Restore the Celery app. Kept tasks stay in the database until a publisher runs again."""
    with _lock:
        if found := _installed.pop(app, None):
            found.restore()
            app.steps["worker"].discard(found.step)
            found.publisher.close()
            found.hipq.close()


def cancel(app: Any, task_id: str) -> bool:
    """Drop a kept task, as `app.control.revoke` does too; returns whether there was one. Workers are not told, so a
    task that is just being published may still run."""
    if not (found := _installed.get(app)):
        raise Invalid("hipq is not installed in this Celery app: hipq.celery.install(app) first")
    return found.keeper.cancel(task_id)


def _hooked_into(app: Any, keeper: Keeper) -> Callable[[], None]:
    """Hook the keeper into this app's objects; Celery's classes are left alone. Returns a function that undoes it."""
    app.amqp.__dict__["send_task_message"] = keeper.send_task_message
    before, instance = app.control_cls, app.__dict__.get("control")

    def hooked(control: Any) -> Any:
        celerys = control.revoke

        def revoke(task_id: Any, *args: Any, **options: Any) -> Any:
            try:
                if keeper.active:
                    for one in task_id if isinstance(task_id, list | tuple | set | frozenset) else [task_id]:
                        keeper.cancel(one)
            finally:  # workers are told in any case, and last: they stop a task that is just being published
                result = celerys(task_id, *args, **options)
            return result

        control.revoke = revoke
        return control

    if instance is not None:
        hooked(instance)
    # made at its first use, because it reads the settings
    app.control_cls = lambda app: hooked(instantiate(before, app=app))

    def restore() -> None:
        keeper.active = False  # other code may have wrapped our hook and go on calling it
        if app.amqp.__dict__.get("send_task_message") == keeper.send_task_message:
            del app.amqp.__dict__["send_task_message"]
        app.control_cls = before
        if "control" in app.__dict__:
            app.control.__dict__.pop("revoke", None)

    return restore
