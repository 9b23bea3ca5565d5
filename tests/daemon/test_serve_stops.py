"""`hipq serve` and its signals: the first lets what runs finish, the second gives it back."""

from __future__ import annotations

import shutil
import signal
import socket
import time
from pathlib import Path

from hipq.signals import TOGETHER
from tests.daemon.api_serving import Site, eventually


def test_what_runs_may_finish_and_a_second_signal_gives_it_back(tmp_path: Path) -> None:
    site = Site(f"sqlite:///{tmp_path}/daemon.db", tmp_path)
    try:
        first = site.daemon()
        tenant = site.tenant()
        go = tmp_path / "go"
        body = f"import os, time\nopen({str(tmp_path)!r} + '/began-' + payload, 'w').close()\n"
        body += f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\nreturn 'rested'"
        tenant.handler("nap", body)
        (job_id,) = tenant.add("nap", b"1")
        eventually((tmp_path / "began-1").exists)  # what was claimed only is given back at once
        first.process.send_signal(signal.SIGTERM)
        eventually(lambda: not _answers(first.port))
        go.touch()
        assert first.process.wait(60) == 0
        go.unlink()
        second = site.daemon()
        tenant.daemon = second
        assert tenant.ended(job_id).body == b"rested", "it was let finish, although nobody could ask any more"
        (job_id,) = tenant.add("nap", b"2")
        eventually((tmp_path / "began-2").exists)
        second.process.send_signal(signal.SIGTERM)
        eventually(lambda: not _answers(second.port))
        time.sleep(TOGETHER * 2)  # else it is the same one
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(60) == 0
        row = site._store.get(int(job_id))
        assert row
        assert (row.owner, row.failures, row.state) == (0, 0, "retry")
    finally:
        site.close()


def test_a_daemon_whose_journal_was_removed_acknowledges_nothing_and_stops(tmp_path: Path) -> None:
    site = Site(f"sqlite:///{tmp_path}/daemon.db", tmp_path)
    try:
        daemon = site.daemon()
        tenant = site.tenant()
        tenant.add("mail", b"x")
        (journal,) = tmp_path.glob("journal-*")
        shutil.rmtree(journal)
        try:
            assert tenant("POST", "/{}/job/mail/add", b"y").status == 503
        except OSError:
            pass  # it has noticed before, and is stopping
        assert daemon.process.wait(60) == 1
        assert "removed" in daemon.log.splitlines()[-1]
        assert "Traceback" not in daemon.log
    finally:
        site.close()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True
