"""Bugs about handlers that crash, that retry, and that are rough with the process they run in."""

from __future__ import annotations

from tests.planted.bug import Bug

SETTLE = "engine/settle.py"
LAUNCH = "engine/launch.py"
LEASE = "engine/lease.py"
ROUGH = "tests/cli/test_rough_handlers.py"

HANDLER_BUGS = (
    Bug(
        "a crash is no failure",
        "I13",
        (
            (
                SETTLE,
                "after = transitions.crashed(row, result.fault, result.exitcode, now, _has_retry_handler(execution))",
                "after = transitions.suspected(row, result.fault, now)",
            ),
        ),
    ),
    Bug(
        "nobody asks the retry handler about a crash",
        "I13",
        (
            (
                LAUNCH,
                "            if retry is None:\n                pause",
                '            if retry is None or fault.kind == "crash":\n                pause',
            ),
        ),
    ),
    Bug(
        "without a retry handler a crash is final",
        "test",
        (
            (
                LAUNCH,
                "if fault.kind != FaultKind.CRASH or row.crashes_counted >= transitions.CRASHES_ALLOWED:",
                "if fault.kind:",
            ),
        ),
        "tests/engine/test_crash.py::test_without_a_retry_handler_it_is_tried_three_times_with_growing_delays",
    ),
    Bug(
        "a crash of its engine costs a job a failure",
        "I13",
        (
            (
                "job/transitions.py",
                "return replace(_back(row, fault, now, JobEvent.RESCUED), crashes=max(row.crashes, SUSPECT))",
                "return replace(_back(row, fault, now, JobEvent.RESCUED), crashes=1, failures=row.failures + 1)",
            ),
        ),
    ),
    Bug(
        "a used process counts as the job's own",
        "test",
        (("engine/executor.py", "own = child.turn == 0", "own = True"),),
        "tests/engine/test_crash.py::test_a_process_that_ran_other_jobs_before_may_have_died_of_those",
    ),
    Bug(
        "a job that died among others runs among others again",
        "test",
        (
            (
                "job/transitions.py",
                "JobEvent.CRASHED), crashes=max(row.crashes, ALONE))",
                "JobEvent.CRASHED), crashes=1)",
            ),
        ),
        "tests/engine/test_crash.py::test_jobs_of_an_engine_that_died_share_processes_until_one_of_them_kills_one",
    ),
    Bug(
        "what a retry handler changes is dropped",
        "I3",
        ((SETTLE, "copy = transitions.edited(errored, result.edits) if result.edits else errored", "copy = errored"),),
    ),
    Bug(
        "a retry handler's copy is the handler's own job",
        "test",
        (
            (
                "engine/launch.py",
                "job: Job[Any] = Job(copy, spec, is_draft=True)",
                "job = execution.run.job; job._edits = {}",
            ),
            (
                "engine/launch.py",
                "        _ = job.data  # read now",
                "        execution.run.job = job; _ = job.data  # read now",
            ),
            (
                "executors/execution.py",
                "    note: dict[str, Any] | None = None",
                "    job: Any = None\n    note: dict[str, Any] | None = None",
            ),
        ),
        "tests/engine/test_retry_copy.py::test_changed_data_is_saved",
    ),
    Bug(
        "changes in place are not noticed",
        "I3",
        (("job/view.py", "        if text != before:", "        if False:"),),
    ),
    Bug(
        "a cancel that the sweep notices is a lost lease",
        "test",
        (
            (
                LEASE,
                "is_cancelled = execution.run.result is None and",
                "is_cancelled = given and execution.run.result is None and",
            ),
            (LEASE, "        if tokens is None:\n", "        given = tokens is not None\n        if tokens is None:\n"),
        ),
        "tests/engine/test_cancel.py::test_a_cancel_that_only_the_sweep_notices_is_a_cancel",
    ),
    Bug(
        "a lock that is refused is not the store's",
        "test",
        (
            (
                "stores/sqlite/connection.py",
                "            except OSError as error:\n"
                '                raise self._not_locked("lock", error) from None\n',
                "",
            ),
        ),
        "tests/engine/test_refused_locks.py",
    ),
    Bug(
        "a forked child goes on as the worker",
        "test",
        ((LAUNCH, "    if os.getpid() == here:\n        return\n", "    return\n"),),
        f"{ROUGH}::test_a_child_that_a_handler_forks_ends_where_the_handler_does[sqlite-forks]",
    ),
    Bug(
        "a stopped event loop stays stopped",
        "test",
        (("executors/tasks.py", "while not (self._closing or self._loop.is_closed()):", "for _ in range(1):"),),
        f"{ROUGH}::test_one_that_stops_the_event_loop_stops_nobody_else",
    ),
    Bug(
        "closed descriptors go unnoticed",
        "test",
        (("engine/loop.py", "os.fstat(self._descriptor).st_ino == self._inode", "True"),),
        f"{ROUGH}::test_one_that_closes_the_workers_descriptors_ends_it_and_nobody_elses_job_fails",
    ),
)
