"""The page of a daemon's routes: its own OpenAPI description, to read."""

from __future__ import annotations

from typing import Any

import msgspec

from hipq.daemon.http import openapi
from hipq.daemon.http.api import ROUTES


def page() -> str:
    found = msgspec.json.decode(openapi.document(ROUTES))
    parts = [
        "# HTTP routes of a daemon\n\nThis page is made from the OpenAPI description that a daemon serves at "
        "`/openapi.json` and shows at `/docs`. Examples and what statuses mean are in the guide to [the HTTP API]"
        "(http-api.md).\n"
    ]
    for tag in found["tags"]:
        parts.append(f"\n## {tag['description']}\n")
        parts.extend(
            _route(path, method, one)
            for path, methods in found["paths"].items()
            for method, one in methods.items()
            if tag["name"] in one["tags"]
        )
    return "".join(parts)


def _route(path: str, method: str, one: dict[str, Any]) -> str:
    text = f"\n### `{method.upper()} {path}`\n\n{one['summary']} {one.get('description', '')}\n"
    if one.get("security") == []:
        text += "\nIt needs no token.\n"
    if "requestBody" in one:
        text += f"\nBody: {', '.join(f'`{kind}`' for kind in one['requestBody']['content'])}.\n"
    rows = "".join(
        f"| `{each['name']}` | {each['description']} ({each['in']}: {_kind(each['schema'])}) |\n"
        for each in one["parameters"]
    )
    text += f"\n| parameter | |\n|---|---|\n{rows}" if rows else ""
    replies = "".join(f"| {code} | {reply['description']} |\n" for code, reply in sorted(one["responses"].items()))
    return f"{text}\n| status | |\n|---|---|\n{replies}"


def _kind(schema: dict[str, Any]) -> str:
    """What a parameter may be, in a few words."""
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    bounds = [str(schema[name]) for name in ("minimum", "maximum") if name in schema]
    kind = str(schema.get("format") or schema.get("type", ""))
    return f"{kind} from {bounds[0]} to {bounds[1]}" if len(bounds) == 2 else kind
