"""What a new user does first, by an installed hipq and nothing else: `python smoke.py`, in any environment. It imports
nothing of these tests, and says what it has seen."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

HIPQ: Final = str(Path(sysconfig.get_path("scripts"), "hipq"))
PROGRAM: Final = """
from hipq import Hipq

app = Hipq("shop")
orders = app.queue("orders")

@orders.job()
def charge(job):
    return {"charged": job.data["amount"]}

if __name__ == "__main__":
    print(charge.enqueue({"amount": 5}, key="order-17"))
"""


def main() -> None:
    with TemporaryDirectory() as folder:

        def said(*words: str) -> str:
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
            assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-4000:])
            return done.stdout

        Path(folder, "shop.py").write_text(PROGRAM)
        where = said(sys.executable, "-c", "import hipq; print(hipq.__file__)").strip()
        assert Path(where).is_relative_to(sysconfig.get_path("purelib")), f"{where} is not what was installed"
        assert "A durable job queue" in said(HIPQ, "--help")
        job_id = said(sys.executable, "shop.py").strip()
        said(HIPQ, "worker", "shop:app", "--until-empty")
        job = json.loads(said(HIPQ, "job", "show", "shop:app", job_id, "--json"))
        assert (job["state"], job["code"], job["result"]) == ("final", "ok", {"charged": 5}), job
        demo = json.loads(said(HIPQ, "demo", "--seconds", "3", "--keep", "demo", "--json"))
        assert demo["adds_up"], demo
        version = said(HIPQ, "--version").strip()
    print(f"{version} on Python {platform.python_version()}: {sum(demo['jobs'].values())} jobs of the demo add up")


if __name__ == "__main__":
    main()
