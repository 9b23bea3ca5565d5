"""Program N-1 on schema N: a wheel of an older commit works beside the program of today, on a later schema.

older.txt names the commit. Until there is a release, migrations may be edited in place. Then no older program can run
on today's schema, and the commit has to be a later one, as this test then says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from hipq.stores.migrations import migrations
from tests.daemon.api_serving import eventually
from tests.servers import fresh_database
from tests.upgrade.programs import ROOT, Ledger, Version, working

pytestmark = pytest.mark.long

OLDER: Final = (ROOT / "tests" / "upgrade" / "older.txt").read_text().strip()
MIGRATIONS: Final = "src/hipq/stores/postgres/migrations"
NEWER: Final = migrations("hipq.stores.postgres")[-1].number + 1
EXPANDS: Final = """-- What a next version would add: a column for all, one of each queue, and an index.
ALTER TABLE hipq_queues ADD COLUMN noted TEXT NOT NULL DEFAULT '';
-- :each-queue
ALTER TABLE {live} ADD COLUMN noted TEXT NOT NULL DEFAULT '';
ALTER TABLE {final} ADD COLUMN noted TEXT NOT NULL DEFAULT '';
CREATE INDEX {live}_noted ON {live} (noted) WHERE noted <> '';
"""


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the older wheel is installed."""
    if subprocess.run(["git", "cat-file", "-e", f"{OLDER}^{{commit}}"], cwd=ROOT, check=False).returncode:
        pytest.skip(f"the commit {OLDER} of older.txt is not in this clone")
    folder = tmp_path_factory.mktemp("older")
    source = folder / "source"
    source.mkdir()
    archive = subprocess.run(["git", "archive", OLDER], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
    edited = [
        file.name
        for file in (source / MIGRATIONS).glob("*.sql")
        if file.read_text() != (ROOT / MIGRATIONS / file.name).read_text()
    ]
    assert not edited, f"{edited} were edited in place since {OLDER[:9]}: let older.txt name a commit that has them"
    pip = [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source], check=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--target", folder / "installed", wheel], check=True)
    return folder / "installed"


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """Today's program with one migration more."""
    place = tmp_path / "newer"
    shutil.copytree(ROOT / "src" / "hipq", place / "hipq", ignore=shutil.ignore_patterns("__pycache__"))
    (place / "hipq/stores/postgres/migrations" / f"{NEWER:04}_expand.sql").write_text(EXPANDS)
    return place


@pytest.fixture
def url() -> Iterator[str]:
    with fresh_database() as found:
        yield found


def version(name: str, place: Path, tmp_path: Path, url: str) -> Version:
    (folder := tmp_path / f"site-{name}").mkdir()
    return Version(name, place, folder, url)


def test_older_workers_go_on_through_a_migration_and_nothing_is_lost(
    older: Path, newer: Path, tmp_path: Path, url: str
) -> None:
    old, new = version("old", older, tmp_path, url), version("new", newer, tmp_path, url)
    assert (old.is_at(older), new.is_at(newer)) == (True, True)
    old.hipq("migrate", "--db", url)
    with closing(Ledger(url)) as ledger, working() as workers:
        workers += [old.worker("-c", "4") for _ in range(2)]
        adding = [old.adding("a", 200, 0.02), old.adding("w", 40, waits=True)]
        eventually(lambda: len(ledger.runs()) > 20)
        assert "applied" in new.hipq("migrate", "--db", url), "while older workers run and older programs add jobs"
        workers += [new.worker("-c", "4"), old.worker("-c", "4")]  # an older one may even start now
        adding += [new.adding("b", 200, 0.02), old.adding("c", 100, 0.02)]
        eventually(lambda: len(ledger.runs()) > 100)
        workers.pop(0).kill()
        assert [one.wait(300) for one in adding] == [0] * 4
        eventually(lambda: ledger.ended() == 500 and len(ledger.runs()) == 540, 120)
        answered = 'import shop; print(*(shop.charge.answer(f"w-{n}", {"paid": n}) for n in range(40)))'
        assert set(new.said(sys.executable, "-c", answered).split()) == {"matched"}, "also for jobs that older ones ran"
        assert [worker.stop() for worker in workers if worker.version is old] == [0, 0]
        assert old.adding("d", 20).wait(300) == 0
        eventually(lambda: ledger.ended() == 560, 60)
        assert ledger.programs() == {"old", "new"}
        twice = [key for key, count in ledger.runs().items() if count > 1]
        assert len(twice) <= 4, "what the killed worker had in its four hands, and nothing else"
        assert ledger.rows("SELECT version, accepts FROM hipq_meta")[0] == (NEWER, 1)
