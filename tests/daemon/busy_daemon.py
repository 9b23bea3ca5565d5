"""A daemon that tenants use, and its pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from hipq.daemon.daemon import Daemon
from hipq.daemon.dashboard.pages import pages_of
from hipq.daemon.tenancy.tenants import Quotas
from hipq.daemon.tenancy.tokens import Role as TokenRole
from hipq.dashboard.application import Dashboard
from hipq.dashboard.gate import Gate
from hipq.dashboard.site import Site
from hipq.dashboard.visit import Role, Visitor
from hipq.sandbox.policy import Policy, RetryPolicy
from tests.daemon.working import add, daemon, ended, python, row
from tests.dashboard.serving import Served
from tests.engine.working import until

INVOICE: Final = "import json\n\norder = json.loads(payload)\nprint('invoice for', order['customer'])\nreturn {total}"


class BusyDaemon(NamedTuple):
    daemon: Daemon
    address: str
    paths: dict[str, list[str]]
    """Where each pattern of its pages leads; more than once where a page has several faces."""


@contextmanager
def busy_daemon(folder: Path) -> Iterator[BusyDaemon]:
    with daemon(folder, retry_after=3600.0, retry_most=3600.0) as found:
        paths = _filled(found)
        gate = Gate(is_hosted=True)
        dashboard = Dashboard(Site([found.app], gate=gate, more=pages_of(found)), lambda _: Visitor("ada", Role.ADMIN))
        served = Served(dashboard)
        try:
            yield BusyDaemon(found, served.address, paths)
        finally:
            dashboard.stop()
            served.stop()


def _filled(found: Daemon) -> dict[str, list[str]]:
    found.tenants.add("acme", weight=3, quotas=Quotas(waiting=10_000, bytes=50_000_000, running=4, kept=100_000))
    found.tenants.add("zeta", quotas=Quotas(waiting=20, rate=50))
    found.tenants.token("acme", "the shop's own", roles=[TokenRole.POST, TokenRole.READ])
    found.tenants.token("acme", "deployment", roles=[TokenRole.DEPLOY])
    found.tenants.known()
    old = found.handlers.set("acme", "invoice", lang="python", body=INVOICE.format(total="order['total']"))
    policy = Policy(memory=128, retry=RetryPolicy(attempts=5), network=("bank.example",))
    total = "round(order['total'] * 1.22, 2)"
    new = found.handlers.set("acme", "invoice", lang="python", body=INVOICE.format(total=total), policy=policy)
    python(found, "remind", "raise ValueError('the customer has no address')")
    found.handlers.set("zeta", "sync", lang="http", body="https://zeta.example/hooks/sync")
    paid = add(found, "invoice", *(b'{"customer": "c-%d", "total": %d}' % (n, 10 * n) for n in range(12)))
    reminded = add(found, "remind", b"c-17", b"c-18")
    add(found, "invoice", *[b'{"customer": "c-99", "total": 5}'] * 40, delay=3600)
    add(found, "sync", *[b"{}"] * 15, tenant="zeta", delay=7200)
    for one in paid:
        ended(found, one)
    until(lambda: all(row(found, one).failures == 1 for one in reminded))
    return {
        "/tenants": ["/tenants"],
        "/tenants/{name}": ["/tenants/acme", "/tenants/zeta"],
        "/handlers": ["/handlers", "/handlers?tenant=zeta"],
        "/handlers/{tenant}/{type}": [
            f"/handlers/acme/invoice?version={new.id}&against={old.id}", "/handlers/acme/remind", "/handlers/zeta/sync",
        ],
        "/journal": ["/journal"],
        "/jobs/{id}": [f"/jobs/{paid[0]}", f"/jobs/{reminded[0]}"],
    }  # fmt: skip
