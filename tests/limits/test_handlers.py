"""PerHandler: a limit of single lanes, which the daemon sets."""

from __future__ import annotations

from hipq.limits.admission import Admission
from hipq.limits.handlers import PerHandler
from hipq.limits.limit import limit
from hipq.limits.rules import Rules, load, refusal
from hipq.limits.tenants import PerTenant

LIMIT = PerHandler({"acme/mail": 2})


def test_only_lanes_that_it_names_count_each_by_itself() -> None:
    held = {"acme/mail": 1000, "acme/web": 9000, "bob/mail": 9000}
    admission = Admission(Rules(limits=(PerTenant({"bob": 10}), LIMIT)), (), held, "{}", 1)
    assert admission.admits("mail", "acme/mail", 1000, ("1", 1))
    assert not admission.admits("mail", "acme/mail", 1000, ("1", 2))
    assert admission.admits("web", "acme/web", 1000, ("1", 3))
    assert admission.admits("mail", "bob/mail", 1000, ("1", 4))


def test_it_is_kept_in_the_store_beside_an_operators_limits() -> None:
    rules = Rules(limits=(LIMIT,), changed=(limit(5),))
    assert load(rules.dump()) == rules
    assert rules.in_force == (limit(5), LIMIT)
    assert str(LIMIT) == "handlers acme/mail 2"
    assert refusal(rules, "acme/mail", 3000) == "throttle_factor 3 is above what its handler may run at a time"
