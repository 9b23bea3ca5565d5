"""The Containerfile and the compose file. No engine runs here: the steps are run one by one in a clean root."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import yaml

from hipq.cli.main import cli
from tests.daemon.api_serving import eventually
from tests.deploy.image_root import Stage, bootstrapped, build, steps_of

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
FILE: Final = DEPLOY / "Containerfile"


def test_hadolint_finds_nothing() -> None:
    if not (program := shutil.which("hadolint")):
        pytest.skip("hadolint is not installed")
    done = subprocess.run([program, FILE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_what_runs_is_not_root_has_a_health_check_and_takes_signals_itself() -> None:
    last = {step.name: step.words for step in steps_of(FILE)}
    assert last["USER"] == "10001:10001"
    assert last["ENTRYPOINT"].startswith("[")  # a shell in between would keep SIGTERM
    assert "HIPQ_HEALTH_URL" in last["HEALTHCHECK"]


def test_the_services_of_compose_are_commands_with_options_that_there_are() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert set(services) == {"postgres", "migrate", "worker", "callbacks", "daemon"}
    for name in services.keys() - {"postgres"}:
        command, *words = services[name]["command"]
        known = {one for param in cli.get_command(None, command).params for one in param.opts}  # type: ignore
        assert [word for word in words if word.startswith("--") and word not in known] == []
        assert services[name]["read_only"], name
        assert services[name]["cap_drop"] == ["ALL"], name


def test_the_schema_of_compose_allows_it() -> None:
    if not (program := shutil.which("check-jsonschema")):
        pytest.skip("check-jsonschema is not installed")
    words = [program, "--builtin-schema", "vendor.compose-spec", str(DEPLOY / "compose.yaml")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    if os.getuid() or not shutil.which("debootstrap"):
        pytest.skip("debootstrap is not installed, or this is not root")
    folder = tmp_path_factory.mktemp("image")
    context, base = folder / "context", folder / "base"
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", str(context / "dist"), str(ROOT)], check=True)
    try:
        bootstrapped(base)
    except AssertionError as error:
        pytest.skip(f"debootstrap reaches no mirror: {error}")
    (wheel,) = (context / "dist").glob("*.whl")
    (extras,) = (step.words.partition("=")[2] for step in steps_of(FILE) if step.words.startswith("EXTRAS="))
    wanted = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(base / "found"), f"{wheel}[{extras}]"]
    subprocess.run([*wanted, "--python-version", "3.11", "--only-binary=:all:"], check=True)
    return build(FILE, context, base, folder, PIP_NO_INDEX="1", PIP_FIND_LINKS="/found")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_its_steps_run_in_a_clean_root_and_what_they_make_works(image: Stage) -> None:
    assert "hipq, version" in image.run(*image.entry, "--version")
    assert image.run("id", "-u").strip() == "10001"
    assert image.run(*image.entry, "demo", "--seconds", "3", "--plain").rstrip().count("it adds up") == 1
    with pytest.raises(AssertionError):
        image.run("touch", "/opt/hipq/mine")
    for words in (("serve", "--help"), ("callbacks", "--help"), ("dashboard", "--help"), ("worker", "--help")):
        assert "Usage: hipq" in image.run(*image.entry, *words)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_its_health_check_says_how_the_daemon_is(image: Stage) -> None:
    here = {"HIPQ_HEALTH_URL": "http://127.0.0.1:18413/health"}
    with pytest.raises(AssertionError):
        image.run(*image.health, **here)
    daemon = image.start(*image.entry, *image.command, "--port", "18413")
    try:
        eventually(lambda: daemon.poll() is None and image.start(*image.health, **here).wait(30) == 0)
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(60) == 0
    finally:
        if daemon.poll() is None:
            daemon.kill()
    assert (image.root / "var/lib/hipq/daemon.db").stat().st_uid == 10001


def test_the_image_has_every_extra_that_a_service_needs() -> None:
    (extras,) = (step.words.partition("=")[2] for step in steps_of(FILE) if step.words.startswith("EXTRAS="))
    assert {"postgres", "mysql", "daemon", "secrets", "callbacks", "dashboard", "metrics"} == set(re.split(",", extras))
