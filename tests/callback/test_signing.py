"""What is signed is what is read, nothing else is, and keys come and go without ending what is out."""

from __future__ import annotations

import threading
from base64 import urlsafe_b64decode
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from hipq import Hipq, NotFound
from hipq.callback.signing import Expired, Forbidden, SignedClaims, Signer
from hipq.job.model import Row
from hipq.testing.clock import HandClock
from tests.callback.conftest import HOUR

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


class Seconds:
    """A steady clock, turned by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def steady() -> Seconds:
    return Seconds()


@pytest.fixture
def signer(app: Hipq, steady: Seconds) -> Signer:
    return Signer(app.store, "shop", steady)


@pytest.fixture
def row(app: Hipq, charge: Any) -> Row:
    found = app.store.get(charge.enqueue(key="order-17"))
    assert found
    return replace(found, attempt=3)


def check(signer: Signer, token: str, now: int) -> SignedClaims:
    """What a token says; Expired if it is over."""
    claims = signer.read(token)
    if claims.is_over(now):
        raise Expired
    return claims


def test_what_is_signed_is_what_is_read(signer: Signer, row: Row, clock: HandClock) -> None:
    now = clock.now()
    for tenant in ("", "acme", "Ünïcode"):
        token = signer.sign(replace(row, tenant=tenant), now + HOUR + 1)
        assert len(token) < 120
        assert set(token) <= set(ALPHABET + ".")
        claims = check(signer, token, now)
        assert claims[:3] == (tenant, row.id, 3)
        assert now + HOUR + 1 <= claims.expires < now + HOUR + 1_000_001
        assert claims.expires % 1_000_000 == 0


def test_it_expires_at_its_second(signer: Signer, row: Row, clock: HandClock) -> None:
    token = signer.sign(row, 5_000_000)
    assert check(signer, token, 4_999_999).job == row.id
    for now in (5_000_000, clock.now()):
        with pytest.raises(Expired):
            check(signer, token, now)
    assert signer.read(token).expires == 5_000_000


@pytest.mark.parametrize("tenant", ["", "a", "ab"])
def test_no_character_of_it_may_be_another(signer: Signer, row: Row, tenant: str) -> None:
    """Also not one that base64 reads as the same byte."""
    token = signer.sign(replace(row, tenant=tenant), HOUR)
    for place in range(len(token)):
        for other in ALPHABET + ".=é%\n":
            if other != token[place]:
                with pytest.raises(Forbidden):
                    check(signer, token[:place] + other + token[place + 1 :], 0)
        for wrong in (
            token[:place],
            token[place + 1 :],
            token[:place] + token[place + 1 :],
            token[:place] + "A" + token[place:],
        ):
            if wrong != token:
                with pytest.raises(Forbidden):
                    check(signer, wrong, 0)


RUBBISH = [
    "",
    ".",
    "a.b",
    "A" * 5000,
    "A" * 32 + "." + "A" * 43,
    "A" * 33 + "." + "A" * 43,
    "é" * 80,
    "\ud800" * 76,
    "\0",
]


@pytest.mark.parametrize("token", RUBBISH)
def test_rubbish_is_forbidden_like_everything_else(signer: Signer, token: str) -> None:
    with pytest.raises(Forbidden) as raised:
        check(signer, token, 0)
    assert str(raised.value) == "This URL is not one that was signed here."


def test_another_instance_has_other_keys(app: Hipq, signer: Signer, row: Row) -> None:
    with pytest.raises(Forbidden):
        check(Signer(app.store, "bank"), signer.sign(row, HOUR), 0)


def test_processes_that_begin_together_have_one_key(make_app: Callable[[], Hipq], row: Row) -> None:
    signers = [Signer(make_app().store, "shop") for _ in range(4)]
    barrier = threading.Barrier(4)
    tokens: list[str] = []

    def begin(signer: Signer) -> None:
        barrier.wait()
        tokens.append(signer.sign(row, HOUR))

    threads = [threading.Thread(target=begin, args=(one,)) for one in signers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == 4
    assert len(set(tokens)) == 1
    assert all(len(one.keys()) == 1 for one in signers)


# -- rotation --------------------------------------------------------------------------------------------------------
def test_a_rotation_ends_no_url_and_the_second_one_does(signer: Signer, row: Row, clock: HandClock) -> None:
    first = signer.sign(row, HOUR)
    signer.rotate()
    clock.advance(seconds=61)
    second = signer.sign(row, HOUR)
    assert key_of(second) != key_of(first)
    assert check(signer, first, 0) == check(signer, second, 0)
    signer.rotate()
    assert len(signer.keys()) == 2
    assert check(signer, second, 0)
    with pytest.raises(Forbidden):
        check(signer, first, 0)


def key_of(token: str) -> str:
    return urlsafe_b64decode(token[:8])[:4].hex()


def test_a_new_key_signs_when_all_have_looked(signer: Signer, row: Row, clock: HandClock) -> None:
    old = key_of(signer.sign(row, HOUR))
    new = signer.rotate().id
    assert key_of(signer.sign(row, HOUR)) == old
    clock.advance(seconds=59)
    assert key_of(signer.sign(row, HOUR)) == old
    clock.advance(seconds=1)
    assert key_of(signer.sign(row, HOUR)) == new
    assert [seen[0] for seen in list(signer.keys())] == [old, new]


def test_others_know_a_new_key_when_it_signs(
    signer: Signer, make_app: Callable[[], Hipq], row: Row, clock: HandClock, steady: Seconds
) -> None:
    other = Signer(make_app().store, "shop", steady)
    assert check(other, signer.sign(row, HOUR), 0)
    signer.rotate()
    clock.advance(seconds=61)
    token = signer.sign(row, HOUR)
    with pytest.raises(Forbidden):  # no time has passed on the steady clock: it has just looked
        check(other, token, 0)
    assert not other.must_look(token)
    steady.now += 1.1  # an unknown key makes it look again, long before its half minute is over
    assert other.must_look(token)
    assert check(other, token, 0).job == row.id
    assert not other.must_look(token)


def test_a_dropped_key_is_forgotten_within_half_a_minute(
    signer: Signer, make_app: Callable[[], Hipq], row: Row, steady: Seconds
) -> None:
    other = Signer(make_app().store, "shop", steady)
    token = signer.sign(row, HOUR)
    assert check(other, token, 0)
    signer.drop(key_of(token))
    with pytest.raises(Forbidden):
        check(signer, token, 0)
    assert check(other, token, 0)
    steady.now += 30
    with pytest.raises(Forbidden):
        check(other, token, 0)
    assert check(other, signer.sign(row, HOUR), 0), "there is a new one at once"
    with pytest.raises(NotFound):
        signer.drop("00000000")


def test_rubbish_does_not_keep_the_database_busy(
    signer: Signer, row: Row, steady: Seconds, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = signer.sign(row, HOUR)
    looks: list[str] = []
    store = signer._store
    real = store.notes

    def notes(kind: str) -> dict[str, str]:
        looks.append(kind)
        return real(kind)

    monkeypatch.setattr(store, "notes", notes)
    unknown = "A" * 32 + token[32:]
    for _ in range(200):
        steady.now += 0.05
        with pytest.raises(Forbidden):
            signer.read(unknown)
        signer.read(token)
    assert 9 <= len(looks) <= 11


def test_nobody_sees_a_secret(signer: Signer, row: Row, app: Hipq) -> None:
    signer.sign(row, HOUR)
    (key,) = signer._known
    (seen,) = signer.keys()
    assert seen == (key.id, key.made)
    for shown in (repr(signer), repr(key), repr(signer._known), str(seen), repr(key.__rich_repr__())):
        assert "secret" not in shown
        assert repr(key.secret)[2:-1] not in shown
    assert len(key.secret) == 32
    assert list(app.store.notes("signing")) == ["shop"]
