"""A token is a secret: what was shown once is in no log, no database, no journal and no page."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from tests.daemon.api_serving import Site, Tenant, eventually
from tests.daemon.test_operators import session
from tests.databases import STORES, fresh
from tests.stores.dumped import dumped


@pytest.mark.parametrize("store", STORES)
def test_no_token_is_found_anywhere(store: str, tmp_path: Path) -> None:
    with fresh(store, tmp_path / "daemon.db") as url:
        here = Site(url, tmp_path)
        daemon = here.daemon("--log-level", "debug", "--job-log", str(tmp_path / "jobs.jsonl"))
        secrets = _used(here)
        seen = here.admin()
        pages = [seen("GET", path).body for path in ("/v1/tokens", "/v1/audit?limit=1000", "/metrics", "/v1/tenants")]
        assert sha256(secrets[0].encode()).hexdigest().encode() in dumped(url), "which is all that is kept"
        assert daemon.stop() == 0
        files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        assert any("journal" in str(path) for path in files)
        for secret in secrets:
            for part in (secret.encode(), secret.removeprefix("hipq_").encode()):
                assert [path for path, text in files.items() if part in text] == []
                assert part not in dumped(url)
                assert not any(part in page for page in pages)
        here.close()


def _used(here: Site) -> list[str]:
    """Tokens that were made in every way there is, and used: well, wrongly, and when they were good no more."""
    tenant = here.tenant()
    boss = here.admin()
    made = boss("POST", "/v1/tokens", {"tenant": tenant.name, "roles": ["post"], "name": "shop"}).json
    rotated = boss("POST", f"/v1/tokens/{made['id']}/rotate").json
    for secret in (made["token"], rotated["token"]):
        poster = Tenant(tenant.daemon, tenant.name, secret)
        assert poster("POST", "/{}/job/mail/add", b"x").status == 200
        assert poster("PUT", "/v1/{}/handlers/mail", {"lang": "python", "body": "return 1"}).status == 403
        assert poster("GET", f"/v1/tokens?tenant={secret}").status == 404
    boss("DELETE", f"/v1/tokens/{made['id']}")
    eventually(lambda: Tenant(tenant.daemon, tenant.name, made["token"])("GET", "/v1/whoami").status == 401)
    wrong = f"hipq_{'canary' * 7}"
    assert Tenant(tenant.daemon, tenant.name, wrong)("GET", "/v1/whoami").status == 401
    assert session(tenant.daemon, boss.token)[0] == 200
    assert session(tenant.daemon, wrong)[0] == 403
    here.tenants.uses.save()
    return [tenant.token, boss.token, made["token"], rotated["token"], wrong]
