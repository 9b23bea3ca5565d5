"""Templates: only the names there are, and nothing a job brings gets out of its place."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from hipq.errors import Invalid
from hipq.job.json_path import reach, steps
from hipq.requests.template import BodyTemplate, HeaderTemplate, Template, UrlTemplate

VALUES: dict[str, Any] = {
    "key": "order 5/7",
    "id": 12,
    "attempt": 3,
    "callback_url": "https://me/cb?sig=a&b=c",
    "data": {
        "customer": {"name": "Åsa", "emails": ["a@x", "b@y"]},
        "sum": 5.5,
        "paid": False,
        "note": None,
        "7": "seven",
    },
}
JSON = some.recursive(
    some.none() | some.booleans() | some.integers(-(1 << 53), 1 << 53) | some.text(max_size=20),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NASTY = some.one_of(
    some.text(max_size=30),
    some.text(alphabet="./\\%2eEfF?#@:&=;\r\n\x00 {}", max_size=12),
    some.sampled_from(["..", ".", "", "../..", "%2e%2e", "a/../b", "//evil", "@evil.com", "\\..\\", "\ud800"]),
)


# -- texts ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("", ""),
        ("plain", "plain"),
        ("{key}", "order 5/7"),
        ("{id}-{attempt}", "12-3"),
        ("{data.customer.emails.1}", "b@y"),
        ("{data.7}", "seven"),
        ("{{key}}", "{key}"),
        ("{{{key}}}", "{order 5/7}"),
        ("{{}}", "{}"),
        ("{data.sum} {data.paid} {data.note}", "5.5 false null"),
        ("{data.customer.emails}", '["a@x","b@y"]'),
    ],
)
def test_a_template_is_filled(text: str, filled: str) -> None:
    assert Template(text).fill(VALUES) == filled


def test_what_is_filled_in_is_not_a_template() -> None:
    assert Template("{data.x}").fill({"data": {"x": "{key}"}, "key": "k"}) == "{key}"


@pytest.mark.parametrize(
    "text",
    [
        "{", "}", "{}", "{ key }", "{key", "key}", "{Key}", "{key!r}", "{key:>9}", "{key.upper}", "{id.real}", "{0}",
        "{data.}", "{data..x}", "{.data}", "{data[0]}", "{data.x:>9}", "{data.x!r}", "{{key}", "{a{key}}",
        "{data.a b}", "{self}", "{key\n}",
    ],
)  # fmt: skip
def test_anything_else_in_braces_is_refused_when_the_template_is_made(text: str) -> None:
    with pytest.raises(Invalid):
        Template(text)


def test_a_template_must_be_text() -> None:
    with pytest.raises(Invalid, match="a template must be text, not int"):
        Template(5)  # type: ignore[arg-type]


def test_the_sentence_says_which_names_there_are() -> None:
    with pytest.raises(Invalid, match=r"'\{customer\}' is nothing a template knows; there are \{key\}, .*\{data\."):
        Template("{customer}")


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("data.nobody", "nobody"),
        ("data.customer.phone.0", r"customer\.phone"),
        ("data.customer.emails.2", r"customer\.emails\.2"),
        ("data.customer.emails.-1", r"customer\.emails\.-1"),
        ("data.customer.emails.00000000001", r"customer\.emails\.00000000001"),
        ("data.customer.emails.first", r"customer\.emails\.first"),
        ("data.customer.name.0", r"customer\.name\.0"),
        ("data.customer.name.upper", r"customer\.name\.upper"),
        ("data.customer.__class__", r"customer\.__class__"),
        ("data.note.x", r"note\.x"),
    ],
)
def test_a_path_that_leads_nowhere_is_named(path: str, named: str) -> None:
    with pytest.raises(Invalid, match=f"the job's data has no field {named}$"):
        Template(f"{{{path}}}").fill(VALUES)


def test_a_name_without_a_value_is_named() -> None:
    with pytest.raises(Invalid, match=r"there is no callback_url here to fill \{callback_url\} with"):
        Template("{callback_url}").fill({"data": None})


def test_a_template_knows_what_it_needs() -> None:
    assert Template("{key} {data.x} {data.y}").names == {"key", "data"}
    assert UrlTemplate("https://x/{key}?b={callback_url}").names == {"key", "callback_url"}
    assert BodyTemplate({"a": ["{id}"], "b": 5}).names == {"id"}
    assert BodyTemplate(None).names == {"data"}


def test_paths() -> None:
    assert reach({"a": [{"b": 5}]}, steps("a.0.b"), "it") == 5
    for path in ("", ".", "a.", "a b", None, 5):
        with pytest.raises(Invalid, match="a path into JSON is names"):
            steps(path)  # type: ignore[arg-type]


@given(some.text(alphabet="ab{}.", max_size=12))
def test_every_text_is_a_template_or_refused_with_invalid(text: str) -> None:
    try:
        template = Template(text)
    except Invalid:
        return
    assert template.names or template.fill({}) == text.replace("{{", "{").replace("}}", "}")


@given(some.text(max_size=30))
def test_doubled_braces_bring_any_text_through(text: str) -> None:
    assert Template(text.replace("{", "{{").replace("}", "}}")).fill({}) == text


# -- URLs -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("https://x/orders/{key}", "https://x/orders/order%205%2F7"),
        ("http://x:81/a/{id}.json?c={callback_url}&t={attempt}", "http://x:81/a/12.json?c=https%3A%2F%2Fme%2Fcb%3Fsig%3Da%26b%3Dc&t=3"),
        ("https://u:p@[::1]:5/{data.customer.name}", "https://u:p@[::1]:5/%C3%85sa"),
        ("https://x?k={key}", "https://x?k=order%205%2F7"),
        ("https://x/a/../b//c/", "https://x/a/../b//c/"),
        ("https://x/%7B/{{{id}}}", "https://x/%7B/{12}"),
        ("https://x/?j={data.customer.emails}", "https://x/?j=%5B%22a%40x%22%2C%22b%40y%22%5D"),
        ("https://x/?q=a?b/{key}", "https://x/?q=a?b/order%205%2F7"),
    ],
)  # fmt: skip
def test_a_url_is_filled_with_everything_escaped(text: str, filled: str) -> None:
    assert UrlTemplate(text).fill(VALUES) == filled


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("https://{key}/x", "may not choose the server"),
        ("https://{key}.example.com/", "may not choose the server"),
        ("https://x:{id}/", "may not choose the server"),
        ("https://{key}@x/", "may not choose the server"),
        ("https://u:{key}@x/", "may not choose the server"),
        ("https://x{key}", "may not choose the server"),
        ("https://x{key}?a", "may not choose the server"),
        ("https://x{{/", "may not choose the server"),
        ("{key}://x/", "looks like"),
        ("{data.url}", "looks like"),
        ("http{id}://x/", "looks like"),
        ("ftp://x/", "looks like"),
        ("//x/{key}", "looks like"),
        ("https:/x/{key}", "looks like"),
        ("https://x/#{key}", "no # in it"),
        ("https:///{key}", "must name a server"),
        ("https://:80/{key}", "must name a server"),
        ("https://x:port/", "must name a server"),
        ("https://x:99999/", "must name a server"),
        ("https://a\\b/", "must name a server"),
        ("https://a b/", "must name a server"),
        ("https://[::1/", "must name a server"),
        ("https://x/%2{key}", "write %25"),
        ("https://x/?a=%{key}", "write %25"),
    ],
)
def test_a_url_that_a_job_could_bend_is_refused_when_it_is_made(text: str, sentence: str) -> None:
    with pytest.raises(Invalid, match=sentence):
        UrlTemplate(text)


@pytest.mark.parametrize("key", ["..", ".", "../x", "x/..", "a/./b", "\\..", "..\\x"])
def test_a_job_cannot_lead_a_path_upwards(key: str) -> None:
    with pytest.raises(Invalid, match=r"\{key\} in a URL would make it lead elsewhere"):
        UrlTemplate("https://x/a/{key}/b").fill({"key": key})
    assert UrlTemplate("https://x/a?k={key}").fill({"key": key}).startswith("https://x/a?k=")


def test_dots_around_a_place_count_too() -> None:
    for text in ("https://x/.{key}", "https://x/%2e{key}", "https://x/{key}%2E"):
        with pytest.raises(Invalid, match="lead elsewhere"):
            UrlTemplate(text).fill({"key": "."})
    assert UrlTemplate("https://x/{key}").fill({"key": "..."}) == "https://x/..."
    assert UrlTemplate("https://x/{key}").fill({"key": "v1.2"}) == "https://x/v1.2"


def test_a_place_in_a_path_cannot_be_empty() -> None:
    with pytest.raises(Invalid, match=r"\{data.id\} in a URL would be empty"):
        UrlTemplate("https://x/orders/{data.id}").fill({"data": {"id": ""}})
    assert UrlTemplate("https://x/orders/?id={data.id}").fill({"data": {"id": ""}}) == "https://x/orders/?id="


@given(NASTY, NASTY, NASTY)
@example("..", "x", "x")
@example("a", "..", "&admin=1")
def test_no_value_changes_the_server_the_segments_or_the_fields_of_a_url(one: str, two: str, three: str) -> None:
    template = UrlTemplate("https://user@shop.example:8443/v1/{key}/x-{data.two}.json?a={data.three}&b=1")
    try:
        url = template.fill({"key": one, "data": {"two": two, "three": three}})
    except Invalid:
        return
    parts = urlsplit(url)
    assert url.isascii()
    assert url.isprintable()
    assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "user@shop.example:8443", "")
    segments = parts.path.split("/")
    assert [unquote(segment) for segment in segments] == ["", "v1", one, f"x-{two}.json"]
    assert parse_qs(parts.query, keep_blank_values=True) == {"a": [three], "b": ["1"]}


@given(NASTY)
def test_httpx_sends_it_where_it_says(value: str) -> None:
    httpx2 = pytest.importorskip("httpx2")
    try:
        url = httpx2.URL(UrlTemplate("https://shop.example/v1/{key}/pay?k={key}").fill({"key": value}))
    except Invalid:
        return
    assert (url.host, url.port, url.userinfo, url.fragment) == ("shop.example", None, b"", "")
    path, _, query = url.raw_path.decode().partition("?")
    assert path.startswith("/v1/")
    assert path.endswith("/pay")
    assert path.count("/") == 3
    assert "&" not in query


# -- headers ----------------------------------------------------------------------------------------------------------
def test_a_header_is_filled_as_text() -> None:
    assert HeaderTemplate("Bearer {data.customer.name}-{id}", "x-a").fill(VALUES) == "Bearer Åsa-12"


@pytest.mark.parametrize("value", ["a\r\nx: 1", "a\n", "a\r", "\x00"])
def test_a_header_with_a_line_break_is_refused(value: str) -> None:
    with pytest.raises(Invalid, match="the header x-a would contain a line break or a NUL"):
        HeaderTemplate("{key}", "x-a").fill({"key": value})
    with pytest.raises(Invalid, match="would contain a line break or a NUL"):
        HeaderTemplate(value, "x-a")


def test_a_header_outside_latin_1_is_refused_without_showing_it() -> None:
    with pytest.raises(Invalid, match="the header x-a would contain characters outside Latin-1") as error:
        HeaderTemplate("secret={key}", "x-a").fill({"key": "注文-secret"})
    assert "secret" not in str(error.value)


@given(NASTY)
def test_no_value_adds_a_header(value: str) -> None:
    try:
        filled = HeaderTemplate("a {key} b", "x-a").fill({"key": value})
    except Invalid:
        return
    assert len(filled.encode("latin-1").split(b"\n")) == len(filled.encode("latin-1").split(b"\r")) == 1


# -- bodies -----------------------------------------------------------------------------------------------------------
def test_a_body_keeps_the_types_of_what_fills_it() -> None:
    template = BodyTemplate(
        {
            "ref": "{key}", "n": "{id}", "text": "no {id} of {data.customer.emails}", "who": "{data.customer}",
            "nothing": None, "list": ["{data.paid}", 5, 1.5, True, "{{x}}"], "{key}": "as it is",
        }
    )  # fmt: skip
    assert template.fill(VALUES) == {
        "ref": "order 5/7", "n": 12, "text": 'no 12 of ["a@x","b@y"]', "who": VALUES["data"]["customer"],
        "nothing": None, "list": [False, 5, 1.5, True, "{x}"], "{key}": "as it is",
    }  # fmt: skip


@given(JSON)
def test_without_a_template_the_body_is_the_data(data: Any) -> None:
    assert BodyTemplate().fill({"data": data}) == data
    assert BodyTemplate("{data}").fill({"data": data}) == data


@given(JSON)
def test_a_body_without_places_is_what_it_says(body: Any) -> None:
    def doubled(value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("{", "{{").replace("}", "}}")
        if isinstance(value, list):
            return [doubled(item) for item in value]
        return {name: doubled(item) for name, item in value.items()} if isinstance(value, dict) else value

    if body is None or "\\u0000" in repr(body) or "\x00" in str(body):
        return
    try:
        template = BodyTemplate(doubled(body))
    except Invalid:  # a NUL or a lone surrogate
        return
    assert template.fill({}) == body


def test_a_body_that_is_no_json_or_has_a_bad_template_in_it_is_refused_when_it_is_made() -> None:
    for body in ({"a": ["{nobody}"]}, {"a": object()}, {"a": float("nan")}, "{"):
        with pytest.raises(Invalid):
            BodyTemplate(body)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(Invalid, match="nested deeper"):
        BodyTemplate(endless)
