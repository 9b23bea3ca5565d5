"""docs/doctor.md: its commands are commands, and it tells of every check and level there is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from hipq.cli.doctor import doctor
from hipq.doctor.diagnose import CHECKS
from hipq.doctor.finding import LEVELS

PAGE = (Path(__file__).parents[2] / "docs/doctor.md").read_text()


def test_its_commands_can_be_given() -> None:
    block = re.search(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    assert block
    lines = [shlex.split(line, comments=True) for line in block[1].splitlines()]
    assert len(lines) == 4
    for words in lines:
        assert words[:2] == ["hipq", "doctor"]
        doctor.make_context("doctor", words[2:])


def test_it_tells_of_every_check_and_level() -> None:
    assert re.findall(r"^\*\*(\w+)\.\*\*", PAGE, re.MULTILINE) == list(CHECKS)
    assert re.findall(r"^\| (\w+) \|", PAGE, re.MULTILINE)[1:] == list(LEVELS)
    assert re.findall(r"^(\w+)$", PAGE.split("```text")[1].split("```")[0], re.MULTILINE) == list(CHECKS)
