"""Standard Webhooks, beside the reference library: each verifies what the other has signed."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from hipq import Invalid
from hipq.transports.webhooks import BadSignature, WebhookSecrets

SECRET = f"whsec_{b64encode(bytes(range(24))).decode()}"
OTHER = f"whsec_{b64encode(bytes(range(1, 33))).decode()}"
BODY = '{"status": "paid", "text": "ü"}'.encode()


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> WebhookSecrets:
    monkeypatch.setenv("BANK_SECRET", SECRET)
    return WebhookSecrets("BANK_SECRET", "secret")


def now() -> int:
    return int(datetime.now(UTC).timestamp())


def theirs(secret: str = SECRET, message_id: str = "msg_1", at: int = 0, body: bytes = BODY) -> dict[str, str]:
    """The headers that the reference library makes."""
    at = at or now()
    signature = Webhook(secret).sign(message_id, datetime.fromtimestamp(at, UTC), body.decode())
    return {"webhook-id": message_id, "webhook-timestamp": str(at), "webhook-signature": signature}


def test_the_reference_library_verifies_what_is_signed_here(secrets: WebhookSecrets) -> None:
    headers = secrets.sign("msg_1", now(), BODY)
    assert Webhook(SECRET).verify(BODY, headers) == {"status": "paid", "text": "ü"}
    for changed in (BODY + b" ", b""):
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(changed, headers)


def test_what_the_reference_library_signs_is_verified_here(secrets: WebhookSecrets) -> None:
    assert secrets.verify(theirs(), BODY, now()) == "msg_1"


def test_the_example_of_the_specification_is_signed_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BANK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = WebhookSecrets("BANK_SECRET", "sign").sign(
        "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_several_secrets_are_a_rotation_both_ways(secrets: WebhookSecrets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BANK_SECRET", f" {OTHER}  {SECRET.rstrip('=')} ")
    signed = secrets.sign("msg_1", now(), BODY)
    assert signed["webhook-signature"].count("v1,") == 2
    for one in (SECRET, OTHER):
        assert secrets.verify(theirs(one), BODY, now()) == "msg_1"
        Webhook(one).verify(BODY, signed)
    monkeypatch.setenv("BANK_SECRET", OTHER)
    with pytest.raises(BadSignature):
        secrets.verify(theirs(SECRET), BODY, now())
    both = {
        **theirs(),
        "webhook-signature": f"v1a,xyz {theirs()['webhook-signature']} {theirs(OTHER)['webhook-signature']}",
    }
    assert secrets.verify(both, BODY, now()) == "msg_1", "its sender changes its secret"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"webhook-id": ""}, "has the headers webhook-id, webhook-timestamp and webhook-signature"),
        ({"webhook-signature": ""}, "has the headers webhook-id, webhook-timestamp and webhook-signature"),
        ({"webhook-timestamp": ""}, "has the headers webhook-id, webhook-timestamp and webhook-signature"),
        ({"webhook-id": "msg_2"}, "is not by the secret of this webhook, or its body was changed"),
        ({"webhook-id": "msg.1"}, "its webhook-id has a dot"),
        ({"webhook-timestamp": "1e9"}, "is no number of seconds"),
        ({"webhook-timestamp": "-5"}, "is no number of seconds"),
        ({"webhook-timestamp": "9" * 5000}, "is no number of seconds"),
        ({"webhook-timestamp": "later"}, "is not by the secret"),
        (
            {"webhook-signature": "v1a,abc v2,abc abc"},
            "has none of the kind v1, the one that is understood (v1a is not)",
        ),
        ({"webhook-signature": "v1,"}, "is not by the secret"),
        ({"webhook-signature": "v1,\xff"}, "is not by the secret"),
        ({"webhook-signature": theirs(OTHER)["webhook-signature"]}, "is not by the secret"),
    ],
)
def test_what_is_not_right_is_refused(secrets: WebhookSecrets, change: dict[str, str], sentence: str) -> None:
    given = theirs()
    if change == {"webhook-timestamp": "later"}:
        change = {"webhook-timestamp": str(int(given["webhook-timestamp"]) + 1)}
    with pytest.raises(BadSignature) as refused:
        secrets.verify({**given, **change}, BODY, now())
    assert sentence in str(refused.value)


def test_a_changed_body_is_refused(secrets: WebhookSecrets) -> None:
    for body in (BODY + b" ", BODY[:-1], b""):
        with pytest.raises(BadSignature, match="its body was changed"):
            secrets.verify(theirs(), body, now())


def test_a_time_is_good_for_five_minutes_either_way(secrets: WebhookSecrets) -> None:
    for difference in (-300, 0, 300):
        assert secrets.verify(theirs(at=10_000), BODY, 10_000 + difference) == "msg_1"
    for difference, said in ((301, "too old"), (-301, "in the future")):
        with pytest.raises(BadSignature, match=said):
            secrets.verify(theirs(at=10_000), BODY, 10_000 + difference)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (None, "$BANK_SECRET is not set: it must have the secret of a webhook, whsec_…"),
        (" ", "$BANK_SECRET is not set"),
        ("hunter2", "$BANK_SECRET must have whsec_ and at least 24 bytes in base64"),
        (SECRET.removeprefix("whsec_"), "$BANK_SECRET must have whsec_ and"),
        (f"{SECRET} whsec_hunter2=?", "$BANK_SECRET must have whsec_ and"),
        (f"whsec_{b64encode(bytes(23)).decode()}", "at least 24 bytes"),
        ("whpk_aGVsbG8=", "$BANK_SECRET has a key of ed25519: ask for a symmetric secret, whsec_…"),
        ("whsk_aGVsbG8=", "$BANK_SECRET has a key of ed25519"),
    ],
)
def test_a_bad_secret_is_named_and_never_shown(
    secrets: WebhookSecrets, monkeypatch: pytest.MonkeyPatch, value: str | None, sentence: str
) -> None:
    monkeypatch.delenv("BANK_SECRET") if value is None else monkeypatch.setenv("BANK_SECRET", value)
    for use in (secrets.check, lambda: secrets.sign("a", 1, b""), lambda: secrets.verify(theirs(), BODY, now())):
        with pytest.raises(Invalid) as refused:
            use()
        assert sentence in str(refused.value)
        assert not value or not value.strip() or value.split()[-1] not in str(refused.value)
    assert repr(secrets) == "<WebhookSecrets $BANK_SECRET>"


@pytest.mark.parametrize("given", [SECRET, "whsec_abc", "whsk_abc", "", "a b", "1a", None, b"BANK"])
def test_a_secret_in_the_code_is_refused_and_not_shown(given: object) -> None:
    with pytest.raises(Invalid) as refused:
        WebhookSecrets(given, "sign")  # type: ignore[arg-type]
    assert str(refused.value) == "sign is the name of the environment variable that has the secret, like BANK_SECRET"
