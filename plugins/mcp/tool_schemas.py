"""JSON schemas of tools: copied within limits, and checked against what a model gives.

A server may send any schema: one that refers to itself, one without an end, one whose patterns take for ever.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from bot.text import escape_line, shorten

MAX_DEPTH, MAX_PROPERTIES, MAX_CHOICES = 6, 40, 50
MAX_TEXT_LENGTH = 300
MAX_SCHEMA_NODES = 400
Schema = dict[str, Any]
TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


class SchemaTooLarge(ValueError):
    """A schema that is larger than is taken."""


def simplify_schema(schema: Mapping[str, Any]) -> Schema:
    """Return an object schema without references, patterns and unknown keywords.

    Raises SchemaTooLarge if it has too many parts.
    """
    simple = _Simplifier(schema).copy(schema, 0)
    return {**simple, "type": "object", "properties": simple.get("properties", {})}


class _Simplifier:
    def __init__(self, root: Mapping[str, Any]) -> None:
        definitions = {key: root.get(key) for key in ("$defs", "definitions")}
        self._definitions = {key: value for key, value in definitions.items() if isinstance(value, Mapping)}
        self._nodes = 0

    def copy(self, schema: object, depth: int) -> Schema:
        self._nodes += 1
        if self._nodes > MAX_SCHEMA_NODES:
            raise SchemaTooLarge(f"it has more than {MAX_SCHEMA_NODES} parts")
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            return {}
        if isinstance(schema.get("$ref"), str):
            return self.copy(self._resolve(schema["$ref"]), depth + 1)
        simple = _copy_scalars(schema)
        options = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(options, list) and options:
            simple["anyOf"] = [self.copy(option, depth + 1) for option in options[:MAX_CHOICES]]
        elif isinstance(names := schema.get("type"), list):
            simple["anyOf"] = [{"type": name} for name in names if name in TYPES]
        properties = schema.get("properties")
        if isinstance(properties, Mapping):
            if len(properties) > MAX_PROPERTIES:
                raise SchemaTooLarge(f"it has more than {MAX_PROPERTIES} parameters")
            simple["properties"] = {str(name): self.copy(value, depth + 1) for name, value in properties.items()}
            required = schema.get("required")
            if isinstance(required, list):
                simple["required"] = [name for name in required if name in simple["properties"]]
        if isinstance(schema.get("items"), Mapping):
            simple["items"] = self.copy(schema["items"], depth + 1)
        return simple

    def _resolve(self, reference: str) -> object:
        _, _, path = reference.partition("#/")
        group, _, name = path.partition("/")
        return self._definitions.get(group, {}).get(name)


def _copy_scalars(schema: Mapping[str, Any]) -> Schema:
    simple: Schema = {}
    if isinstance(schema.get("type"), str) and schema["type"] in TYPES:
        simple["type"] = schema["type"]
    if isinstance(schema.get("description"), str):
        simple["description"] = escape_line(shorten(schema["description"], MAX_TEXT_LENGTH))
    if isinstance(schema.get("additionalProperties"), bool):
        simple["additionalProperties"] = schema["additionalProperties"]
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list) and choices and all(isinstance(item, str | int | float | None) for item in choices):
        simple["enum"] = [shorten(item, 100) if isinstance(item, str) else item for item in choices[:MAX_CHOICES]]
        if len(choices) > MAX_CHOICES:
            del simple["enum"]  # the server knows the rest
    return simple


def coerce_value(schema: Mapping[str, Any], value: Any) -> Any:
    """Return a value with texts read as the types of the schema: in tags a model writes everything as text."""
    if "anyOf" in schema:
        candidates = [(option, coerce_value(option, value)) for option in schema["anyOf"]]
        return next((item for option, item in candidates if not find_problem(option, item)), value)
    kind = schema.get("type", "")
    if isinstance(value, str) and kind not in ("string", ""):
        try:
            parsed = json.loads(value.strip().lower() if kind in ("boolean", "null") else value)
        except (ValueError, RecursionError):
            return value
        value = parsed if TYPES[kind](parsed) else value
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        return {name: coerce_value(properties.get(name, {}), item) for name, item in value.items()}
    if isinstance(value, list):
        return [coerce_value(schema.get("items", {}), item) for item in value]
    return value


def find_problem(schema: Mapping[str, Any], value: Any, path: str = "") -> str:
    """Return how a value does not fit a simplified schema; empty if it fits. The server checks the rest."""
    name = path or "the arguments"
    if "enum" in schema and value not in schema["enum"]:
        return f"{name} is one of {', '.join(map(repr, schema['enum'][:10]))}"
    if "anyOf" in schema and all(find_problem(option, value, path) for option in schema["anyOf"]):
        return f"{name} has a type that does not fit"
    kind = schema.get("type")
    if kind and not TYPES[kind](value):
        return f"{name} must be of type {kind}"
    if isinstance(value, list) and "items" in schema:
        problems = (find_problem(schema["items"], item, f"{name}[{index}]") for index, item in enumerate(value))
        return next(filter(None, problems), "")
    return _find_property_problem(schema, value, path) if isinstance(value, dict) else ""


def _find_property_problem(schema: Mapping[str, Any], value: Mapping[str, Any], path: str) -> str:
    properties = schema.get("properties", {})
    prefix = f"{path}." if path else ""
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        return f"{prefix}{missing[0]} is missing"
    unknown = [name for name in value if name not in properties]
    if unknown and (schema.get("additionalProperties") is False or (not path and properties)):
        return f"{prefix}{unknown[0]} is not a parameter"
    problems = (find_problem(properties[name], value[name], f"{prefix}{name}") for name in value if name in properties)
    return next(filter(None, problems), "")
