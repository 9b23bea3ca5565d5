"""What RELIABILITY.md calls bad input, and its good neighbours: for the library's tests and the command line's."""

from __future__ import annotations

from typing import Final

BAD_JSON: Final = {
    "NaN": "NaN",
    "NaN inside": '{"a": [1, NaN]}',
    "Infinity": "Infinity",
    "-Infinity": "[-Infinity]",
    "1e999": "1e999",
    "-1e999 inside": '{"a": -1e999}',
    "400 digits and a point": "9" * 400 + ".5",
    "2^63": str(1 << 63),
    "-2^63-1": str(-(1 << 63) - 1),
    "4,300 digits": "9" * 4_300,
    "5,000 digits inside": '{"a": [' + "9" * 5_000 + "]}",
    "100,000 levels": "[" * 100_000 + "]" * 100_000,
    "100,000 levels of objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "100,000 levels, never closed": "[" * 100_000,
    "150 levels": "[" * 150 + "]" * 150,
    "a lone surrogate": '"\\ud800"',
    "two surrogates the wrong way round": '"\\udc00\\ud800"',
    "a lone surrogate as a name": '{"\\udfff": 1}',
    "NUL": '"a\\u0000b"',
    "NUL in a name": '{"a\\u0000b": 1}',
    "a key twice": '{"a": 1, "a": 2}',
    "a key twice inside": '[{"b": {"a": 1, "a": 1}}]',
    "nothing": "",
    "a space": " ",
    "half an object": '{"a": 1',
    "two values": "1 2",
    "single quotes": "{'a': 1}",
    "a raw newline in a string": '"a\nb"',
    "a word": "undefined",
    "a comma too many": "[1,]",
}

BAD_BYTES: Final = {
    "UTF-16": '"a"'.encode("utf-16"),
    "UTF-16, no mark": '"a"'.encode("utf-16-le"),
    "UTF-16, big": '{"a": 1}'.encode("utf-16-be"),
    "UTF-32": '"a"'.encode("utf-32"),
    "a byte order mark": b'\xef\xbb\xbf"a"',
    "not UTF-8": b'"\xff"',
    "a surrogate in UTF-8": b'"\xed\xa0\x80"',
    "an overlong NUL": b'"\xc0\x80"',
    "a raw NUL": b'"a\x00b"',
    "only NUL": b"\x00" * 16,
    "one byte too many": b'"' + b"a" * (16 << 20) + b'"',
    "white space without end": b" " * (17 << 20),
}

BAD_NAMES: Final = {
    "empty": "",
    "64 KB": "a" * 65_536,
    "a bar": "a|b",
    "a comma": "a,b",
    "a newline": "a\nb",
    "a newline at the end": "a\n",
    "NUL": "a\x00b",
    "a coded NUL": "a%00",
    "a path": "../a",
    "right to left": "\u202egnp.a",
    "Hebrew": "שלום",
    "a space": "a b",
    "a quote": 'a"b',
    "SQL": "a; DROP TABLE b",
    "a star": "a*",
    "an accent": "é",
    "a lone surrogate": "a\ud800",
    "a colon": "a:b",
}

BAD_KEYS: Final = {
    "empty": "",
    "501 characters": "a" * 501,
    "64 KB": "a" * 65_536,
    "a newline": "a\nb",
    "NUL": "a\x00b",
    "right to left": "\u202egnp.a",
    "an invisible space": "a\u200bb",
    "delete": "a\x7f",
    "a lone surrogate": "a\ud800",
    "a line separator": "a\u2028b",
}

GOOD_KEYS: Final = {
    "a bar": "a|b",
    "a comma": "a,b",
    "a coded NUL": "%00",
    "a path": "../../etc/passwd",
    "Hebrew": "שלום",
    "SQL": "'; DROP TABLE shop_orders; --",
    "a space": " ",
    "500 characters": "a" * 500,
    "500 large characters": "".join(chr(0x20000 + n * 37) for n in range(500)),
    "a number": "1234567890123456",
    "a dash": "-",
}

GOOD_JSON: Final = {
    "2^63-1": str((1 << 63) - 1),
    "-2^63": str(-(1 << 63)),
    "a large float": "1e308",
    "a small float": "5e-324",
    "null": "null",
    "an empty name": '{"": 1}',
    "100 levels": "[" * 100 + "]" * 100,
    "emoji by surrogates": '"\\ud83d\\ude00"',
    "line separators": '"\u2028\u2029\u202e\\u0001"',
    "text of digits": '"' + "9" * 5_000 + '"',
    "a long text": '"' + "é" * 20_000 + '"',
    "what a database may choke on": '"\\\\ \\" % $1 ? :a {live} \'"',
}

BAD_MOMENTS: Final = (
    "0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "10000-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-12:00", "-001-01-01T00:00:00Z", "2031-02-30T00:00:00Z",
    "2031-01-15T08:00:00", "2031-01-15", "20310115T080000", "2031-01-15T08:00:00+99:00", "tomorrow", "", "1700000000",
    "a" * 65_536,
)  # fmt: skip
BAD_DURATIONS: Final = (
    "-1", "NaN", "inf", "1e999", "1e3", str(1 << 63), "9" * 5_000, "9" * 5_000 + "d", "1 d", "1y", "", "²", "١",
    "1.5.5", "36600d", "a" * 65_536,
)  # fmt: skip
BAD_PRIORITIES: Final = (
    "-2147483649",
    "2147483648",
    str(1 << 63),
    "9" * 5_000,
    "1.5",
    "NaN",
    "1e3",
    "",
    "high",
    "a" * 65_536,
)
BAD_ATTEMPTS: Final = (
    "0",
    "-1",
    str(1 << 31),
    str(1 << 63),
    "9" * 5_000,
    "1.5",
    "NaN",
    "1e999",
    "",
    "first",
    "a" * 65_536,
)
BAD_NUMBERS: Final = ("0", str(1 << 63), "9" * 5_000, "1.5", "NaN", "1e999", "", "a", "a\x00b", "a\ud800", "a" * 65_536)
"""Of jobs and of answers; those below 0 need a -- before them."""
