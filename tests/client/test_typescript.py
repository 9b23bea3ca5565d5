"""The client for JavaScript and TypeScript, in node, at a real daemon and at one that says what it is told to."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from clients.typescript.generate import HERE, described, generated, methods

from tests.client.scripted import CUT, Scripted, scripted
from tests.daemon.api_serving import Tenant, site

NODE = shutil.which("node")
TSC = os.environ.get("HIPQ_TEST_TSC") or shutil.which("tsc")
AWAY: Scripted = (503, {"error": "away"}, {})
IDS: Scripted = (201, {"ids": ["65537"]}, {})
needs_node = pytest.mark.skipif(not NODE, reason="node is not installed here")

ERRORS = """
const said = async (doing) => {
  try {
    return await doing;
  } catch (error) {
    const { status, message, id, retryAfter } = error;
    return [error.constructor.name, error instanceof hipq.HipqError, status, message, id, retryAfter];
  }
};
"""


def test_the_routes_are_those_of_the_daemon() -> None:
    for name, text in generated(described()).items():
        assert (HERE / name).read_text() == text, "run `make client`"


def test_every_route_has_a_method_and_every_method_a_name_of_its_own() -> None:
    description = described()
    found = methods(description)
    wanted = [path for path in description["paths"] if path.startswith("/v1/")]
    assert {"/" + "/".join(one.path) for one in found} >= set(wanted)
    assert len({one.name for one in found}) == len(found)
    assert {"addJobs", "listJobs", "getJob", "cancelJob", "getJobResult", "followEvents", "putHandler"} <= {
        one.name for one in found
    }


def test_routes_that_are_yet_to_come_have_good_names() -> None:
    operation = {"summary": "x", "operationId": "what_it_is", "responses": {"200": {}}}
    paths = {
        "/v1/{client}/jobs/cancel": {"post": operation},
        "/v1/{client}/jobs/{id}/children": {"get": operation},
        "/v1/{client}/signing-keys": {"get": operation, "post": operation},
        "/v1/tenants/{tenant}": {"patch": operation, "get": operation},
        "/v1/tenant/{tenant}": {"get": operation},
    }
    names = [one.name for one in methods({"paths": paths})]
    assert names == [
        "addSigningKeys", "cancelJobs", "changeTenant", "getJobChildren", "getTenant", "listSigningKeys", "whatItIs",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def tenant() -> Tenant:
    return site().tenant()


def program(folder: Path, text: str, *arguments: str, **environment: str) -> str:
    """What a program prints that has the package installed."""
    assert NODE
    (folder / "node_modules").mkdir(exist_ok=True)
    link = folder / "node_modules/hipq"
    if not link.exists():
        link.symlink_to(HERE)
    (folder / "program.mjs").write_text(text)
    done = subprocess.run(
        [NODE, "program.mjs", *arguments], cwd=folder, env={**os.environ, **environment}, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def told(folder: Path, text: str, url: str, token: str = "t") -> Any:
    """What `found` is, as JSON."""
    begin = (
        f"import * as hipq from 'hipq';\nconst client = new hipq.Client({url!r}, {token!r}, {{ tenant: 'acme' }});\n"
    )
    return json.loads(program(folder, f"{begin}{ERRORS}{text}\nconsole.log(JSON.stringify(found));"))


@needs_node
def test_the_example_of_the_guide_runs(tmp_path: Path, tenant: Tenant) -> None:
    page = (HERE.parents[1] / "docs/clients.md").read_text()
    (code,) = re.findall(r"^```js\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    printed = program(tmp_path, code, HIPQ_URL=tenant.daemon.address, HIPQ_TOKEN=tenant.token)
    assert printed == "HELLO\nok\ntrue false there is no job with this id\n"


@needs_node
def test_payloads_results_and_errors_of_a_daemon(tmp_path: Path, tenant: Tenant) -> None:
    tenant.handler("echo", "return payload")

    text = """
const ended = async (payload) => (await client.result(await client.add("echo", payload), { timeout: 60 }));
const bytes = await ended(new Uint8Array([255, 0, 7]));
const later = await client.add("far", "x", { delay: 3600, key: "köy/1" });
const events = client.followEvents();
const next = events.next();
await new Promise((resolve) => setTimeout(resolve, 300));
const cancelled = await client.cancelJob(later, { reason: "no more" });
const found = {
  text: (await ended("hüllo")).text(),
  json: (await ended({ a: [1, null] })).json(),
  bytes: [...bytes.bytes],
  code: bytes.headers.get("x-hipq-code"),
  cancelled: [cancelled.code, cancelled.error],
  event: Object.keys((await next).value).includes("id"),
  whoami: await client.getWhoami(),
  failed: await said(client.result(later)),
  late: (await said(client.result(await client.add("never", "x"), { timeout: 0.1 })))[0],
  wrong: await said(client.addJobs({ type: "x", priority: "much" })),
  duplicate: await said(client.add("far", "x", { key: "same" }).then(() => client.add("far", "x", { key: "same" }))),
  nobody: (await said(new hipq.Client("http://127.0.0.1:1", "", { patience: 0 }).getHealth())).slice(0, 2),
  closed: await events.return(),
};
found.unauthorized = (await said(new hipq.Client(URL_OF, "hipq_nobody").listJobs())).slice(0, 3);
found.listed = (await client.listJobs({ type: "far", code: "cancelled" })).jobs.length;
"""
    text = text.replace("URL_OF", repr(tenant.daemon.address))
    begin = (
        "import * as hipq from 'hipq';\n"
        f"const client = new hipq.Client({tenant.daemon.address!r}, {tenant.token!r});\n{ERRORS}"
    )
    found = json.loads(program(tmp_path, f"{begin}{text}\nconsole.log(JSON.stringify(found));"))
    assert (found["text"], found["json"], found["bytes"], found["code"]) == (
        "hüllo", {"a": [1, None]}, [255, 0, 7], "ok",
    )  # fmt: skip
    assert found["cancelled"][0] == "cancelled"
    assert "no more" in found["cancelled"][1]
    assert found["event"]
    assert found["whoami"]["tenant"] == tenant.name
    assert found["failed"][:2] == ["JobFailed", True]
    assert found["late"] == "TimedOut"
    assert found["wrong"][:3] == ["Invalid", True, 400]
    assert found["duplicate"][:3] == ["DuplicateKey", True, 409]
    assert found["duplicate"][4].isdigit()
    assert found["nobody"] == ["DaemonUnavailable", True]
    assert found["unauthorized"] == ["Unauthorized", True, 401]
    assert found["listed"] == 1


@needs_node
def test_what_is_not_taken_now_is_sent_again_under_the_same_key(tmp_path: Path) -> None:
    with scripted(AWAY, (429, {"error": "behind"}, {"retry-after": "0"}), CUT, IDS) as server:
        assert told(tmp_path, 'const found = await client.add("resize", "a");', server.url) == "65537"
        assert len({one.headers["idempotency-key"] for one in server.asked}) == 1
        assert [one.body for one in server.asked] == [b'{"type":"resize","payload":"a"}'] * 4


@needs_node
def test_what_may_have_been_done_is_not_sent_again_and_what_was_not_taken_is(tmp_path: Path) -> None:
    text = 'const found = await said(client.add("resize", "a", { idempotencyKey: "" }));'
    with scripted(AWAY, CUT) as server:
        assert told(tmp_path, text, server.url)[:2] == ["DaemonUnavailable", True]
        assert len(server.asked) == 2
        assert "idempotency-key" not in server.asked[0].headers
    with scripted((429, {"error": "full"}, {"retry-after": "99"})) as server:
        assert told(tmp_path, text, server.url) == ["OverQuota", True, 429, "full", None, 99]
    with scripted((403, {"error": "its role"}, {})) as server:
        assert told(tmp_path, text, server.url)[:4] == ["Forbidden", True, 403, "its role"]
    with scripted((502, b"<html>", {}), (200, b"<html>", {})) as server:
        found = told(tmp_path, "const found = await said(client.getJob('1'));", server.url)
        assert found[0] == "DaemonUnavailable"
        assert "no hipq daemon" in found[3]
    with scripted((302, b"", {"location": "http://127.0.0.1:1/"})) as server:
        url = json.dumps(server.url)
        text = f"const found = await said(new hipq.Client({url}, 't', {{ patience: 0 }}).getHealth());"
        assert told(tmp_path, text, server.url)[0] == "DaemonUnavailable", "a token goes nowhere else"


@needs_node
@pytest.mark.skipif(not TSC, reason="tsc is not here: npm install -g typescript, or HIPQ_TEST_TSC")
def test_types_are_right(tmp_path: Path) -> None:
    assert TSC
    program(tmp_path, "")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "good.ts").write_text("""
import { Client, OverQuota, type Job, type NewJob, type Reply } from "hipq";
const client = new Client("http://x", "t", { tenant: "a" });
const id: string = await client.add("mail", { to: 1 }, { key: "a", priority: 5 });
const page = await client.listJobs({ state: "final", limit: 5 });
const job: Job | undefined = page.jobs[0];
const next: string | null = page.next;
const reply: Reply = await client.result(id);
const one: NewJob = { type: "x", windows: [{ start: "22:00", end: "05:00" }] };
const { ids } = await client.addJobs([one], { idempotencyKey: "k" });
for await (const event of client.followEvents()) { console.log(event.name, ids, job, next, reply.bytes.length); break; }
try { await client.retryJob(id); } catch (error) { if (error instanceof OverQuota) error.retryAfter.toFixed(); }
// @ts-expect-error an id is text
await client.cancelJob(5);
// @ts-expect-error misspelt
await client.listJobs({ stat: "final" });
// @ts-expect-error no such state
await client.listJobs({ state: "done" });
// @ts-expect-error it needs a type
await client.addJobs({ data: 1 });
""")
    options = "--noEmit --strict --target es2022 --lib es2022,dom,dom.asynciterable --module nodenext"
    done = subprocess.run([TSC, *options.split(), "good.ts"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
