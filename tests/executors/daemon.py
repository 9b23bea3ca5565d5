"""A small daemon, to be killed or to be run as somebody else: `python -m tests.executors.daemon WHAT TRUST [UID]`.

`hang` starts one handler per language that never ends, each with a child that hides, and says when all have begun.
`try` runs one handler per language and prints what came back.
`run` runs what it is told on standard input (see `as_user`), and prints what came back and what its idle contexts use.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from typing import Any

import msgspec

from hipq.sandbox import ContextJob, ContextPool, ContextSettings, Handler, JobReport, languages
from hipq.sandbox.bubblewrap import why_no_sandbox
from hipq.sandbox.process import usage

HANG = {
    "python": "import os, time\nif not os.fork():\n os.setsid()\n os.execlp('sleep', 'sleep', payload)\ntime.sleep(99)",
    "node": "require('child_process').spawn('sleep', [payload], {detached: true}); await new Promise(() => {})",
    "php": "exec('setsid sleep ' . $payload . ' > /dev/null 2>&1 &'); sleep(3000);",
    "shell": "x=$(cat); setsid sleep $x & sleep $x",
}
TRY = {
    "python": "import os; return ['uid', os.getuid(), os.path.exists('/etc/passwd')]",
    "node": "return ['uid', process.getuid(), require('fs').existsSync('/etc/passwd')]",
    "php": "return ['uid', 0, file_exists('/etc/passwd')];",
    "shell": "[ ! -e /etc/passwd ] && status 200 '[\"uid\",0,false]'",
}


def become(user: int) -> ContextSettings:
    """Some other user, and the interpreters that this user can reach."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    found = {lang: path for lang, path in languages(ContextSettings()).items() if path}
    path = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if "python" not in found and path:
        found["python"] = path
    return ContextSettings(interpreters=found)


def main(what: str, trust: str, user: str = "") -> None:
    settings = become(int(user)) if user else ContextSettings(trust=bool(int(trust)))
    if not settings.trust and why_no_sandbox():
        print(json.dumps({"why": why_no_sandbox()}))
        return
    if what == "run":
        told(json.load(sys.stdin), settings)
        return
    contexts = ContextPool(settings)
    if what == "hang":
        hang(contexts, sys.stdin.readline().strip())
    reports: dict[str, object] = {}
    for lang, body in TRY.items():
        if lang in languages(settings):
            given = Handler(lang, "acme", lang, lang, body)
            contexts.run(given, [ContextJob(lang, b"", 1, 60.0)], lambda _: None, lambda report: keep(reports, report))
    contexts.close()
    print(json.dumps(reports))


def told(told: dict[str, Any], settings: ContextSettings) -> None:
    given = told["settings"]
    given["hidden"] = tuple(given.get("hidden", ()))
    given["interpreters"] = {**settings.interpreters, **given.get("interpreters", {})}
    contexts = ContextPool(msgspec.structs.replace(settings, **given))
    reports: list[JobReport] = []
    for number, (lang, body) in enumerate(told["handlers"]):
        task = ContextJob(str(number), b"", 1, 60.0)
        contexts.run(Handler(f"h{number}", "acme", f"t{number}", lang, body, eid=f"e{number}"), [task], ignore,
                     reports.append)  # fmt: skip
    firsts = [context._process._first for _, _, context in contexts._idle]
    before = sum(usage(first).cpu for first in firsts)
    time.sleep(told["idle_seconds"])
    said = {
        "reports": [[report.status, report.data.decode(), report.error] for report in reports],
        "idle": len(firsts),
        "idle_cpu": sum(usage(first).cpu for first in firsts) - before,
        "idle_memory": sum(usage(first).memory for first in firsts),
    }
    contexts.close()
    print(json.dumps(said))


def ignore(_task: ContextJob) -> None:
    pass


def keep(reports: dict[str, object], report: JobReport) -> None:
    reports[report.id] = json.loads(report.data) if report.status == 200 else report.error + report.log


def hang(contexts: ContextPool, seconds: str) -> None:
    begun = threading.Semaphore(0)
    for lang, body in HANG.items():
        given = Handler(lang, "acme", lang, lang, body)
        task = ContextJob(lang, seconds.encode(), 1, 3000.0)
        threading.Thread(target=contexts.run, args=(given, [task], lambda _: begun.release(), print)).start()
    for _ in HANG:
        begun.acquire()
    print("begun", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
