"""Checks of tools by the published rules of OpenAI, Anthropic and Gemini; each returns the first problem."""

import re
from collections.abc import Callable, Mapping
from typing import Any

TYPES = {"object", "array", "string", "integer", "number", "boolean", "null"}
OPENAI_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ANTHROPIC_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
GEMINI_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}")
GEMINI_KEYS = {
    "type", "format", "title", "description", "nullable", "enum", "maxItems", "minItems", "properties", "required",
    "minimum", "maximum", "anyOf", "items", "propertyOrdering",
}  # fmt: skip
GEMINI_FORMATS = {"string": {"enum", "date-time"}, "number": {"float", "double"}, "integer": {"int32", "int64"}}
COMBINATIONS = ("anyOf", "oneOf", "allOf", "not", "enum")


def check_openai(tool: Mapping[str, Any]) -> str:
    """Check a tool of a chat completion."""
    function = tool["function"]
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    if not OPENAI_NAME.fullmatch(function["name"]):
        return "invalid function name"
    if not isinstance(function.get("description", ""), str) or len(function.get("description", "")) > 1024:
        return "invalid description"
    if schema.get("type") != "object":
        return "the schema must be of type object"
    if any(key in schema for key in COMBINATIONS):
        return "the schema must not have anyOf, oneOf, allOf, enum or not at the top level"
    return _walk(schema, "()", _check_openai_part)


def check_anthropic(tool: Mapping[str, Any]) -> str:
    """Check a tool of a message."""
    schema = tool["input_schema"]
    if not OPENAI_NAME.fullmatch(tool["name"]):
        return "invalid name"
    if schema.get("type") != "object":
        return "input_schema.type must be object"
    if any(key in schema for key in ("anyOf", "oneOf", "allOf")):
        return "input_schema does not support oneOf, allOf, or anyOf at the top level"
    return _walk(schema, "()", _check_anthropic_part)


def check_gemini(declaration: Mapping[str, Any]) -> str:
    """Check a function declaration."""
    if not GEMINI_NAME.fullmatch(declaration["name"]):
        return "invalid function name"
    schema = declaration.get("parameters", declaration.get("parametersJsonSchema"))
    if schema is None:
        return ""
    if schema.get("type") not in ("object", "OBJECT"):
        return "parameters must be of type OBJECT"
    return _walk(schema, "()", _check_gemini_part)


def _walk(schema: Any, path: str, check: Callable[[Mapping[str, Any]], str]) -> str:
    if not isinstance(schema, dict):
        return f"{path}: is no object"
    if problem := check(schema):
        return f"{path}: {problem}"
    children = [(f"{path}.{name}", value) for name, value in schema.get("properties", {}).items()]
    children += [(f"{path}.items", schema["items"])] if "items" in schema else []
    children += [(f"{path}.anyOf", option) for option in schema.get("anyOf", ())]
    return next((problem for at, child in children if (problem := _walk(child, at, check))), "")


def _check_common(schema: Mapping[str, Any]) -> str:
    kind, properties, required = schema.get("type"), schema.get("properties", {}), schema.get("required", [])
    if "allOf" in schema or "patternProperties" in schema:
        return "keyword that is not supported"
    if kind is not None and (not isinstance(kind, str) or kind not in TYPES):
        return f"type {kind!r} is not valid"
    if kind == "array" and not isinstance(schema.get("items"), dict):
        return "array schema missing items"
    if not isinstance(properties, dict) or not isinstance(schema.get("description", ""), str):
        return "properties or description of another type"
    if not isinstance(required, list) or len(set(required)) < len(required) or not set(required) <= set(properties):
        return "required names a property that is not defined"
    if "anyOf" in schema and (not isinstance(schema["anyOf"], list) or not schema["anyOf"]):
        return "anyOf must be a list that is not empty"
    return _check_enum(schema, kind)


def _check_enum(schema: Mapping[str, Any], kind: str | None) -> str:
    if "enum" not in schema:
        return ""
    choices = schema["enum"]
    if not isinstance(choices, list) or not choices or len({(type(item), item) for item in choices}) < len(choices):
        return "enum must be a list of different values"
    if kind == "string" and not all(isinstance(item, str) for item in choices):
        return "a value of the enum does not fit the type"
    if kind in ("integer", "number") and not all(isinstance(item, int | float) for item in choices):
        return "a value of the enum does not fit the type"
    return ""


def _check_openai_part(schema: Mapping[str, Any]) -> str:
    if schema.get("type") == "object" and "properties" not in schema:
        return "object schema missing properties"
    return _check_common(schema)


def _check_anthropic_part(schema: Mapping[str, Any]) -> str:
    names = list(schema.get("properties", {}))
    if not all(ANTHROPIC_KEY.fullmatch(name) for name in names) or len({n.lower() for n in names}) < len(names):
        return "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'"
    return _check_common(schema)


def _check_gemini_part(schema: Mapping[str, Any]) -> str:
    if unknown := set(schema) - GEMINI_KEYS:
        return f"Unknown name {sorted(unknown)[0]!r}"
    kind = schema.get("type")
    if kind is None and "anyOf" not in schema:
        return "type is missing"
    if kind == "null":
        return "type null is not valid"
    if kind == "object" and not schema.get("properties"):
        return "properties: should be non-empty for OBJECT type"
    if "enum" in schema and not (kind == "string" and all(isinstance(item, str) and item for item in schema["enum"])):
        return "enum: only allowed for STRING type"
    if "format" in schema and schema["format"] not in GEMINI_FORMATS.get(str(kind), set()):
        return "format is not supported"
    return _check_common(schema)
