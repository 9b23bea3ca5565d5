"""What can never be a handler is refused in one sentence."""

from __future__ import annotations

import msgspec
import pytest

from hipq.errors import Invalid
from hipq.sandbox import Handler, check

GOOD = Handler("1", "acme", "resize.v2", "python", "return 1")


@pytest.mark.parametrize(
    "changes",
    [{}, {"lang": "node"}, {"lang": "php"}, {"lang": "shell"}, {"eid": "images", "before": "x = 1"},
     {"body": "return ("}, {"lang": "http", "body": "https://shop.example:8443/jobs?x=%20"}, {"lang": "http", "body": "http://[::1]/"},
     {"body": "x" * 1_000_000}, {"body": "# ü"}],
)  # fmt: skip
def test_good_ones_are_accepted(changes: dict[str, str]) -> None:
    check(msgspec.structs.replace(GOOD, **changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lang": "cobol"}, "no language 'cobol'"), ({"lang": ""}, "no language"), ({"body": ""}, "needs a body"),
        ({"body": " \n"}, "needs a body"), ({"body": "x" * 1_000_001}, "1,000,000 bytes"),
        ({"body": "x" * 600_000, "before": "y" * 600_000}, "1,000,000 bytes"), ({"body": "a\0b"}, "NUL"),
        ({"beforeEach": "\0"}, "NUL"), ({"body": "\ud800"}, "half a character"), ({"type": "a b"}, "no jobtype"),
        ({"type": ""}, "no jobtype"), ({"type": "x" * 201}, "no jobtype"), ({"type": "../x"}, "no jobtype"),
        ({"type": "x\n"}, "no jobtype"), ({"eid": "a/b"}, "no engine id"), ({"tenant": ""}, "needs its tenant"),
        ({"id": ""}, "needs its id"), ({"body": 7}, "is text"),
        ({"lang": "http", "body": "ftp://x/"}, "http:// or https://"), ({"lang": "http", "body": "/x"}, "http:// or"),
        ({"lang": "http", "body": "http://"}, "no host"), ({"lang": "http", "body": "http://x:0/"}, "no host"),
        ({"lang": "http", "body": "http://x:99999/"}, "no URL"), ({"lang": "http", "body": "http://x:y/"}, "no URL"),
        ({"lang": "http", "body": "http://[::1/"}, "no URL"), ({"lang": "http", "body": "http://a b/"}, "no URL"),
        ({"lang": "http", "body": "http://x/\r\nHost: y"}, "no URL"), ({"lang": "http", "body": "http://ü/"}, "no URL"),
        ({"lang": "http", "body": "http://u:p@x/"}, "password"), ({"lang": "http", "body": "http://x\\@y/"}, "no URL"),
        ({"lang": "http", "body": "http://x/" + "y" * 8000}, "8,000"),
        ({"lang": "http", "body": "http://x/", "before": "y"}, "no before"),
    ],
)  # fmt: skip
def test_bad_ones_are_refused_in_one_sentence(changes: dict[str, str], words: str) -> None:
    with pytest.raises(Invalid, match=words) as caught:
        check(msgspec.structs.replace(GOOD, **changes))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_handler_is_the_seed_s_json() -> None:
    """And what hipq adds to that."""
    assert set(msgspec.to_builtins(GOOD)) == {
        "id", "tenant", "type", "lang", "body", "eid", "before", "beforeEach", "afterEach", "dt",
    } | {"deleted", "waits", "policy"}  # fmt: skip
