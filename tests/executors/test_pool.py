"""Which job runs in which process, for how long that is kept, and what is left of it: nothing."""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from hipq.errors import CannotRun, NoRoomToRun
from hipq.sandbox import ContextJob, ContextPool, ContextSettings, Handler
from tests.executors.running import LANGUAGES, handler, pool, run, until

# A number that stays the same in the same process, and is the same in no other.
WHO = {
    "python": "import sys, uuid; return sys.__dict__.setdefault('who', uuid.uuid4().hex)",
    "node": "globalThis.who ??= require('crypto').randomUUID(); return globalThis.who",
    "php": "$GLOBALS['who'] ??= bin2hex(random_bytes(16)); return $GLOBALS['who'];",
    "shell": "status 200 $who",
}
BEFORE = {"shell": "who=${who:-$(cat /proc/sys/kernel/random/uuid)}"}


def each_language() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("lang", LANGUAGES)


def who(lang: str, **more: str) -> Handler:
    return handler(lang, WHO[lang], before=BEFORE.get(lang, ""), **more)


@pytest.fixture
def fresh() -> Iterator[ContextPool]:
    with pool() as contexts:
        yield contexts


@each_language()
def test_the_second_batch_runs_in_the_same_process(contexts: ContextPool, lang: str) -> None:
    given = who(lang)
    first, second = run(contexts, given, b"", b""), run(contexts, given, b"")
    assert len({report.data for report in first.reports + second.reports}) == 1
    assert contexts.idle()[given.home] == 1


@each_language()
def test_another_tenant_or_jobtype_never_has_the_same_process(contexts: ContextPool, lang: str) -> None:
    given = who(lang, type="same", eid="same")
    others = [
        who(lang, type="same", eid="same", tenant="other"), who(lang, type="else"), who(lang, type="same", eid="more"),
    ]  # fmt: skip
    seen = {run(contexts, one).only.data for one in (given, *others)}
    assert len(seen) == 4
    assert run(contexts, given).only.data in seen


@each_language()
def test_jobtypes_with_the_same_engine_id_share_a_process(contexts: ContextPool, lang: str) -> None:
    one, two = who(lang, eid="both"), who(lang, eid="both")
    assert one.type != two.type
    assert run(contexts, one).only.data == run(contexts, two).only.data


@each_language()
def test_a_new_version_replaces_the_old_one_in_the_same_process(contexts: ContextPool, lang: str) -> None:
    old = who(lang, type=f"versioned-{lang}")
    process = run(contexts, old).only.data
    body = {"python": "return 'new'", "node": "return 'new'", "php": "return 'new';", "shell": "status 200 new"}[lang]
    new = handler(lang, body, type=old.type)
    assert run(contexts, new).only.data == b"new"
    assert contexts.idle()[old.home] == 1
    assert run(contexts, old).only.data == process


def test_a_process_that_died_while_it_was_idle_is_nobodys_fault(contexts: ContextPool) -> None:
    body = "import threading, os; threading.Timer(0.05, os._exit, (9,)).start(); return 'ok'"
    given = handler("python", body)
    for _ in range(3):  # it dies when it is woken up, before or after it has taken the job in
        ran = run(contexts, given)
        assert ran.only.status in (200, 509)


def test_a_php_handler_whose_new_version_cannot_be_loaded_beside_the_old_gets_another_process(
    contexts: ContextPool,
) -> None:
    old = handler("php", "return f();", type="redefined", before="function f() { return 'old'; }")
    new = handler("php", "return f();", type="redefined", before="function f() { return 'new'; }")
    assert run(contexts, old).only.data == b"old"
    assert run(contexts, new).only.data == b"new"


def test_a_context_is_replaced_after_so_many_jobs() -> None:
    with pool(most_tasks=3) as contexts:
        ran = run(contexts, who("python"), *[b""] * 8)
        assert ran.left == []
        assert [len(set(group)) for group in (
            [report.data for report in ran.reports[:3]], [report.data for report in ran.reports[3:6]],
            [report.data for report in ran.reports[6:]],
        )] == [1, 1, 1]  # fmt: skip
        assert len({report.data for report in ran.reports}) == 3


def test_idle_contexts_are_ended() -> None:
    with pool(idle_seconds=0.2) as contexts:
        given = who("python")
        run(contexts, given)
        until(lambda: contexts.idle() == {}, "it has been ended")
        assert run(contexts, given).only.status == 200


def test_no_more_contexts_than_allowed_and_the_one_idle_longest_makes_room() -> None:
    with pool(most_contexts=2) as contexts:
        first, second, third = who("python"), who("python"), who("python")
        for given in (first, second, third):
            run(contexts, given)
        assert contexts.idle() == {second.home: 1, third.home: 1}


def test_a_batch_waits_for_a_context_when_all_are_busy() -> None:
    with pool(most_contexts=1) as contexts:
        began = threading.Event()
        slow = handler("python", "import time; time.sleep(0.3)")
        thread = threading.Thread(target=run, args=(contexts, slow), kwargs={"on_start": lambda _: began.set()})
        thread.start()
        assert began.wait(60)
        assert run(contexts, handler("python", "return 'after'")).only.data == b"after"
        thread.join()


def test_batches_of_the_same_handler_run_side_by_side(fresh: ContextPool) -> None:
    meet = threading.Barrier(3)
    given = handler("python", "import time; time.sleep(0.2)")
    threads = [
        threading.Thread(target=run, args=(fresh, given), kwargs={"on_start": lambda _: meet.wait(60)})
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    meet.wait(60)
    for thread in threads:
        thread.join()
    assert fresh.idle() == {given.home: 2}


def test_abandoning_what_executes_ends_it_and_what_has_not_begun_never_begins(fresh: ContextPool) -> None:
    tasks: list[ContextJob] = []

    def on_start(task: ContextJob) -> None:
        tasks.append(task)
        first = int(task.id.removeprefix("job-"))
        fresh.abandon(f"job-{first + 2}")
        fresh.abandon(task.id)

    ran = run(fresh, handler("python", "import time; time.sleep(600)"), b"1", b"2", b"3", on_start=on_start)
    assert (ran.only.status, ran.only.crashed, ran.only.error) == (509, True, "nobody wants it any more")
    assert [task.payload for task in ran.left] == [b"2", b"3"]


def test_a_task_that_is_abandoned_before_it_begins_is_passed_over(fresh: ContextPool) -> None:
    def on_start(task: ContextJob) -> None:
        if task.payload == b"1":
            fresh.abandon(f"job-{int(task.id.removeprefix('job-')) + 1}")

    ran = run(fresh, handler("python", "return payload"), b"1", b"2", b"3", on_start=on_start)
    assert [report.data for report in ran.reports] == [b"1", b"3"]
    assert [task.payload for task in ran.left] == [b"2"]
    fresh.abandon("job-of-nobody")


def test_closing_ends_what_executes_and_gives_the_rest_back() -> None:
    contexts = ContextPool(ContextSettings())
    began, ran = threading.Event(), []
    given = handler("python", "import time; time.sleep(600)")
    thread = threading.Thread(
        target=lambda: ran.append(run(contexts, given, b"1", b"2", on_start=lambda _: began.set()))
    )
    thread.start()
    assert began.wait(60)
    contexts.close()
    thread.join()
    assert (ran[0].only.status, ran[0].only.crashed) == (509, True)
    assert len(ran[0].left) == 1
    assert len(run(contexts, given).left) == 1


def test_an_interpreter_that_is_not_there_is_one_sentence() -> None:
    with pool(interpreters={"node": "/nowhere/node", "php": "/bin/false", "python": ""}) as contexts:
        assert "not installed" in contexts.refuses("node")
        with pytest.raises(CannotRun, match="handlers in node need its interpreter"):
            run(contexts, handler("node", ";"))
        with pytest.raises(CannotRun, match="a context for php does not start"):
            run(contexts, handler("php", ";"))
        assert contexts.refuses("python") == ""
        assert contexts.refuses("http") == ""


def test_the_packages_of_a_virtual_environment_are_there_if_its_interpreter_is_named() -> None:
    with pool(interpreters={"python": sys.executable}) as contexts:
        report = run(
            contexts, handler("python", "import os, sys; return [p for p in sys.path if os.path.isdir(p)]")
        ).only
        assert {path for path in sys.path if path.startswith(sys.prefix) and path.endswith("-packages")} <= {
            *json.loads(report.data)
        }


def test_a_payload_that_cannot_be_taken_in_is_an_error_of_its_job() -> None:
    with pool(scratch=1 << 20) as contexts:
        ran = run(contexts, handler("shell", "true"), b"x" * 2_000_000, b"y")
        assert (ran.only.status, ran.only.crashed) == (574, True)
        assert [task.payload for task in ran.left] == [b"y"]


def test_a_byte_at_a_time_does_not_keep_the_daemon_busy(contexts: ContextPool) -> None:
    since = time.process_time()
    report = run(contexts, handler("python", "import os\nfor _ in range(300_000): os.write(1, b'x')")).only
    assert report.status == 200
    assert time.process_time() - since < 5


def test_callbacks_that_fail_do_not_leave_a_context_behind(fresh: ContextPool) -> None:
    def broken(task: ContextJob) -> None:
        raise RuntimeError(task.id)

    given = handler("python", "return 1")
    with pytest.raises(RuntimeError, match="job-"):
        run(fresh, given, on_start=broken)
    assert fresh.idle() == {}
    assert run(fresh, handler("python", "return 'ok'")).only.data == b"ok"


def test_memory_and_descriptors_are_back_where_they_were_after_a_hundred_batches(fresh: ContextPool) -> None:
    good = [who(lang) for lang in ("python", "php", "node")]
    bad = handler("python", "import os; os._exit(1)")

    def batches(count: int) -> None:
        for number in range(count):
            run(fresh, good[number % 3], b"x" * 100_000, b"y")  # ten megabytes in all, if they were kept
            if number % 25 == 0:
                run(fresh, bad, b"1")

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    def kilobytes() -> int:
        gc.collect()
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

    batches(30)
    open_before, memory_before = descriptors(), kilobytes()
    batches(100)
    assert descriptors() <= open_before  # other tests of this process may have left some to be collected
    assert kilobytes() - memory_before < 4_000


def test_what_finds_no_descriptor_left_is_not_run_and_can_be_given_back(fresh: ContextPool) -> None:
    """It is nobody's fault, and over in a moment: a job must not fail for it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    some = handler("python", "return 'x'")
    last = os.open("/dev/null", os.O_RDONLY)
    resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1, hard))
    try:
        with pytest.raises(NoRoomToRun, match="no context can be started now"):
            run(fresh, some, b"x")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(last)
    assert run(fresh, some, b"x").statuses == [200]
