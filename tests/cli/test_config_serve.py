"""Every option of `hipq serve`, whichever there are, can be said by hipq.toml and by the environment, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from hipq.cli.configured import options_of
from hipq.cli.inputs import Whole
from hipq.cli.serve import serve
from hipq.cli.serve_settings import RELOADED
from tests.cli.conftest import HipqCommand

OPTIONS = options_of(serve)


def values(option: click.Option) -> list[Any]:
    """Two values that are not the usual one."""
    if option.is_flag:
        return [True, True]
    if option.multiple:
        return [["a.example", "b.example"], ["c.example"]]
    if isinstance(option.type, click.Choice):
        return [one for one in option.type.choices if one != option.default][:2]
    if isinstance(option.type, Whole):
        assert isinstance(option.default, int)
        return [option.default + 1, option.default + 2]
    return ["3s", "4s"] if "SECONDS" in str(option.help).upper() else ["one", "two"]


def row(hipq: HipqCommand, name: str, *words: str) -> tuple[Any, str]:
    ran = hipq("config", "serve", *words, "--json")
    assert ran.status == 0, ran.err
    (found,) = [one for one in ran.json["settings"] if one["setting"] == f"serve.{name}"]
    return found["value"], found["from"]


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_is_of_the_command_line_then_environment_then_file_then_usual(
    hipq: HipqCommand, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    option, (first, second) = OPTIONS[name], values(OPTIONS[name])
    assert row(hipq, name)[1] == "default"
    (folder / "hipq.toml").write_text(f"[serve]\n{name} = {json.dumps(first)}\n")
    is_path = option.metavar in ("FILE", "FOLDER")

    def printed(value: Any) -> Any:
        return ",".join(value) if option.multiple else float(value[0]) if value in ("3s", "4s") else value

    assert row(hipq, name) == (f"{folder}/{first}" if is_path else printed(first), "file")
    variable = f"HIPQ_SERVE_{name.upper()}"
    said = " ".join(second) if option.multiple else str(second)
    monkeypatch.setenv(variable, said)
    assert row(hipq, name) == (printed(second), f"${variable}")
    flag = max(option.opts, key=len)
    words = [flag] if option.is_flag else [flag, first[0] if option.multiple else str(first)]
    assert row(hipq, name, *words) == (printed(first[:1]) if option.multiple else printed(first), flag)


def test_what_the_file_says_is_checked_as_on_the_command_line(hipq: HipqCommand, folder: Path) -> None:
    for text, sentence in (
        ("prot = 1", "serve.prot is no setting; did you mean port?"),
        ("fly = 1", "serve.fly is no setting; there are host, port, journal"),
        ("db = 'x'", "serve.db is no setting; there are host"),
        ("port = '1'", "serve.port must be a whole number, not '1'"),
        ("port = true", "serve.port must be a whole number, not True"),
        ("port = 70000", "serve.port: port must be a whole number from 0 to 65535, not 70000"),
        ("host = 5", "serve.host must be a text, not 5"),
        ("log_level = 'loud'", "serve.log_level: 'loud' is not one of 'debug'"),
        ("drain = 'soon'", "serve.drain: drain must be a number of seconds, or like 90s"),
        ("drain = [1]", "serve.drain must be a number or a text, not [1]"),
        ("no_tokens = 1", "serve.no_tokens must be true or false, not 1"),
        ("http_allow = 'x'", 'serve.http_allow must be a list, like ["one", "two"], not \'x\''),
    ):
        (folder / "hipq.toml").write_text(f"[serve]\n{text}\n")
        for command in ("config", "serve"):
            ran = hipq(command)
            assert (ran.status, ran.out) == (2, "")
            assert f"{folder}/hipq.toml: {sentence}" in ran.complaint
        assert hipq("serve", "--help").status == 0
    (folder / "hipq.toml").write_text("serve = 3\n")
    assert "serve must be a table" in hipq("serve").complaint


def test_what_the_environment_says_is_checked_too(hipq: HipqCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value, sentence in (
        ("MEMRY", "1", "$HIPQ_SERVE_MEMRY is no setting of hipq serve; did you mean HIPQ_SERVE_MEMORY?"),
        ("MEMORY", "much", "$HIPQ_SERVE_MEMORY: memory must be a whole number from 16 to 1048576, not 'much'"),
        ("DRAIN", "soon", "$HIPQ_SERVE_DRAIN: drain must be a number of seconds"),
    ):
        with monkeypatch.context() as changed:
            changed.setenv(f"HIPQ_SERVE_{name}", value)
            for command in ("config", "serve"):
                ran = hipq(command)
                assert ran.status == 2
                assert sentence in ran.complaint
            assert hipq("serve", "--help").status == 0


def test_passwords_are_in_none_of_it(hipq: HipqCommand, folder: Path) -> None:
    url = "://ann:s3cret@there/shop"
    (folder / "hipq.toml").write_text(
        f'database = "postgresql{url}"\ncallback_url = "https{url}"\n[serve]\nhttp_allow = ["https{url}"]\n'
    )
    for words in ((), ("serve", "--db", f"postgresql{url}"), ("serve", "--journal", f"https{url}")):
        for json_too in ((), ("--json",)):
            ran = hipq("config", *words, *json_too)
            assert (ran.status, "s3cret" in ran.out + ran.err) == (0, False)
            assert "ann" in ran.out


def test_only_serve_takes_options_behind_it(hipq: HipqCommand) -> None:
    assert "only `serve` can follow" in hipq("config", "worker").complaint
    assert "--prot" in hipq("config", "serve", "--prot", "1").complaint


def test_what_is_reloaded_are_options() -> None:
    assert set(OPTIONS) >= RELOADED


@pytest.mark.parametrize("word", ["proxy.example", "10.0.0.5/8", "*"])
def test_a_proxy_that_is_no_address_is_refused(hipq: HipqCommand, word: str) -> None:
    assert (
        "--trusted-proxy must be an address or a network"
        in hipq("serve", "--trusted-proxy", word, "--port", "0").complaint
    )
