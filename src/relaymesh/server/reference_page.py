"""The API as one page of HTML, made from its OpenAPI document. No script, nothing from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
body{color:#1b1f24;background:#fff}
code,pre{font:14px/1.4 ui-monospace,monospace}h2{margin-top:2.5rem;border-bottom:1px solid #d0d7de}
details{border:1px solid #d0d7de;border-radius:6px;margin:.5rem 0;padding:.4rem .8rem}
summary{cursor:pointer}summary b{display:inline-block;min-width:4.5rem}
table{border-collapse:collapse;margin:.5rem 0}
td,th{border:1px solid #d0d7de;padding:.2rem .6rem;text-align:left}
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}td,th,details,h2{border-color:#30363d}}
"""


def reference_page(document: dict[str, Any]) -> str:
    """Operations by tag, each with its parameters, body and answers; then the schemas they name."""
    info = document["info"]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{escape(info['title'])} API</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(info['title'])} API {escape(info['version'])}</h1><p>{escape(info['description'])}</p>",
        '<p><a href="/openapi.json">openapi.json</a> · <a href="/asyncapi.json">asyncapi.json</a></p>',
    ]
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append(_operation(method, path, operation))
    for tag, operations in by_tag.items():
        parts += [f"<h2>{escape(tag)}</h2>", *operations]
    parts.append("<h2>schemas</h2>")
    schemas = document["components"]["schemas"]
    parts += [_schema(name, schemas[name]) for name in sorted(schemas)]
    return "".join([*parts, "</body></html>"])


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = [
        (f"{each['in']} <code>{escape(each['name'])}</code>", _shape(each["schema"]))
        for each in operation.get("parameters", ())
    ]
    body = operation.get("requestBody")
    if body is not None:
        rows += [("body", _shape(media["schema"])) for media in body["content"].values()]
    for status, answer in operation["responses"].items():
        shown = "problem" if "$ref" in answer else ""
        for media in answer.get("content", {}).values():
            shown = _shape(media["schema"])
        rows.append((escape(status), shown))
    return (
        f"<details><summary><b>{method.upper()}</b> <code>{escape(path)}</code>"
        f" {escape(operation['summary'])}</summary>{_table(rows)}</details>"
    )


def _schema(name: str, schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = [
        (f"<code>{escape(field)}</code>{' *' if field in required else ''}", _shape(shape))
        for field, shape in schema.get("properties", {}).items()
    ]
    words = escape(schema.get("description", ""))
    return (
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        f"<p>{words}</p>{_table(rows)}</details>"
    )


def _table(rows: list[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><td>{left}</td><td>{right}</td></tr>" for left, right in rows)
    return f"<table>{cells}</table>" if cells else ""


def _shape(schema: dict[str, Any]) -> str:
    """A schema in a few words of HTML."""
    said = schema.get("description", "")
    words = f" – {escape(said)}" if said else ""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>{words}'
    if "anyOf" in schema:
        return " or ".join(_shape(each) for each in schema["anyOf"]) + words
    if schema.get("type") == "array":
        return f"list of {_shape(schema.get('items', {}))}{words}"
    if "enum" in schema:
        return f"<code>{escape(', '.join(map(str, schema['enum'])))}</code>{words}"
    return escape(str(schema.get("type", "anything"))) + words
