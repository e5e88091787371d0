"""JSON schemas of tools in the subset that all versions of the Gemini API accept."""

from collections.abc import Mapping
from typing import Any

TYPES = frozenset({"object", "array", "string", "integer", "number", "boolean"})
COPIED = {
    "description": str,
    "title": str,
    "minimum": int | float,
    "maximum": int | float,
    "minItems": int,
    "maxItems": int,
}
MAX_DEPTH = 8
MAX_CHOICE_LENGTH = 100


def gemini_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema of a tool's parameters in Gemini's subset of OpenAPI; None if it has no parameters.

    References are resolved, and unknown keywords are left out. An object without known properties becomes a string:
    the API requires properties, and an argument that is a JSON text is accepted for an object.
    """
    groups = [schema.get(key) for key in ("definitions", "$defs")]
    definitions = {name: item for group in groups if isinstance(group, Mapping) for name, item in group.items()}
    simple = _copy(schema, definitions, 0)
    return simple if simple.get("properties") else None


def _copy(schema: Any, definitions: Mapping[str, Any], depth: int) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return {"type": "string"}
    if isinstance(reference := schema.get("$ref"), str):
        key = reference.rpartition("/")[2]
        target = definitions.get(key)
        merged = {**(target if isinstance(target, Mapping) else {}), **schema}
        others = {name: item for name, item in definitions.items() if name != key}  # one that contains itself ends here
        return _copy({name: value for name, value in merged.items() if name != "$ref"}, others, depth + 1)
    simple: dict[str, Any] = {
        name: schema[name]
        for name, kind in COPIED.items()
        if isinstance(schema.get(name), kind) and not isinstance(schema[name], bool)
    }
    names = schema.get("type")
    names = [name for name in (names if isinstance(names, list) else [names]) if isinstance(name, str)]
    options = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    options = list(options) if isinstance(options, list) else []
    options = [*options, *({**schema, "type": name} for name in names if name in TYPES)] if len(names) > 1 else options
    is_nullable = "null" in names or any(_is_null(option) for option in options)
    options = [_copy(option, definitions, depth + 1) for option in options if not _is_null(option)]
    if len(options) > 1 and "properties" not in schema:
        simple = {"anyOf": options, **{name: simple[name] for name in ("description", "title") if name in simple}}
    elif options and "properties" not in schema:
        simple = {**options[0], **simple}
    else:
        simple |= _copy_typed(schema, next((name for name in names if name in TYPES), None), definitions, depth)
    return {**simple, "nullable": True} if is_nullable else simple


def _copy_typed(schema: Mapping[str, Any], kind: str | None, definitions: Mapping[str, Any], depth: int) -> Any:
    properties = schema.get("properties")
    named = {str(name): item for name, item in properties.items() if name} if isinstance(properties, Mapping) else {}
    if named:
        copied = {name: _copy(item, definitions, depth + 1) for name, item in named.items()}
        required = schema.get("required")
        names = [name for name in copied if isinstance(required, list) and name in required]
        return {"type": "object", "properties": copied, **({"required": names} if names else {})}
    if kind == "array" or (kind is None and "items" in schema):
        return {"type": "array", "items": _copy(schema.get("items"), definitions, depth + 1)}
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list) and kind in ("string", None):
        texts = [item for item in choices if isinstance(item, str) and 0 < len(item) <= MAX_CHOICE_LENGTH]
        if texts and len(texts) == len([item for item in choices if item is not None]):
            return {"type": "string", "enum": list(dict.fromkeys(texts))}
    return {"type": "string" if kind in ("object", None) else kind}


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "null"
