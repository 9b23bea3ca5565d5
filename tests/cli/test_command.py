"""The program `hipq` before it has begun."""

from __future__ import annotations

import subprocess
import sys

INTERRUPTED = """
import sys

class Interrupted:
    def find_spec(self, name, *_):
        if name == "hipq.cli.worker":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
from hipq.cli.command import main
main()
"""


def test_who_interrupts_it_while_it_is_read_in_sees_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


def test_it_is_what_the_program_and_the_module_run() -> None:
    done = subprocess.run([sys.executable, "-m", "hipq", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("hipq")
