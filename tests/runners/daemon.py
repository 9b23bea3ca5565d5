"""A small daemon, to be killed or to be run as somebody else: `python -m tests.runners.daemon {hang|try} TRUST [UID]`.

`hang` starts one handler per language that never ends, each with a child that hides, and says when all have begun.
`try` runs one handler per language and prints what came back.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading

from hipq.runners.contexts import Contexts, Handler, Report, Settings, Task, languages
from hipq.runners.sandbox import why_no_sandbox

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


def become(user: int) -> Settings:
    """Some other user, and the interpreters that this user can reach."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    found = {lang: path for lang, path in languages(Settings()).items() if path}
    path = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if "python" not in found and path:
        found["python"] = path
    return Settings(interpreters=found)


def main(what: str, trust: str, user: str = "") -> None:
    settings = become(int(user)) if user else Settings(trust=bool(int(trust)))
    if not settings.trust and why_no_sandbox():
        print(json.dumps({"why": why_no_sandbox()}))
        return
    contexts = Contexts(settings)
    if what == "hang":
        hang(contexts, sys.stdin.readline().strip())
    reports: dict[str, object] = {}
    for lang, body in TRY.items():
        if lang in languages(settings):
            given = Handler(lang, "acme", lang, lang, body)
            contexts.run(given, [Task(lang, b"", 1, 60.0)], lambda _: None, lambda report: keep(reports, report))
    contexts.close()
    print(json.dumps(reports))


def keep(reports: dict[str, object], report: Report) -> None:
    reports[report.id] = json.loads(report.data) if report.status == 200 else report.error + report.log


def hang(contexts: Contexts, seconds: str) -> None:
    begun = threading.Semaphore(0)
    for lang, body in HANG.items():
        given = Handler(lang, "acme", lang, lang, body)
        task = Task(lang, seconds.encode(), 1, 3000.0)
        threading.Thread(target=contexts.run, args=(given, [task], lambda _: begun.release(), print)).start()
    for _ in HANG:
        begun.acquire()
    print("begun", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
