"""Handlers that crash, hang, flood, fork, write where they should not: each ends only itself, and nothing is left."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Iterator

import msgspec
import pytest

from hipq.sandbox import ContextJob, ContextPool
from tests.executors.running import LANGUAGES, handler, pool, processes, run

SEGFAULT = {
    "python": "import ctypes; ctypes.string_at(0)",
    "node": "process.kill(process.pid, 'SIGSEGV'); await new Promise(done => setTimeout(done, 60000))",
    "php": "shell_exec('kill -SEGV ' . getmypid()); sleep(60);",
    "shell": "kill -SEGV $$; sleep 60",
}
HANG = {
    "python": "if payload == b'' or payload == 'hang':\n  import time\n  while True: time.sleep(1)",
    "node": "if (payload === 'hang') for (;;);",
    "php": "if ($payload === 'hang') sleep(600);",
    "shell": 'read -r x; [ "$x" != hang ] || sleep 600',
}
DEAF = {
    "python": "import signal, time\nfor n in (1, 2, 3, 15): signal.signal(n, signal.SIG_IGN)\ntime.sleep(600)",
    "node": "process.on('SIGTERM', () => {}).on('SIGINT', () => {}); await new Promise(d => setTimeout(d, 6e5))",
    "php": "while (true) sleep(600);",
    "shell": "trap '' TERM INT HUP; while :; do sleep 600; done",
}
FLOOD = {
    "python": "while True: print('x' * 1000)",
    "node": "for (;;) require('fs').writeSync(1, 'x'.repeat(1000) + '\\n')",
    "php": "while (true) echo str_repeat('x', 1000), \"\\n\";",
    "shell": "while :; do printf '%01000d\\n' 1; done",
}
LINE = {
    "python": "import sys\nfor _ in range(2000): sys.stdout.write('x' * 1_000_000)",
    "node": "for (let n = 0; n < 2000; n++) require('fs').writeSync(2, 'x'.repeat(1e6))",
    "php": "for ($n = 0; $n < 2000; $n++) echo str_repeat('x', 1000000);",
    "shell": "head -c 2000000000 /dev/zero",
}
LONG = f"{random.randrange(10_000, 1_000_000)}"
"""Seconds, by which those of this process are known: others run these tests at the same time."""
LEAVE = {
    "python": "import subprocess as s; s.Popen(['sh','-c', 'trap \"\" TERM; setsid sleep LONG & sleep LONG', payload])",
    "node": "require('child_process').spawn('/bin/sh', ['-c', 'sleep LONG & sleep LONG', payload], {detached: true})",
    "php": "exec('setsid /bin/sh -c \"sleep LONG; sleep LONG\" ' . $payload . ' > /dev/null 2>&1 &');",
    "shell": "read -r x; setsid /bin/sh -c 'sleep LONG; sleep LONG' $x >/dev/null 2>&1 &",
}
EAT = {
    "python": "x = []\nwhile True: x.append(bytearray(10_000_000))",
    "node": "const x = []; for (;;) x.push(Buffer.alloc(1e7, 1))",
    "php": "$x = []; while (true) $x[] = str_repeat('y', 10000000);",
    "shell": "x=y; while :; do x=$x$x; done",
}
CLOSE = {
    "python": "import os; os.closerange({0}, {1})",
    "node": "for (let n = {0}; n < {1}; n++) try {{ require('fs').closeSync(n) }} catch (_) {{}}",
}


def each(bodies: dict[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("lang", "body"), bodies.items(), ids=bodies.keys())


@pytest.fixture(scope="module")
def small() -> Iterator[ContextPool]:
    """With little of everything."""
    with pool(memory=160 << 20, output=1 << 20, processes=24, scratch=1 << 20, cpu=30.0) as contexts:
        yield contexts


@each(SEGFAULT)
def test_a_crash_is_told_of_the_job_that_crashed_and_of_no_other(contexts: ContextPool, lang: str, body: str) -> None:
    ran = run(contexts, handler(lang, body), b"1", b"2", b"3", seconds=30)
    assert (ran.only.status, ran.only.crashed) == (511, True)
    assert "SIGSEGV" in ran.only.error
    assert [task.payload for task in ran.left] == [b"2", b"3"]


@each(HANG)
def test_a_job_over_its_time_is_ended_and_its_neighbours_come_back(contexts: ContextPool, lang: str, body: str) -> None:
    since = time.monotonic()
    ran = run(contexts, handler(lang, body), b"fine", b"hang", b"waits", seconds={b"hang": 0.5})
    assert ran.statuses == [200, 504]
    assert ran.reports[1].crashed
    assert ran.reports[1].error == "it took longer than 0.5 s"
    assert [task.payload for task in ran.left] == [b"waits"]
    assert time.monotonic() - since > 0.4


@each(DEAF)
def test_who_ignores_signals_is_ended_all_the_same(contexts: ContextPool, lang: str, body: str) -> None:
    assert run(contexts, handler(lang, body), seconds=0.5).only.status == 504


@each(FLOOD)
def test_who_floods_is_ended(small: ContextPool, lang: str, body: str) -> None:
    report = run(small, handler(lang, body)).only
    assert (report.status, report.crashed, report.error) == (509, True, "it printed more than 1,048,576 bytes")
    assert len(report.log) < 10_000


@each(LINE)
def test_a_line_without_an_end_is_ended(small: ContextPool, lang: str, body: str) -> None:
    report = run(small, handler(lang, body)).only
    assert (report.status, report.crashed) == (509, True)
    assert len(report.log) < 10_000


@each(LEAVE)
@pytest.mark.parametrize("trust", [False, True], ids=["sandboxed", "trusted"])
def test_what_a_job_leaves_running_is_ended_with_its_batch(
    contexts: ContextPool, trusted: ContextPool, lang: str, body: str, trust: bool
) -> None:
    mark = f"left-{uuid.uuid4().hex}"
    seen: list[int] = []
    given = handler(lang, body.replace("LONG", LONG) + ("\nsleep 0.2" if lang == "shell" else ""))
    ran = run(trusted if trust else contexts, given, mark.encode(), on_start=lambda _: seen.append(1))
    assert ran.only.status == 200
    assert processes(mark) == []
    assert given.home not in contexts.idle()


@each(EAT)
def test_who_eats_memory_gets_no_more(small: ContextPool, lang: str, body: str) -> None:
    report = run(small, handler(lang, body)).only
    assert report.status >= 500
    assert report.status != 504


def test_memory_of_many_processes_is_counted_together(small: ContextPool) -> None:
    body = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        x = bytearray(60_000_000)
        time.sleep(600)
time.sleep(600)
"""
    report = run(small, handler("python", body)).only
    assert (report.status, report.crashed) == (509, True)
    assert report.error == "its processes used more than 160 MB of memory together"


def test_memory_that_is_shared_is_counted_too(small: ContextPool) -> None:
    body = """
import mmap, time
x = mmap.mmap(-1, 400_000_000)
for n in range(0, 400_000_000, 4096): x[n] = 1
time.sleep(600)
"""
    report = run(small, handler("python", body)).only
    assert (report.status, report.error) == (509, "its processes used more than 160 MB of memory together")


def test_processor_time_of_a_job_is_limited() -> None:
    with pool(cpu=0.5) as contexts:
        report = run(contexts, handler("python", "while True: pass")).only
        assert (report.status, report.crashed) == (504, True)
        assert report.error == "it used more than 0.5 s of processor time"


BOMB = {
    "python": """
import os, time
made = 0
try:
    while True:
        if os.fork() == 0: time.sleep(600)
        made += 1
except BlockingIOError:
    return ['made', made, 0]
""",
    "shell": "b() { b | b & b; }; b 2>/dev/null; sleep 600",
}


@each(BOMB)
def test_a_fork_bomb_comes_to_its_limit_and_is_ended(small: ContextPool, lang: str, body: str) -> None:
    ran = run(small, handler(lang, body), seconds=1 if lang == "shell" else 60)
    if lang == "python":
        _, made, _ = json.loads(ran.only.data)
        assert 15 < made <= 24
    else:
        assert ran.only.status >= 500
    assert run(small, handler("shell", "true | true")).only.status == 200


def test_a_fork_bomb_without_a_sandbox_is_ended_too() -> None:
    with pool(trust=True, processes=24) as contexts:
        body = "import os, time\nfor _ in range(60):\n  if os.fork() == 0: time.sleep(3599)\ntime.sleep(3599)"
        report = run(contexts, handler("python", body)).only
        assert (report.status, report.error) == (509, "it had more than 24 processes")


@each(CLOSE)
def test_who_closes_its_output_is_believed_but_not_used_again(contexts: ContextPool, lang: str, body: str) -> None:
    ran = run(contexts, handler(lang, body.format(1, 3)), b"1", b"2")
    assert ran.statuses[0] in (200, 500)
    assert len(ran.left) == 1


@each(CLOSE)
def test_who_closes_its_private_channel_has_crashed(contexts: ContextPool, lang: str, body: str) -> None:
    wait = {"python": "; import time; time.sleep(600)", "node": "; await new Promise(d => setTimeout(d, 6e5))"}[lang]
    ran = run(contexts, handler(lang, body.format(3, 20) + wait), b"1", b"2")
    assert ran.only.crashed
    assert ran.only.status in (509, 506)  # node itself gives up without its descriptors
    assert len(ran.left) == 1


@pytest.mark.parametrize(
    "garbage",
    [
        b"garbage\n", b"\xff" * 100_000, b'{"kind":"done","size":99999999999}\n', b'{"kind":"done","size":-1}\n',
        b'{"kind":"begun"}\n', b'{"kind":7}\n', b"[" * 50_000 + b"\n", b'{"kind":"what"}\n',
    ],
)  # fmt: skip
def test_who_writes_on_its_private_channel_is_ended(contexts: ContextPool, garbage: bytes) -> None:
    body = f"import os, time; os.write(5, {garbage!r}); time.sleep(600)"
    ran = run(contexts, handler("python", body), b"1", b"2")
    assert (ran.only.status, ran.only.crashed) == (509, True)
    assert ran.only.error == "it wrote something of its own on its private channel"


def test_an_answer_forged_by_a_handler_is_its_own_and_a_context_that_stops_reading_gives_the_next_job_back() -> None:
    body = """import os, time; os.write(5, b'{"kind":"done","status":299}\\n'); time.sleep(600)"""
    with pool() as contexts:

        def hurry(_task: ContextJob) -> None:  # now that it has started, which takes a busy machine seconds
            (context,) = contexts._alive
            context._link._settings = msgspec.structs.replace(context._link._settings, start_seconds=0.5)

        ran = run(contexts, handler("python", body), b"1", b"2", on_start=hurry)
        assert ran.only.status == 299  # it could have returned that
        assert len(ran.left) == 1  # and it did not take another job


def test_a_process_whose_name_is_no_text_is_watched_like_any_other(contexts: ContextPool) -> None:
    body = r"""
import ctypes, time
name = ctypes.CDLL(None).prctl
name(15, b'\xff) \n', 0, 0, 0)
time.sleep(0.4)
name(15, b'python', 0, 0, 0)
return payload
"""
    given = handler("python", body)
    assert run(contexts, given, b"1").only.data == b"1"
    assert contexts.idle()[given.home] == 1


def test_a_child_that_comes_back_from_a_handler_answers_nothing(contexts: ContextPool) -> None:
    ran = run(contexts, handler("python", "import os; os.fork(); return payload"), b"1", b"2", b"3")
    assert [report.data for report in ran.reports] == [b"1", b"2", b"3"]


def test_a_handler_that_stops_itself_is_over_its_time(contexts: ContextPool) -> None:
    body = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
    assert run(contexts, handler("python", body), seconds=0.5).only.status == 504


def test_an_aftereach_that_never_ends_costs_only_the_context(contexts: ContextPool) -> None:
    given = handler("python", "return 'ok'", afterEach="import time; time.sleep(600)")
    ran = run(contexts, given, b"1", seconds=1.5)
    assert (ran.only.status, ran.only.data) == (200, b"ok")
    assert "[hipq: afterEach: it took longer than" in ran.only.log
    assert given.home not in contexts.idle()


def test_scratch_has_a_limit_and_the_job_after_it_gets_another_context(small: ContextPool) -> None:
    body = "if payload == 'fill':\n  open('/tmp/x', 'wb').write(b'y' * 2_000_000)\nreturn 'ok'"
    ran = run(small, handler("python", body), b"fill", b"next")
    assert ran.statuses == [500, 200]
    assert "Errno" in ran.reports[0].error
    shell = handler("shell", '[ "$(cat)" != fill ] || head -c 1048576 /dev/zero >/tmp/x 2>/dev/null; status 200 ok')
    assert run(small, shell, b"fill").only.status in (200, 501)
    assert run(small, shell, b"next", b"y" * 100_000).statuses == [200, 200]
    both = run(small, shell, b"fill", b"y" * 100_000)
    assert len(both.left) == 1  # it cannot even be taken in: that costs it nothing


def test_who_makes_endless_empty_files_is_ended(contexts: ContextPool) -> None:
    body = "n = 0\nwhile True:\n  n += 1\n  open(f'/tmp/{n}', 'w').close()"
    report = run(contexts, handler("python", body)).only
    assert (report.status, report.error) == (509, "it made more than 100,000 files")


def test_deep_recursion_and_huge_numbers_are_errors(contexts: ContextPool) -> None:
    for body in (
        "f = lambda: f()\nf()",
        "return 10 ** 100_000 + 1",
        "x = {}\nfor _ in range(100_000): x = {0: x}\nreturn x",
    ):
        report = run(contexts, handler("python", body, eid="odd")).only
        assert report.status == 500


def test_nothing_of_any_test_is_left(contexts: ContextPool, small: ContextPool, trusted: ContextPool) -> None:
    for one in (contexts, small, trusted):
        for lang in LANGUAGES:
            run(one, handler(lang, "true" if lang == "shell" else ";" if lang != "python" else "pass"))
    assert processes(f"sleep {LONG}") == []
