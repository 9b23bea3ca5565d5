"""Steps of a Containerfile, one by one, in a root made by debootstrap. That takes no engine, but root, and a mirror of
Debian. The base image is what debootstrap makes, with Debian's Python instead of the image's."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

MIRROR: Final = "http://deb.debian.org/debian"


class Step(NamedTuple):
    name: str
    words: str


def steps_of(file: Path) -> list[Step]:
    """Its instructions, with continued lines joined and comments left out."""
    text = re.sub(r"^\s*#.*\n", "", file.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [Step(*line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


class Stage:
    """A root, and what the instructions so far have set."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self.user, self.folder = "0:0", "/"
        self.entry: list[str] = []
        self.command: list[str] = []
        self.health: list[str] = []

    def start(self, *command: str, **more: str) -> subprocess.Popen[str]:
        """A program in it, as its user, in its folder."""
        user, group = map(int, self.user.split(":"))

        def enter() -> None:
            os.chroot(self.root)
            os.chdir(self.folder)
            os.setgroups([])
            os.setgid(group)
            os.setuid(user)

        return subprocess.Popen(
            command, env=self.environment | more, preexec_fn=enter, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0,
        )  # fmt: skip

    def run(self, *command: str, **more: str) -> str:
        process = self.start(*command, **more)
        said, _ = process.communicate(timeout=600)
        assert process.returncode == 0, (command, said[-4000:])
        return said


def bootstrapped(folder: Path) -> Path:
    """The smallest Debian with Python, and with the wheels that may be installed there."""
    packages = "python3,python3-venv,python3-pip"
    words = ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(folder), MIRROR]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    return folder


def build(file: Path, context: Path, base: Path, folder: Path, **environment: str) -> Stage:
    """The last stage. `environment` is for RUN only, as where pip finds wheels."""
    stages: dict[str, Stage] = {}
    stage = Stage(base)
    arguments: dict[str, str] = {}
    for step in steps_of(file):
        words = shlex.split(step.words)
        match step.name:
            case "ARG":
                name, _, value = step.words.partition("=")
                arguments[name] = value
            case "FROM":
                assert words[0] == "${BASE}"
                stage = Stage(folder / f"stage-{len(stages)}")
                subprocess.run(["cp", "-a", base, stage.root], check=True)
                stages[words[2] if len(words) > 1 else ""] = stage
            case "RUN":
                stage.run("/bin/sh", "-c", step.words, **arguments, **environment)
            case "COPY":
                _copy(words, context, stages, stage)
            case "ENV":
                stage.environment |= dict(word.split("=", 1) for word in words)
            case "USER":
                stage.user = step.words
            case "WORKDIR":
                stage.folder = step.words
            case "ENTRYPOINT":
                stage.entry = json.loads(step.words)
            case "CMD":
                stage.command = json.loads(step.words)
            case "HEALTHCHECK":
                stage.health = json.loads(step.words.partition("CMD")[2])
            case _:
                assert step.name in ("VOLUME", "EXPOSE", "STOPSIGNAL"), step
    return stage


def _copy(words: list[str], context: Path, stages: dict[str, Stage], stage: Stage) -> None:
    source = stages[words.pop(0).removeprefix("--from=")].root if words[0].startswith("--from=") else context
    *names, target = words
    there = stage.root / target.lstrip("/")
    there.parent.mkdir(parents=True, exist_ok=True)
    for name in names:
        for found in sorted(source.glob(name.lstrip("/"))):
            if found.is_dir():
                shutil.copytree(found, there, symlinks=True)
            else:
                there.mkdir(exist_ok=True)
                shutil.copy(found, there)
