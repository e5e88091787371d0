"""Checks calls against a platform's published OpenAPI document, to whose file X_API_DESCRIPTION or
DISCORD_API_DESCRIPTION is set.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from jsonschema import Draft202012Validator


@cache
def read_description(variable: str) -> Mapping[str, Any] | None:
    """Return the document; None if the variable is not set."""
    path = os.environ.get(variable)
    return json.loads(Path(path).read_text()) if path else None


def find_violations(description: Mapping[str, Any], method: str, path: str, body: Any) -> Iterator[str]:
    """Yield what in a call the description does not know or allow; the `path` includes the query.

    A `body` of None is not checked.
    """
    address, label = urlsplit(path), f"{method} {urlsplit(path).path}"
    templates = [item for item in description["paths"] if _matches(item, address.path)]
    template = min(templates, key=lambda item: item.count("{"), default="")
    operation = description["paths"].get(template, {}).get(method.lower())
    if operation is None:
        yield f"{label}: there is no such call"
        return
    described = [*description["paths"][template].get("parameters", ()), *operation.get("parameters", ())]
    parameters = {item["name"]: item for item in (_resolve(description, parameter) for parameter in described)}
    query = dict(parse_qsl(address.query))
    for name, parameter in parameters.items():
        if parameter["in"] == "query" and parameter.get("required") and name not in query:
            yield f"{label}: {name} is missing"
    for name, value in query.items():
        if name not in parameters:
            yield f"{label}: {name} is not a parameter"
            continue
        schema = _resolve(description, parameters[name]["schema"])
        yield from _problems(description, schema, _parse(description, schema, value), f"{label}: {name}")
    if "requestBody" in operation and body is not None:
        content = _resolve(description, operation["requestBody"])["content"]["application/json"]
        yield from _problems(description, content["schema"], body, f"{label}: the body")
    elif body:
        yield f"{label}: it has no body"


def _matches(template: str, path: str) -> bool:
    return re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path) is not None


def _resolve(description: Mapping[str, Any], item: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in item:
        found: Any = description
        for key in item["$ref"].removeprefix("#/").split("/"):
            found = found[key]
        item = found
    return item


def _parse(description: Mapping[str, Any], schema: Mapping[str, Any], value: str) -> Any:
    if schema.get("type") == "array":
        return [_parse(description, _resolve(description, schema["items"]), item) for item in value.split(",")]
    kinds = schema.get("type")
    if kinds == "integer" or "integer" in (kinds or ()):
        return int(value)
    return value == "true" if kinds == "boolean" and value in ("true", "false") else value


def _problems(description: Mapping[str, Any], schema: Mapping[str, Any], value: Any, label: str) -> Iterator[str]:
    validator = Draft202012Validator({**schema, "components": description["components"]})
    for error in validator.iter_errors(value):
        yield f"{label}: {error.message}"
