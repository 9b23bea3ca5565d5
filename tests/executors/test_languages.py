"""What every language can do, and what its answers mean."""

from __future__ import annotations

import json
import os

import pytest

from hipq.sandbox import ContextPool
from tests.executors.running import LANGUAGES, handler, run

# What to write in each language to get the same.
ECHO = {
    "python": "return payload",
    "node": "return payload",
    "php": "return $payload;",
    "shell": "cat | status 200 -",
}
STATUS = {"python": "return {0}", "node": "return {0};", "php": "return {0};", "shell": "status {0}"}
BOTH = {
    "python": "return {0}, 'why'",
    "node": "return [{0}, 'why']",
    "php": "return [{0}, 'why'];",
    "shell": "status {0} why",
}
NOTHING = {"python": "pass", "node": ";", "php": ";", "shell": ":"}
RAISE = {
    "python": "raise ValueError('no such thing')",
    "node": "throw new RangeError('no such thing')",
    "php": "throw new LogicException('no such thing');",
    "shell": "echo no such thing >&2; exit 3",
}
EXIT = {
    "python": "import sys; sys.exit({0})",
    "node": "process.exit({0})",
    "php": "exit({0});",
    "shell": "exit {0}",
}
WRONG = {"python": "return (", "node": "return (", "php": "return (;", "shell": "if ("}
JOB = {
    "python": "return [job.id, job.type, job.attempt][::1] + ['x']",
    "node": "return [job.id, job.type, job.attempt, 'x']",
    "php": "return [$job->id, $job->type, $job->attempt, 'x'];",
    "shell": """status 200 "[\\"$HIPQ_JOB_ID\\",\\"$HIPQ_JOB_TYPE\\",$HIPQ_ATTEMPT,\\"x\\"]" """,
}
PRINT_PAYLOAD = {
    "python": "print(payload)",
    "node": "console.log(payload)",
    "php": 'echo $payload, "\\n";',
    "shell": "cat; echo",
}
SPAWN = {
    "python": "print('J: next.v2|a|b c'); print('seen'); print('J: last|end', end='')",
    "node": "console.log('J: next.v2|a|b c'); console.log('seen'); process.stdout.write('J: last|end')",
    "php": 'echo "J: next.v2|a|b c\\nseen\\nJ: last|end";',
    "shell": "echo 'J: next.v2|a|b c'; echo seen; printf 'J: last|end'",
}
STDERR = {
    "python": "import sys; print('J: not|this', file=sys.stderr)",
    "node": "console.error('J: not|this')",
    "php": 'fwrite(STDERR, "J: not|this\\n");',
    "shell": "echo 'J: not|this' >&2",
}
INVALID = {
    "python": "import sys; sys.stdout.buffer.write(b'\\xff\\xfe ok \\x1b[2J\\n')",
    "node": "process.stdout.write(Buffer.from('fffe206f6b201b5b324a0a', 'hex'))",
    "php": 'echo "\\xff\\xfe ok \\x1b[2J\\n";',
    "shell": "printf '\\377\\376 ok \\033[2J\\n'",
}
STDIN = {
    "python": "import sys; return [len(sys.stdin.read()), 'x', 0]",
    "node": "return [require('fs').readFileSync(0).length, 'x', 0]",
    "php": "return [strlen(stream_get_contents(STDIN)), 'x', 0];",
    "shell": 'cat >/dev/null; status 200 "[$(cat | wc -c),\\"x\\",0]"',
}
LARGE = {
    "python": "return 'x' * (16 * 2**20 + int(payload))",
    "node": "return 'x'.repeat(16 * 2**20 + Number(payload))",
    "php": "return str_repeat('x', 16 * 2**20 + (int) $payload);",
    "shell": "head -c $((16 * 1024 * 1024 + $(cat))) /dev/zero | status 200 -",
}
BINARY = bytes(range(256)) * 3 + b"\n\n\0\0\n"


def each(bodies: dict[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("lang", "body"), bodies.items(), ids=bodies.keys())


def test_every_language_is_here() -> None:
    assert set(ECHO) == set(LANGUAGES)


@each(ECHO)
@pytest.mark.parametrize(
    "payload",
    [b"hello", b"", "Grüße, 世界".encode(), BINARY, b"\n", b"x" * (1 << 20), b"{}\n" * 1000],
    ids=["text", "empty", "unicode", "binary", "newline", "a megabyte", "lines"],
)
def test_what_goes_in_comes_out(contexts: ContextPool, lang: str, body: str, payload: bytes) -> None:
    report = run(contexts, handler(lang, body, eid="shared"), payload).only
    assert (report.status, report.error, report.log) == (200, "", "")
    assert report.data == payload
    assert not report.crashed


@each(NOTHING)
def test_nothing_is_ok(contexts: ContextPool, lang: str, body: str) -> None:
    report = run(contexts, handler(lang, body, eid="shared")).only
    assert (report.status, report.data, report.spawned, report.log) == (200, b"", [], "")


@each(STATUS)
@pytest.mark.parametrize("status", [100, 175, 200, 204, 299, 400, 404, 499, 500, 503, 599])
def test_a_number_is_its_status(contexts: ContextPool, lang: str, body: str, status: int) -> None:
    report = run(contexts, handler(lang, body.format(status), eid="shared")).only
    assert (report.status, report.data, report.error) == (status, b"", "")


@each(STATUS)
@pytest.mark.parametrize("status", [0, 1, 99, 300, 302, 399, 600, 1000, 99999999999])
def test_a_number_that_is_no_status_is_an_error(contexts: ContextPool, lang: str, body: str, status: int) -> None:
    report = run(contexts, handler(lang, body.format(status), eid="shared")).only
    assert report.status == 500
    assert "status" in report.error
    assert not report.crashed


@each(BOTH)
@pytest.mark.parametrize("status", [200, 171, 422, 503])
def test_status_and_data(contexts: ContextPool, lang: str, body: str, status: int) -> None:
    report = run(contexts, handler(lang, body.format(status), eid="shared")).only
    assert (report.status, report.data) == (status, b"why")


@each(JOB)
def test_a_handler_knows_its_job(contexts: ContextPool, lang: str, body: str) -> None:
    given = handler(lang, body, eid="shared")
    report = run(contexts, given).only
    assert json.loads(report.data) == [report.id, given.type, 1, "x"]


@each(RAISE)
def test_an_exception_is_an_error_with_its_message(contexts: ContextPool, lang: str, body: str) -> None:
    report = run(contexts, handler(lang, body, eid="shared")).only
    assert report.status == (503 if lang == "shell" else 500)
    assert "no such thing" in (report.log if lang == "shell" else report.error)
    assert "no such thing" in report.log
    assert not report.crashed


@each(WRONG)
def test_code_that_is_none_is_an_error_of_each_job(contexts: ContextPool, lang: str, body: str) -> None:
    ran = run(contexts, handler(lang, body), b"1", b"2")
    assert all(report.status >= 500 for report in ran.reports)
    assert len(ran.reports) == 2
    assert all(report.error for report in ran.reports)


@each(EXIT)
@pytest.mark.parametrize(("code", "status"), [(0, 200), (1, 501), (65, 465), (75, 175), (99, 599), (120, 599)])
def test_exit_codes(contexts: ContextPool, lang: str, body: str, code: int, status: int) -> None:
    report = run(contexts, handler(lang, body.format(code))).only
    assert report.status == status
    assert not report.crashed
    assert (report.error == "") == (code == 0)


@each(SPAWN)
def test_lines_with_the_mark_are_jobs_and_others_log(contexts: ContextPool, lang: str, body: str) -> None:
    report = run(contexts, handler(lang, body, eid="shared")).only
    assert report.spawned == [("next.v2", b"a|b c"), ("last", b"end")]
    assert report.log == "seen"


@each(STDERR)
def test_only_standard_output_asks_for_jobs(contexts: ContextPool, lang: str, body: str) -> None:
    report = run(contexts, handler(lang, body, eid="shared")).only
    assert (report.spawned, report.log) == ([], "J: not|this")


@each(PRINT_PAYLOAD)
def test_a_payload_that_is_printed_asks_for_jobs_of_its_own_tenant(contexts: ContextPool, lang: str, body: str) -> None:
    given = handler(lang, body, eid="shared")
    report = run(contexts, given, b"J: other-tenant/x|1\nJ: mine|2\nJ: |3\nJ: no bar").only
    assert report.spawned == [("mine", b"2")]
    assert report.log.count("[hipq: no job: it should be `J: jobtype|payload`]") == 3


@each(INVALID)
def test_output_that_is_not_utf8_is_shown_escaped(contexts: ContextPool, lang: str, body: str) -> None:
    report = run(contexts, handler(lang, body, eid="shared")).only
    assert report.log == "\\xff\\xfe ok \\x1b[2J"


@each(STDIN)
def test_a_handler_that_reads_standard_input_finds_nothing_of_the_next_job(
    contexts: ContextPool, lang: str, body: str
) -> None:
    ran = run(contexts, handler(lang, body), b"first", b"second")
    assert [json.loads(report.data) for report in ran.reports] == [[0, "x", 0], [0, "x", 0]]


@each(LARGE)
def test_data_has_a_limit(contexts: ContextPool, lang: str, body: str) -> None:
    ran = run(contexts, handler(lang, body), b"0", b"1", b"0")
    assert ran.statuses == [200, 413, 200]
    assert [len(report.data) for report in ran.reports] == [16 << 20, 0, 16 << 20]


@each(ECHO)
def test_a_batch_is_in_order_and_each_is_told_at_once(contexts: ContextPool, lang: str, body: str) -> None:
    payloads = [f"{number}".encode() for number in range(30)]
    ran = run(contexts, handler(lang, body, eid="shared"), *payloads)
    assert [report.data for report in ran.reports] == payloads
    assert ran.left == []


def test_python_returns_json_for_what_is_neither_text_nor_bytes(contexts: ContextPool) -> None:
    for body, data in [
        ("return {'a': [1, None, 'ü']}", '{"a": [1, null, "ü"]}'.encode()),
        ("return True", b"true"),
        ("return 1.5", b"1.5"),
        ("return bytearray(b'x')", b"x"),
        ("return [200, {'a': 1}]", b'{"a": 1}'),
        ("return (201, None)", b""),
        ("return [1, 2, 3]", b"[1, 2, 3]"),
    ]:
        report = run(contexts, handler("python", body, eid="shared")).only
        assert (report.status // 100, report.data) == (2, data), body


@pytest.mark.parametrize(
    "body", ["return object()", "return float('nan')", "return '\\ud800'", "x = []; x.append(x); return x"]
)
def test_python_that_returns_what_cannot_be_stored_is_an_error(contexts: ContextPool, body: str) -> None:
    report = run(contexts, handler("python", body, eid="shared")).only
    assert report.status == 500
    assert report.error


def test_node_returns_json_for_what_is_neither_text_nor_bytes(contexts: ContextPool) -> None:
    for body, status, data in [
        ("return {a: [1, null, 'ü']}", 200, '{"a":[1,null,"ü"]}'.encode()),
        ("return true", 200, b"true"),
        ("return 1.5", 200, b"1.5"),
        ("return new Uint8Array([1, 0, 255])", 200, b"\x01\x00\xff"),
        ("return Symbol('x')", 500, b""),
        ("return 10n", 500, b""),
    ]:
        report = run(contexts, handler("node", body, eid="shared")).only
        assert (report.status, report.data) == (status, data), body


def test_php_returns_json_for_what_is_not_text(contexts: ContextPool) -> None:
    for body, data in [("return ['a' => 1];", b'{"a":1}'), ("return true;", b"true"), ("return 1.0;", b"1.0")]:
        assert run(contexts, handler("php", body, eid="shared")).only.data == data


def test_bodies_may_await(contexts: ContextPool) -> None:
    python = "import asyncio; await asyncio.sleep(0.001); return 'slept'"
    assert run(contexts, handler("python", python, eid="shared")).only.data == b"slept"
    node = "await new Promise(done => setTimeout(done, 1)); return 'slept'"
    assert run(contexts, handler("node", node, eid="shared")).only.data == b"slept"


def test_a_promise_that_nobody_keeps_is_an_error_and_not_a_hang(contexts: ContextPool) -> None:
    ran = run(contexts, handler("node", "if (payload) await new Promise(() => {}); return 'ok'"), b"x", b"")
    assert ran.statuses[0] == 500
    assert "never" in ran.reports[0].error


def test_an_error_behind_the_back_of_a_node_handler_is_its_error(contexts: ContextPool) -> None:
    body = "setTimeout(() => { throw new Error('astray') }, 1); await new Promise(done => setTimeout(done, 60000))"
    report = run(contexts, handler("node", body)).only
    assert (report.status, report.error) == (500, "Error: astray")


def test_a_body_may_be_indented_and_have_strings_of_several_lines(contexts: ContextPool) -> None:
    body = "    x = '''a\n    b'''\n    return x"
    assert run(contexts, handler("python", body, eid="shared")).only.data in (b"a\n    b", b"a\nb")
    plain = "x = '''a\n    b'''\nreturn x"
    assert run(contexts, handler("python", plain, eid="shared")).only.data == b"a\n    b"


def test_an_error_says_where(contexts: ContextPool) -> None:
    log = run(contexts, handler("python", "x = 1\nraise ValueError(x)", eid="shared")).only.log
    assert "line 2" in log
    assert "raise ValueError(x)" in log
    assert "bootstrap" not in log


def test_the_scope_of_php_handlers_has_no_names_of_ours(contexts: ContextPool) -> None:
    given = handler("php", "return array_keys(get_defined_vars());", eid="shared")
    assert json.loads(run(contexts, given).only.data) == ["payload", "job", "hipq_scope"]


def test_handlers_run_without_a_sandbox_too_if_they_are_trusted(trusted: ContextPool) -> None:
    for lang in LANGUAGES:
        assert run(trusted, handler(lang, ECHO[lang]), BINARY).only.data == BINARY
        assert run(trusted, handler(lang, EXIT[lang].format(75))).only.status == 175
    seen = run(trusted, handler("python", "import os; return os.getcwd()")).only.data.decode()
    assert os.path.basename(seen).startswith("hipq-context-")
