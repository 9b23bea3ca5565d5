"""The OpenAPI description, made from the table of routes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from hipq import __version__
from hipq.daemon.http.routes_table import Route

TAGS: Final = {
    "jobs": "Jobs, results and answers",
    "handlers": "Handlers",
    "queues": "Queues and events",
    "cron": "Cron schedules",
    "operators": "Tenants, tokens and the audit log",
    "about": "The daemon itself",
}
_WHY: Final = {
    400: "Something in the request is wrong.",
    401: "There is no token, or it is not good.",
    403: "The token has no role that opens this.",
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


def document(routes: Sequence[Route]) -> bytes:
    """OpenAPI 3.1."""
    from hipq.daemon.http import routes_cron, routes_operators
    from hipq.daemon.http.new_job import NewJob
    from hipq.daemon.http.routes_handlers import HandlerTest, NewHandler

    models = [NewJob, NewHandler, HandlerTest, *routes_operators.MODELS, *routes_cron.MODELS]
    _, schemas = msgspec.json.schema_components(models, ref_template="#/components/schemas/{name}")
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
        "info": {"title": "hipq", "version": __version__, "description": "A durable job queue over HTTP."},
        "security": [{"token": []}],
        "tags": [{"name": name, "description": about} for name, about in TAGS.items()],
        "paths": _referring(paths, schemas),
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {**schemas, "Error": error},
        },
    })  # fmt: skip


def _referring(node: Any, schemas: dict[str, Any]) -> Any:
    """The same, with references in the place of schemas that have a title, which are among the `schemas` then."""
    if isinstance(node, list):
        return [_referring(one, schemas) for one in node]
    if not isinstance(node, dict):
        return node
    inside = {name: _referring(one, schemas) for name, one in node.items()}
    title = node.get("title")
    if not isinstance(title, str):
        return inside
    schemas[title] = inside
    return {"$ref": f"#/components/schemas/{title}"}


def operation(route: Route) -> dict[str, Any]:
    title, _, rest = route.about.partition(". ")
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    responses: dict[str, Any] = {
        str(code): {"description": _WHY[code], "content": error} for code in route.refusals()
    } | {
        str(one.status): {"description": one.about, "content": {one.kind: {"schema": one.schema or {}}}}
        for one in route.gives
    }
    found: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{route.path}").strip("_"),
        "summary": title.rstrip(".") + ".",
        "tags": [route.tag],
        "parameters": [
            {"name": name, "in": where, "required": where == "path", "description": about, "schema": schema}
            for where, name, about, schema in route.parameters()
        ],
        "responses": responses,
    }
    needs = f"Takes a token with the role {' or '.join(route.roles)}." if route.roles else ""
    if rest or needs:
        found["description"] = " ".join(filter(None, (rest, needs)))
    if route.who == "anybody":
        found["security"] = []
    if route.accepts:
        content = {kind: {"schema": schema} for kind, schema in route.accepts.kinds.items()}
        found["requestBody"] = {"required": route.accepts.required, "content": content}
    return found
