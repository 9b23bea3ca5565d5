"""The OpenAPI description, and a page for people: both made from the table of routes."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from typing import Any, Final

import msgspec

from hipq import __version__
from hipq.daemon.http.reply import Reply
from hipq.daemon.http.routes_table import PATH, Query, Route, Schema

TITLE: Final = "hipq"
_WHY: Final = {
    400: "Something in the request is wrong.",
    401: "There is no token, or it is not good.",
    404: "It does not exist, or is another tenant's.",
    408: "The body took too long to come.",
    409: "It is in the way of something else.",
    410: "It comes too late.",
    413: "It is too large.",
    415: "It is encoded in a way that is not taken.",
    422: "The same Idempotency-Key came with another body.",
    429: "Too much for now: Retry-After says when to try again.",
    431: "The head is too large.",
    503: "Not now: try again.",
    507: "The disk is full.",
}
_ALWAYS: Final = (400, 408, 413, 415, 431, 503)
_STYLE: Final = (
    "body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code{background:#eee;padding:.1rem .3rem}h2{margin-top:2rem;font-size:1.1rem}li{margin:.2rem 0}"
)
_SCRIPT: Final = """\
const token = document.getElementById("token");
for (const box of document.querySelectorAll("[data-path]")) {
  const said = name => box.querySelector(`[name="${name}"]`);
  box.querySelector("button").onclick = async () => {
    const path = box.dataset.path.replace(/{(\\w+)}/g, (_, name) => encodeURIComponent(said(name).value));
    const options = {method: box.dataset.method, headers: {}};
    if (token.value) options.headers.Authorization = "Bearer " + token.value.trim();
    if (said("body") && said("body").value) {
      options.body = said("body").value;
      options.headers["Content-Type"] = said("kind").value;
    }
    const shown = box.querySelector("pre");
    try {
      const reply = await fetch(path + (said("query").value ? "?" + said("query").value : ""), options);
      shown.textContent = reply.status + "\\n" + await reply.text();
    } catch (error) {
      shown.textContent = String(error);
    }
  };
}
"""
"""Sends what is entered, with the token, and shows the reply. The token is kept nowhere but in its field."""
_STYLE_HASH, _SCRIPT_HASH = (b64encode(sha256(text.encode()).digest()) for text in (_STYLE, _SCRIPT))
_TAGS: Final = {
    "seed": "The routes of the first design",
    "jobs": "Jobs, results and answers",
    "handlers": "Handlers",
    "queues": "Queues and events",
    "about": "The daemon itself",
}


# -- for programs ----------------------------------------------------------------------------------------------------
def document(routes: Sequence[Route]) -> bytes:
    """OpenAPI 3.1."""
    from hipq.daemon.http.new_job import NewJob
    from hipq.daemon.http.routes_handlers import NewHandler

    _, schemas = msgspec.json.schema_components([NewJob, NewHandler], ref_template="#/components/schemas/{name}")
    for schema in schemas.values():
        for one in schema.get("properties", {}).values():
            if one.get("default") == "":
                del one["default"]  # it says "not given", and would not be allowed if it was
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = operation(route)
    error = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
    return msgspec.json.encode({
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": __version__, "description": "A durable job queue over HTTP."},
        "security": [{"token": []}],
        "tags": [{"name": name, "description": about} for name, about in _TAGS.items()],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {**schemas, "Error": error},
        },
    })  # fmt: skip


def operation(route: Route) -> dict[str, Any]:
    title, _, rest = route.about.partition(". ")
    found: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{route.path}").strip("_"),
        "summary": title.rstrip(".") + ".",
        "tags": [route.tag],
        "parameters": _parameters(route),
        "responses": _responses(route),
    }
    if rest:
        found["description"] = rest
    if route.who == "anybody":
        found["security"] = []
    if route.accepts:
        content = {kind: {"schema": schema} for kind, schema in route.accepts.kinds.items()}
        found["requestBody"] = {"required": route.accepts.required, "content": content}
    return found


def _parameters(route: Route) -> list[dict[str, Any]]:
    names = re.findall(r"\{(\w+)\}", route.path)
    found = [_parameter(name, "path", *PATH[name]) for name in names]
    found += [_parameter(one.name, "query", one.about, one.schema) for one in route.query]
    return found + [_parameter(one.name, "header", one.about, one.schema) for one in route.headers]


def _parameter(name: str, where: str, about: str, schema: Schema) -> dict[str, Any]:
    return {"name": name, "in": where, "required": where == "path", "description": about, "schema": schema}


def statuses(route: Route) -> list[int]:
    """What it may reply that is not what was wanted."""
    known = [*_ALWAYS, *route.refuses]
    if route.who != "anybody":
        known += [401, 404]
    return sorted(set(known) - {one.status for one in route.gives})


def _responses(route: Route) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    found: dict[str, Any] = {str(code): {"description": _WHY[code], "content": error} for code in statuses(route)}
    for one in route.gives:
        found[str(one.status)] = {"description": one.about, "content": {one.kind: {"schema": one.schema or {}}}}
    return found


# -- for people ------------------------------------------------------------------------------------------------------
def page(routes: Sequence[Route]) -> Reply:
    """A page that needs nothing from elsewhere; its style and its script are allowed by their hashes."""
    parts = [
        f"<h1>{TITLE} {escape(__version__)}</h1>",
        '<p>For programs: <a href="/openapi.json">openapi.json</a>. All but this page, that one, <code>/health</code> ',
        "and <code>/ready</code> needs <code>Authorization: Bearer TOKEN</code>. ",
        'Errors are <code>{"error": "a sentence"}</code>.',
        '<p><label>Token: <input id="token" type="password" size="60" autocomplete="off"></label>',
    ]
    for tag, about in _TAGS.items():
        parts.append(f"<h1>{escape(about)}</h1>")
        parts += [_section(route) for route in routes if route.tag == tag]
    html = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{TITLE}</title><style>{_STYLE}</style>'
        f"<body>{''.join(parts)}<script>{_SCRIPT}</script></html>"
    )
    policy = (
        b"default-src 'none'; style-src 'sha256-%s'; script-src 'sha256-%s'; connect-src 'self'; base-uri 'none'; "
        b"form-action 'none'; frame-ancestors 'none'"
    ) % (_STYLE_HASH, _SCRIPT_HASH)
    return Reply(200, html.encode(), b"text/html; charset=utf-8", ((b"content-security-policy", policy),))


def _section(route: Route) -> str:
    kinds = ", ".join(route.accepts.kinds) if route.accepts else ""
    items = [*_items("query", route.query), *_items("header", route.headers)]
    items += [f"<li>body: {escape(kinds)}"] if kinds else []
    items += [f"<li>{one.status}: {escape(one.about)}" for one in route.gives]
    items += [f"<li>also {', '.join(map(str, statuses(route)))}"]
    head = f"<h2><code>{route.method} {escape(route.path)}</code></h2><p>{escape(route.about)}"
    return f"{head}<ul>{''.join(items)}</ul>{_try(route)}"


def _try(route: Route) -> str:
    """Fields to call it from the page. Events never end, so they are for other programs."""
    if any(one.kind == "text/event-stream" for one in route.gives):
        return ""
    fields = [f'<input name="{name}" placeholder="{name}"> ' for name in re.findall(r"\{(\w+)\}", route.path)]
    fields.append('<input name="query" placeholder="query: a=b&amp;c=d"> ')
    if route.accepts:
        kinds = "".join(f"<option>{escape(kind)}" for kind in route.accepts.kinds)
        fields.append(
            f'<select name="kind">{kinds}</select><br><textarea name="body" rows="3" cols="80"></textarea><br>'
        )
    return (
        f'<div data-method="{route.method}" data-path="{escape(route.path)}">{"".join(fields)}'
        "<button>Send</button><pre></pre></div>"
    )


def _items(where: str, several: Sequence[Query]) -> list[str]:
    return [f"<li>{where} <code>{escape(one.name)}</code>: {escape(one.about)}" for one in several]
