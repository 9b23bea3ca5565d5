"""/docs: a page for people, made from the table of routes, on which each route can be tried.

The page needs nothing from elsewhere: its style and its script are in it, and allowed by their hashes.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Final

from hipq import __version__
from hipq.daemon.http.job_json import Schema
from hipq.daemon.http.openapi import TAGS
from hipq.daemon.http.reply import Reply
from hipq.daemon.http.routes_table import Route

_ABOUT: Final = (
    '<p>Every route of this daemon, to read and to try. For programs: <a href="/openapi.json">openapi.json</a>. '
    "Requests need <code>Authorization: Bearer TOKEN</code>, but for this page, that description, "
    '<code>/health</code> and <code>/ready</code>. Errors are <code>{"error": "a sentence"}</code>.'
)
_TOKEN: Final = (
    '<form id="login"><label for="token">Token</label> <input id="token" type="password" autocomplete="off" '
    'placeholder="hipq token create makes one"> <button>Use</button> <output></output></form>'
)


def page(routes: Sequence[Route]) -> Reply:
    style, script = (files(__package__).joinpath(f"docs_page.{kind}").read_text("utf-8") for kind in ("css", "js"))
    parts = [
        f"<h2>{escape(about)}</h2>" + "".join(_section(route) for route in routes if route.tag == tag)
        for tag, about in TAGS.items()
    ]
    html = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>hipq</title><style>{style}</style><body><header><h1>hipq {escape(__version__)}</h1>{_TOKEN}</header>"
        f"<main>{_ABOUT}{''.join(parts)}</main><script>{script}</script></html>"
    )
    policy = (
        b"default-src 'none'; style-src 'sha256-%s'; script-src 'sha256-%s'; connect-src 'self'; base-uri 'none'; "
        b"form-action 'none'; frame-ancestors 'none'"
    ) % tuple(b64encode(sha256(text.encode()).digest()) for text in (style, script))
    return Reply(200, html.encode(), b"text/html; charset=utf-8", ((b"content-security-policy", policy),))


def _section(route: Route) -> str:
    title, _, rest = route.about.partition(". ")
    replies = "".join(f"<li><b>{one.status}</b> {escape(one.about)}" for one in route.gives)
    endless = any(one.kind == "text/event-stream" for one in route.gives)  # for programs: a reply that never ends
    return (
        f"<details><summary><b>{route.method}</b> <code>{escape(route.path)}</code> {escape(title.rstrip('.'))}"
        f"</summary>{f'<p>{escape(rest)}' if rest else ''}"
        f'<form data-method="{route.method}" data-path="{escape(route.path)}">'
        f"{''.join(_field(*one) for one in route.parameters())}{_body(route)}"
        f"{'' if endless else '<button>Send</button> <output></output><pre hidden></pre>'}</form>"
        f"<ul>{replies}<li>also {', '.join(map(str, route.refusals()))}</ul></details>"
    )


def _field(where: str, name: str, about: str, schema: Schema) -> str:
    values = schema.get("enum", ["true", "false"] if schema.get("type") == "boolean" else [])
    named = f'name="{name}" data-in="{where}"{" required" if where == "path" else ""}'
    field = f"<select {named}>{_options(['', *filter(None, values)])}</select>" if values else f"<input {named}>"
    said = f"A header. {about}" if where == "header" else about
    return f"<label><code>{name}</code>{field}<span>{escape(said)}</span></label>"


def _body(route: Route) -> str:
    if route.accepts is None:
        return ""
    return (
        f'<label><code>body</code><select name="kind">{_options(list(route.accepts.kinds))}</select></label>'
        '<textarea name="body" rows="4" aria-label="body"></textarea>'
    )


def _options(values: Sequence[str]) -> str:
    return "".join(f"<option>{escape(value)}</option>" for value in values)
