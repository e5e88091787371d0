"""Holds calls against X's published API description: set X_API_DESCRIPTION to the file of its OpenAPI document."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from jsonschema import Draft202012Validator

from adapters.x.emulator import Call


@cache
def read_description() -> Mapping[str, Any] | None:
    """Return the description; None if the variable is not set."""
    path = os.environ.get("X_API_DESCRIPTION")
    return json.loads(Path(path).read_text()) if path else None


def find_violations(call: Call, description: Mapping[str, Any]) -> Iterator[str]:
    """Yield what in a call the description does not know or allow."""
    method, address = call.endpoint.partition(" ")[0].lower(), urlsplit(call.path)
    template = next((item for item in description["paths"] if _matches(item, address.path)), None)
    operation = description["paths"].get(template, {}).get(method)
    if operation is None:
        yield f"{call.endpoint}: there is no such call"
        return
    parameters = {item["name"]: item for item in (_resolve(description, one) for one in operation["parameters"])}
    query = dict(parse_qsl(address.query))
    for name, parameter in parameters.items():
        if parameter["in"] == "query" and parameter.get("required") and name not in query:
            yield f"{call.endpoint}: {name} is missing"
    for name, value in query.items():
        if name not in parameters:
            yield f"{call.endpoint}: {name} is not a parameter"
            continue
        schema = _resolve(description, parameters[name]["schema"])
        yield from _problems(description, schema, _parse(description, schema, value), f"{call.endpoint}: {name}")
    if "requestBody" in operation:
        content = _resolve(description, operation["requestBody"])["content"]["application/json"]
        yield from _problems(description, content["schema"], call.body, f"{call.endpoint}: the body")
    elif call.body:
        yield f"{call.endpoint}: it has no body"


def _matches(template: str, path: str) -> bool:
    return re.fullmatch(re.sub(r"\{\w+\}", r"\\d+", template), path) is not None and "{" not in path


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
    return int(value) if schema.get("type") == "integer" else value


def _problems(description: Mapping[str, Any], schema: Mapping[str, Any], value: Any, label: str) -> Iterator[str]:
    validator = Draft202012Validator({**schema, "components": description["components"]})
    for error in validator.iter_errors(value):
        yield f"{label}: {error.message}"
