"""`hipq handler` and `hipq secret` at a real daemon: what is put is what runs, and bad manifests hear what is wrong."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hipq.cli.main import run
from hipq.daemon.handlers.keys import new_key
from tests.daemon.api_serving import Site, Tenant

Said = tuple[int, str, str]
MANIFEST = """
type = "charge"
language = "python"
entry = "charge.py"
run_timeout = 30
memory = 128
secrets = ["BANK_KEY"]

[retry]
attempts = 3

[variables]
REGION = "eu"
"""
CODE = """import os
print("charging in", os.environ["REGION"], os.environ["BANK_KEY"])
print("J: receipt|" + payload)
return 422 if payload == "bad" else payload.upper()
"""


@pytest.fixture(scope="module")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenant]:
    folder = tmp_path_factory.mktemp("daemon")
    here = Site(f"sqlite:///{folder}/daemon.db", folder)
    here.daemon(HIPQ_SECRETS_KEY=new_key())
    yield here.tenant()
    here.close()


@pytest.fixture
def hipq(acme: Tenant, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    monkeypatch.setenv("HIPQ_DAEMON_URL", acme.daemon.address)
    monkeypatch.setenv("HIPQ_TOKEN", acme.token)

    def typed(*words: str, stdin: bytes = b"") -> Said:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = run(list(words))
        return (status, *capsys.readouterr())

    return typed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hipq-handler.toml").write_text(MANIFEST)
    (tmp_path / "charge.py").write_text(CODE)
    (tmp_path / "good.txt").write_text("a customer")
    (tmp_path / "bad.txt").write_text("bad")
    return tmp_path


def test_a_handler_from_its_folder_to_its_rollback(hipq: Callable[..., Said], folder: Path, acme: Tenant) -> None:
    assert hipq("secret", "set", "BANK_KEY", stdin=b"a long bank key\n") == (0, "BANK_KEY is set\n", "")
    put = json.loads(hipq("handler", "put", str(folder), "--test", str(folder / "good.txt"), "--json")[1])
    assert put["policy"] == {
        "run_timeout": 30, "memory": 128, "secrets": ["BANK_KEY"], "retry": {"attempts": 3},
        "variables": {"REGION": "eu"},
    }  # fmt: skip
    assert acme.ended(acme.add("charge", b"a job")[0]).body == b"A JOB"

    status, out, err = hipq("handler", "put", str(folder), "--test", str(folder / "bad.txt"))
    assert (status, err) == (1, "charge was not put: its test did not end well\n")
    assert "status             422" in out
    assert "charging in eu [secret BANK_KEY]" in out
    assert len(acme("GET", "/v1/{}/handlers/charge/versions").json["versions"]) == 1

    (folder / "charge.py").write_text(CODE.replace("upper", "lower"))
    (folder / "hipq-handler.toml").write_text(MANIFEST.replace("128", "64"))
    for words in (["--folder", str(folder)], ["charge"]):
        if words == ["charge"]:
            assert hipq("handler", "put", str(folder))[0] == 0
        changed = [line for line in hipq("handler", "diff", *words)[1].splitlines() if line[:1] in "+-"]
        assert changed[2:] == [
            "-memory: 128", "+memory: 64", '-return 422 if payload == "bad" else payload.upper()',
            '+return 422 if payload == "bad" else payload.lower()',
        ]  # fmt: skip
    assert acme.ended(acme.add("charge", b"A JOB")[0]).body == b"a job"

    assert hipq("handler", "rollback", "charge")[1] == f"version {put['id']} of charge runs from now on\n"
    assert acme.ended(acme.add("charge", b"a job")[0]).body == b"A JOB"
    shown = hipq("handler", "show", "charge")[1]
    for part in (
        put["id"],
        "memory             128",
        "retry.attempts     3",
        "secrets            BANK_KEY",
        CODE.splitlines()[2],
    ):
        assert part in shown
    assert "a long bank key" not in shown
    rows = json.loads(hipq("handler", "list", "--json")[1])
    assert [(row["type"], row["id"]) for row in rows] == [("charge", put["id"])]


def test_a_test_keeps_nothing_and_says_how_it_ended(hipq: Callable[..., Said], folder: Path, acme: Tenant) -> None:
    hipq("secret", "set", "BANK_KEY", stdin=b"a long bank key")
    (folder / "hipq-handler.toml").write_text(MANIFEST.replace('charge"', 'tried"'))
    (folder / "tried.py").write_text(CODE)
    tested = json.loads(hipq("handler", "test", str(folder), "--payload", "-", "--json", stdin=b"x\xff")[1])
    assert (tested["status"], tested["error"][:9]) == (500, "TypeError"), "bytes that are no text stay bytes"
    tested = json.loads(hipq("handler", "test", str(folder), "--payload", "-", "--json", stdin=b"x")[1])
    assert (tested["status"], tested["data"], tested["log"]) == (200, "X", "charging in eu [secret BANK_KEY]")
    assert tested["jobs"] == [{"type": "receipt", "payload": "x"}]
    assert acme("GET", "/v1/{}/handlers/tried").status == 404
    assert acme("GET", "/v1/{}/jobs?type=receipt&key=none").json["jobs"] == []


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        (None, "is no folder of a handler: "),
        ("type = ", "is not TOML"),
        ('language = "python"', 'does not say the type: write type = "charge"'),
        ('type = "x"', 'does not say the language: write language = "python"'),
        ('type = "x"\nlanguage = "python"', 'does not say which file has the code: write entry = "handler.py"'),
        ('type = "x"\nlanguage = "python"\nentry = "none.py"', "entry is none.py, which is not there"),
        ('type = "x"\nlanguage = "http"', 'an http handler has no entry, but a url: write url = "https://..."'),
        ('type = "x"\nlanguage = "python"\nurl = "https://x"', "a url is for http handlers"),
        (MANIFEST.replace("memory = 128", "memry = 128"), "there is no setting memry; did you mean memory?"),
        (MANIFEST.replace("attempts", "attemps"), "there is no setting attemps in [retry]; did you mean attempts?"),
        (MANIFEST.replace("128", '"128"'), "memory must be a whole number, not text"),
        (MANIFEST.replace("30", '"30s"'), "run_timeout must be a number, not text"),
        (MANIFEST.replace('["BANK_KEY"]', '"BANK_KEY"'), "secrets must be a list, not text"),
        (MANIFEST.replace('["BANK_KEY"]', "[5]"), "secrets[0] must be text, not a whole number"),
        (MANIFEST.replace('"eu"', "5"), "variables must be text, not a whole number"),
        (MANIFEST.replace("memory = 128", "memory = 4"), "a handler's memory must be from 16 to 1,048,576, not 4"),
        (MANIFEST.replace('"python"', '"cobol"'), "there is no language 'cobol'"),
        (MANIFEST.replace("BANK_KEY", "OTHER"), "the secret OTHER is not set: `hipq secret set OTHER`"),
        (MANIFEST.replace('"charge"', '"a/b"'), "a job type must be"),
        (MANIFEST + 'HIPQ_X = "1"', "HIPQ_X begins with HIPQ_"),
    ],
)
def test_a_bad_manifest_is_answered_with_one_sentence(
    hipq: Callable[..., Said], folder: Path, manifest: str | None, why: str
) -> None:
    hipq("secret", "set", "BANK_KEY", stdin=b"a long bank key")
    if manifest is None:
        (folder / "hipq-handler.toml").unlink()
    else:
        (folder / "hipq-handler.toml").write_text(manifest)
    for verb in ("put", "test"):
        status, out, err = hipq("handler", verb, str(folder))
        assert (status, out) == (2, "")
        assert why in err
        assert err.count("\n") == 1
        assert "Traceback" not in err


def test_code_that_cannot_be_read_is_not_put(hipq: Callable[..., Said], folder: Path) -> None:
    hipq("secret", "set", "BANK_KEY", stdin=b"a long bank key")
    (folder / "charge.py").write_text("return ((")
    status, _, err = hipq("handler", "put", str(folder))
    assert status == 2
    assert "the handler's body is not python" in err
    (folder / "charge.py").write_bytes(b"\xff")
    assert "entry is charge.py, which is not UTF-8 text" in hipq("handler", "put", str(folder))[2]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["show", "nowhere"], "there is no handler for this job type"),
        (["rollback", "nowhere"], "there is no handler for this job type"),
        (["diff", "nowhere"], "there is no handler for this job type"),
        (["diff"], "say TYPE, or --folder FOLDER"),
        (["list", "--token-file", "/nowhere"], "the token file /nowhere cannot be read: No such file"),
        (["list", "--url", "ftp://x"], "a daemon's URL is like http://"),
        (["signing", "drop", "abc"], "the tenant has no signing key 'abc'"),
    ],
)
def test_what_is_not_there(hipq: Callable[..., Said], words: list[str], why: str) -> None:
    status, out, err = hipq("handler", *words)
    assert (status > 0, out) == (True, "")
    assert why in err


def test_one_version_has_none_before_it(hipq: Callable[..., Said], acme: Tenant) -> None:
    acme.handler("single", "return 1")
    for verb in ("rollback", "diff"):
        status, _, err = hipq("handler", verb, "single")
        assert (status, "there is one version of single" in err) == (1, True)
    acme("DELETE", "/v1/{}/handlers/single")
    assert hipq("handler", "rollback", "single")[0] == 0
    assert acme("GET", "/v1/{}/handlers/single").status == 200


def test_secrets_by_command(hipq: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "value").write_text("from a file\n")
    assert hipq("secret", "set", "FROM_FILE", "--file", str(tmp_path / "value"))[0] == 0
    assert "FROM_FILE" in hipq("secret", "list")[1]
    assert hipq("secret", "delete", "FROM_FILE")[0] == 0
    assert "FROM_FILE" not in hipq("secret", "list")[1]
    status, _, err = hipq("secret", "set", "SHORT", stdin=b"short")
    assert (status, "8 characters" in err) == (2, True)


def test_a_signing_key_is_shown_once(hipq: Callable[..., Said]) -> None:
    status, out, err = hipq("handler", "signing", "new")
    assert (status, out[:6]) == (0, "whsec_")
    assert "shown this once" in err
    (row,) = json.loads(hipq("handler", "signing", "list", "--json")[1])
    assert set(row) == {"id", "made"}
    assert hipq("handler", "signing", "drop", row["id"])[0] == 0


def test_keys_of_the_operator(hipq: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys"
    for number in (1, 2):
        assert hipq("secret", "new-key", "--secrets-key-file", str(file))[0] == 0
        assert len(file.read_text().split()) == number
    assert file.stat().st_mode & 0o077 == 0
    assert hipq("secret", "new-key")[1].startswith("hipqkey_")
    status, _, err = hipq("secret", "rekey", "--db", f"sqlite:///{tmp_path}/none.db", "--secrets-key-file", str(file))
    assert (status, "there is no database file" in err) == (2, True)
    monkeypatch.delenv("HIPQ_SECRETS_KEY", raising=False)
    assert "has no key" in hipq("secret", "rekey")[2] or "keeps no secrets" in hipq("secret", "rekey")[2]


def test_who_has_no_token_is_told_where_one_goes(hipq: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIPQ_TOKEN")
    assert "--token-file FILE, or $HIPQ_TOKEN" in hipq("handler", "list")[2]
