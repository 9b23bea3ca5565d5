"""`django_database()` where Django is not there, or runs no test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SHOP = """
import sys
from django.conf import settings
if "configured" in sys.argv:
    settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.db"}})
from hipq import Hipq
from hipq.django import django_database
from hipq.testing import harness

app = Hipq("shop", django_database())
app.queue("orders").job(name="pay")(lambda job: None)
if __name__ == "__main__":
    with harness(app):
        pass
"""


def ended(folder: Path, *command: str) -> tuple[int, str]:
    (folder / "shop.py").write_text(SHOP)
    found = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run([sys.executable, *command], cwd=folder, env=found, capture_output=True, text=True)
    return done.returncode, done.stderr


def test_no_harness_puts_jobs_into_a_database_that_is_no_test_s(tmp_path: Path) -> None:
    status, said = ended(tmp_path, "shop.py", "configured")
    assert status == 1
    assert said.splitlines()[-1] == (
        "hipq.errors.Invalid: shop is on Django's database 'default', and no test of Django's runs: use Django's test "
        "runner or pytest-django, or say which database is meant: harness(app, db=...)"
    )
    assert not (tmp_path / "site.db").exists()


def test_a_command_that_does_not_set_up_django_says_what_does(tmp_path: Path) -> None:
    status, said = ended(tmp_path, "-m", "hipq", "worker", "shop:app", "--until-empty")
    assert status == 2
    assert "work with manage.py hipq_worker, or let the module call django.setup() first" in said
    assert "Traceback" not in said
