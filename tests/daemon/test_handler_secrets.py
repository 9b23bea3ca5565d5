"""Secrets reach the handlers that name them and nothing else: no log, result, error, database, neighbour or core."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import threading
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from hipq.daemon.handlers.keys import SecretKeys, new_key
from hipq.daemon.handlers.secrets import TenantSecrets
from hipq.errors import CannotRun, Invalid, NotFound
from hipq.sandbox import Handler
from hipq.sandbox.bubblewrap import why_no_sandbox
from hipq.sandbox.policy import Policy
from hipq.sandbox.secrets import Secrets
from hipq.stores.open import open_store
from hipq.stores.protocols import Store
from tests.daemon.api_serving import Daemon, Site, Tenant, eventually
from tests.databases import fresh
from tests.engine.conftest import url
from tests.stores.dumped import dumped as all_rows

__all__ = ["url"]
CANARY = "canary-7b1f'\"\\é/+x"
LINES = "-----BEGIN KEY-----\ncanary-line-one-93aa\ncanary-line-two-71cc\n-----END KEY-----"
SPELLED = [CANARY, *LINES.splitlines()[1:3], b64encode(CANARY.encode()).decode(), "canary-7b1f"]
LEAKS = {
    "python": """
import base64, json, os, sys, urllib.parse
it = os.environ["CANARY"]
print(it, repr(it), json.dumps({"it": it}), base64.b64encode(it.encode()).decode(), urllib.parse.quote(it))
print(os.environ["LINES"], file=sys.stderr)
print("x" * 9000 + it)
print("J: other|" + it)
if payload == "raise": raise RuntimeError(it)
return {"it": it, "all": dict(os.environ), "lines": os.environ["LINES"]}
""",
    "node": """
const it = process.env.CANARY;
console.log(it, JSON.stringify(it)); console.error(process.env);
if (payload === 'raise') throw new Error(it);
return { it, all: process.env };
""",
    "php": "echo getenv('CANARY'); if ($payload == 'raise') throw new \\Exception(getenv('CANARY')); return getenv();",
    "shell": 'env; if [ "$(cat)" = raise ]; then echo "$CANARY"; exit 3; fi; status 200 "$CANARY $LINES"',
}


@pytest.fixture
def served(store_kind: str, tmp_path: Path) -> Iterator[Site]:
    with fresh(store_kind, tmp_path / "daemon.db") as url:
        site = Site(url, tmp_path)
        keys = tmp_path / "keys"
        keys.write_text(f"# of this test\n{new_key()}\n")
        keys.chmod(0o600)
        site.daemon(
            "--log-level", "debug", "--job-log", str(tmp_path / "jobs.jsonl"), "--secrets-key-file", str(keys),
            trust=bool(why_no_sandbox()),
        )  # fmt: skip
        yield site
        site.close()


def put(tenant: Tenant, jobtype: str, lang: str, body: str, **policy: Any) -> None:
    policy.setdefault("retry", {"attempts": 1})
    got = tenant("PUT", f"/v1/{{}}/handlers/{jobtype}", {"lang": lang, "body": body, "policy": policy})
    assert got.status == 200, got


def final(tenant: Tenant, job_id: str) -> dict[str, Any]:
    def job() -> Any:
        got = tenant("GET", f"/v1/{{}}/jobs/{job_id}")
        return got.status == 200 and got.json["state"] == "final" and got.json

    return dict(eventually(job))


def dumped(url: str, folder: Path) -> bytes:
    """All that the database has, as rows, and as files where it is one."""
    return all_rows(url) + b"".join(path.read_bytes() for path in folder.glob("daemon.db*"))


def test_a_secret_is_nowhere_but_where_it_should_be(served: Site, tmp_path: Path) -> None:
    acme, other = served.tenant(), served.tenant()
    for name, value in (("CANARY", CANARY), ("LINES", LINES)):
        got = acme("PUT", f"/v1/{{}}/secrets/{name}", value.encode())
        assert (got.status, set(got.json)) == (200, {"name", "made"})
    seen = [acme("GET", "/v1/{}/secrets").body]
    assert [one["name"] for one in acme("GET", "/v1/{}/secrets").json["secrets"]] == ["CANARY", "LINES"]
    assert other("GET", "/v1/{}/secrets").json == {"secrets": []}
    put(other, "other", "shell", "sleep 1")
    for lang, body in LEAKS.items():
        put(acme, lang, lang, body, secrets=["CANARY", "LINES"])
    check = (
        "import hashlib, os\n"
        "return [hashlib.sha256(os.environ[name].encode()).hexdigest() for name in ('CANARY', 'LINES')]"
    )
    put(acme, "check", "python", check, secrets=["CANARY", "LINES"])
    hashes = [sha256(value.encode()).hexdigest() for value in (CANARY, LINES)]
    assert acme.ended(acme.add("check", b"x")[0]).json == hashes, "handlers do have it, as it is"
    for lang in LEAKS:
        for payload in (b"return", b"raise"):
            job = final(acme, acme.add(lang, payload)[0])
            assert "[secret CANARY]" in str(job), (lang, payload, job)
            seen += [str(job).encode(), acme("GET", f"/v1/{{}}/jobs/{job['id']}/result").body]
        tried = acme("POST", f"/v1/{{}}/handlers/{lang}/test", {"payload": "raise"})
        assert tried.status == 200
        assert "[secret CANARY]" in str(tried.json)
        seen.append(tried.body)
        seen.append(acme("GET", f"/v1/{{}}/handlers/{lang}/versions").body)
    child = acme("GET", "/v1/{}/jobs?type=other").json["jobs"][0]
    assert "[secret CANARY]" in acme("GET", f"/v1/{{}}/jobs/{child['id']}").json["payload"]
    put(acme, "holds", "shell", "sleep 600", secrets=["CANARY"], variables={"HOLDS": "it"})
    (holding,) = acme.add("holds", b"x")
    eventually(lambda: acme.job(holding)["phase"] == "executing")
    looks = "cat /proc/*/environ /proc/*/cmdline /proc/*/task/*/environ 2>/dev/null | base64 -w 0 | status 200 -"
    put(other, "looks", "shell", looks)
    if not why_no_sandbox():
        seen.append(b64decode(other.ended(other.add("looks", b"x")[0]).body))
    seen += [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    files = [path for path in tmp_path.rglob("*") if path.is_file() and "daemon.db" not in path.name]
    assert any(path.name == "jobs.jsonl" for path in files)
    text = b"\n".join([*seen, *(path.read_bytes() for path in files), dumped(served.url, tmp_path)])
    assert b"[secret CANARY]" in text
    for spelling in SPELLED:
        assert spelling.encode() not in text, text[text.index(spelling.encode()) - 200 :][:300]
    acme("POST", f"/v1/{{}}/jobs/{holding}/cancel")


LONG = "a-long-canary " * 400
CUT = {
    "python": "import os\nraise ValueError(os.environ['LONG'])",
    "node": "throw new Error(process.env.LONG)",
    "php": "throw new \\Exception(getenv('LONG'));",
}


@pytest.mark.parametrize("lang", CUT)
def test_half_a_secret_is_not_told_where_an_error_is_cut(lang: str, tmp_path: Path) -> None:
    """A context sends the beginning of a long error, and a secret of which a part is missing is not recognised."""
    site = Site(f"sqlite:///{tmp_path}/daemon.db", tmp_path)
    acme = site.tenant(site.daemon(HIPQ_SECRETS_KEY=new_key()))
    acme("PUT", "/v1/{}/secrets/LONG", LONG.encode())
    put(acme, "x", lang, CUT[lang], secrets=["LONG"])
    job = final(acme, acme.add("x", b"x")[0])
    assert (job["code"], "canary" in str(job)) == ("error", False), job
    assert "Error" in str(job) or "Exception" in str(job)
    site.close()


def test_the_daemon_that_has_them_leaves_no_core(tmp_path: Path) -> None:
    site = Site(f"sqlite:///{tmp_path}/daemon.db", tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        daemon = site.daemon(HIPQ_SECRETS_KEY=new_key())
        daemon.process.send_signal(signal.SIGSEGV)
        daemon.process.wait(60)
        assert list(tmp_path.glob("core*")) == []
        subprocess.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"], cwd=tmp_path, check=False)
        is_left = Path("/proc/sys/kernel/core_pattern").read_text().startswith("core") and hard != 0
        assert bool(list(tmp_path.glob("core*"))) == is_left, "others do: this test can fail"
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
        site.close()


# -- keys --------------------------------------------------------------------------------------------------------------
@pytest.fixture
def store(url: str) -> Iterator[Store]:
    found = open_store(url)
    found.migrate()
    yield found
    found.close()


def wants(*names: str, tenant: str = "acme") -> Handler:
    return Handler("h", tenant, "x", "python", "return 1", policy=Policy(secrets=names))


def test_the_key_is_rotated_while_daemons_run(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    old, new = new_key(), new_key()
    file.write_text(old)
    secrets = TenantSecrets(store, SecretKeys(str(file)))
    secrets.set("acme", "A", "the first value")
    made = secrets.new_signing_key("acme")
    file.write_text(f"{new}\n{old}\n")
    assert secrets.of(wants("A")).values == {"A": "the first value"}
    assert (secrets.rekey(), secrets.rekey()) == (2, 0)
    file.write_text(new)
    fresh = TenantSecrets(store, SecretKeys(str(file)))
    assert fresh.of(wants("A")).values == {"A": "the first value"}
    assert [key["id"] for key in fresh.signing_keys("acme")] == [made["id"]]
    file.write_text(old)
    with pytest.raises(CannotRun, match="which this daemon has not"):
        TenantSecrets(store, SecretKeys(str(file))).of(wants("A"))


def test_what_is_in_the_database_cannot_be_moved_to_somebody_else(store: Store, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(new_key())
    keys = SecretKeys(str(tmp_path / "keys"))
    secrets = TenantSecrets(store, keys)
    secrets.set("acme", "A", "what nobody else may have")
    kept = store.notes("secrets")["acme"]
    assert "nobody" not in kept
    store.change_note("secrets", "bob", lambda _: kept)
    store.change_note("secrets", "cyd", lambda _: kept.replace('"A"', '"B"'))
    for tenant, name in (("bob", "A"), ("cyd", "B")):
        with pytest.raises(CannotRun, match="not as it was written"):
            TenantSecrets(store, keys).of(wants(name, tenant=tenant))


def test_a_deleted_secret_is_gone_and_an_unknown_one_never_was(store: Store, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(new_key())
    secrets = TenantSecrets(store, SecretKeys(str(tmp_path / "keys")))
    secrets.set("acme", "A", "the first value")
    assert secrets.of(wants("A")).values == {"A": "the first value"}
    secrets.set("acme", "A", "another value")
    assert secrets.of(wants("A")).values == {"A": "another value"}
    secrets.delete("acme", "A")
    with pytest.raises(CannotRun, match="the secret A is not set"):
        secrets.of(wants("A"))
    with pytest.raises(NotFound):
        secrets.delete("acme", "A")
    assert store.notes("secrets") == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "has no key"), ("hipqkey_short", "has a word that is no key"), ("mistyped", "has a word that is no key"),
     (None, "cannot be read: No such file")],
)  # fmt: skip
def test_keys_that_are_none_are_refused_and_not_shown(text: str | None, why: str, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    if text is not None:
        file.write_text(text)
    with pytest.raises(Invalid, match=why) as refused:
        SecretKeys(str(file)).check()
    assert not text or text not in str(refused.value)


def test_without_a_key_there_are_no_secrets(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIPQ_SECRETS_KEY", raising=False)
    SecretKeys().check()
    with pytest.raises(Invalid, match="this daemon keeps no secrets"):
        TenantSecrets(store, SecretKeys()).set("acme", "A", "long enough")


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("1A", "long enough", "no name of a secret"),
        ("A", "short", "8 characters"),
        ("A", "ann\nhunter2\n", "8 characters at least, in one line"),
        ("A", "x" * 40_000, "32,768 bytes"),
        ("A", "a long\0one", "NUL"),
    ],
)
def test_what_can_be_no_secret(store: Store, name: str, value: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPQ_SECRETS_KEY", new_key())
    with pytest.raises(Invalid, match=why):
        TenantSecrets(store, SecretKeys()).set("acme", name, value)


def test_masks_replace_every_spelling_and_nothing_shows_the_values() -> None:
    secrets = Secrets({"A": CANARY, "L": LINES, "LONGER": f"{CANARY}-and-more"})
    for text in (CANARY, repr(CANARY), f"{CANARY!r}", LINES, "canary-line-two-71cc"):
        assert "canary" not in secrets.mask_text(f"<{text}>"), text
    assert secrets.mask(f"{CANARY}-and-more".encode()) == b"[secret LONGER]"
    assert "canary" not in f"{secrets!r} {secrets}"
    assert Secrets().mask(b"x") == b"x"


@pytest.mark.parametrize("value", [CANARY, "sk-live-12345678", "\xff" * 8, "a secret of 24 character"])
def test_masks_find_what_was_encoded_with_others_around_it(value: str) -> None:
    """As in `Authorization: Basic`, where a name stands before it."""
    secrets = Secrets({"A": value})
    for before in ("", "u", "us", "ann:", "ann:?>"):
        for after in ("", "\n", ";x", "?>?"):
            whole = f"{before}{value}{after}".encode()
            for encode in (b64encode, urlsafe_b64encode):
                masked = secrets.mask(b"<" + encode(whole) + b">")
                assert b"[secret A]" in masked, (before, after)
                assert len(masked) < len(encode(whole)) - len(encode(value.encode())) + 2 + len(b"[secret A]") + 4
            assert (
                secrets.mask(whole.hex().encode())
                == before.encode().hex().encode() + b"[secret A]" + after.encode().hex().encode()
            )
            assert b"[secret A]" in secrets.mask(whole.hex().upper().encode())


def test_a_short_line_of_a_secret_is_masked_where_it_stands_alone() -> None:
    secrets = Secrets({"A": "administrator\n hunter2\nab\n"})
    assert secrets.mask(b"hunter2\n  hunter2 \nab\n") == b"[secret A]\n[secret A]\nab\n"
    assert secrets.mask(b"the hunter2 of the west") == b"the hunter2 of the west"


# -- signed calls ------------------------------------------------------------------------------------------------------
class Target(BaseHTTPRequestHandler):
    calls: list[tuple[dict[str, str], bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        type(self).calls.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def target() -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    Target.calls = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Target) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", Target.calls
        server.shutdown()


def test_calls_of_a_url_are_signed_with_the_two_newest_keys_of_its_tenant(tmp_path: Path, target: Any) -> None:
    where, calls = target
    site = Site(f"sqlite:///{tmp_path}/daemon.db", tmp_path)
    daemon: Daemon = site.daemon("--http-allow", "127.0.0.1:*", HIPQ_SECRETS_KEY=new_key())
    acme, other = site.tenant(daemon), site.tenant(daemon)

    def called(tenant: Tenant) -> tuple[dict[str, str], bytes]:
        put(tenant, "web", "http", where)
        (job_id,) = tenant.add("web", b'{"a": "\xc3\xa9"}')
        final(tenant, job_id)
        headers, body = calls[-1]
        assert headers["hipq-job-id"] == job_id
        return headers, body

    def is_signed(call: tuple[dict[str, str], bytes], times: int) -> Any:
        return len(call[0].get("webhook-signature", "").split()) == times and call

    assert is_signed(called(acme), 0), "who has no key"
    keys = [acme("POST", "/v1/{}/signing-keys").json for _ in range(3)]
    headers, body = eventually(lambda: is_signed(called(acme), 2))  # keys are looked up once a second
    assert headers["webhook-id"] == headers["hipq-job-id"]
    for key in keys[1:]:
        Webhook(key["secret"]).verify(body, headers)
    for wrong in (keys[0]["secret"], other("POST", "/v1/{}/signing-keys").json["secret"]):
        with pytest.raises(Exception, match="No matching signature"):
            Webhook(wrong).verify(body, headers)
    assert [key["id"] for key in acme("GET", "/v1/{}/signing-keys").json["keys"]] == [key["id"] for key in keys[1:]]
    assert acme("DELETE", f"/v1/{{}}/signing-keys/{keys[1]['id']}").status == 200
    assert acme("DELETE", f"/v1/{{}}/signing-keys/{keys[1]['id']}").status == 404
    eventually(lambda: is_signed(called(acme), 1))
    for key in keys:
        assert key["secret"].encode() not in dumped(site.url, tmp_path)
    site.close()
