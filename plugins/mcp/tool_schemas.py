"""JSON schemas of tools: copied into a form that every model provider accepts, and checked against what a model gives.

A server may send any schema: one that refers to itself, one without an end, one whose patterns take for ever, one that
a provider refuses together with all other tools.
"""

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any
from urllib.parse import unquote

from bot.text import escape_line, sanitize_text, shorten

logger = logging.getLogger(__name__)

MAX_DEPTH, MAX_PROPERTIES, MAX_CHOICES = 6, 40, 50
MAX_TEXT_LENGTH, MAX_CHOICE_LENGTH = 300, 100
MAX_SCHEMA_NODES = 400
MAX_NAME_LENGTH = 64
ORIGINAL_NAME = "x-original-name"  # of a property whose name had to be changed
SAFE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
COMBINATIONS = ("anyOf", "oneOf")
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
TYPE_ALIASES = {
    "str": "string",
    "text": "string",
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "dict": "object",
    "map": "object",
    "list": "array",
    "tuple": "array",
    "none": "null",
}


class SchemaTooLarge(ValueError):
    """A schema that is larger than is taken."""


def repair_tools(tools: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the tools of a listing with what is read of them, in the form that the SDK accepts.

    It refuses a whole listing for one tool. A tool without a name, or with parameters that are no object, is reported
    and left out.
    """
    repaired = []
    for tool in tools:
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not name:
            logger.warning("a tool without a name is left out of the listing of an MCP server", extra={"once": True})
            continue
        schema = tool.get("inputSchema")
        schema = schema if isinstance(schema, dict) else {}
        names = _type_names(schema)
        if names and "object" not in names and names != ["null"]:
            logger.warning(
                "the tool %r of an MCP server is left out: its parameters are no object", name, extra={"once": True}
            )
            continue
        properties, required = schema.get("properties"), schema.get("required")
        properties = properties if isinstance(properties, dict) else {}
        schema = {
            **{key: value for key, value in schema.items() if key != "$schema"},
            "type": "object",
            "properties": {key: value if isinstance(value, dict | bool) else {} for key, value in properties.items()},
            "required": [key for key in required if isinstance(key, str)] if isinstance(required, list) else [],
        }
        description = tool.get("description")
        about = {"description": description} if isinstance(description, str) else {}
        repaired.append({"name": name, **about, "inputSchema": schema})
    return repaired


def simplify_schema(schema: Mapping[str, Any]) -> Schema:
    """Return an object schema without references, patterns, unknown keywords and unsafe property names.

    A property whose name is changed has its `ORIGINAL_NAME`. Raises SchemaTooLarge if it has too many parts.
    """
    simple = _Simplifier(schema).copy(schema, 0, ())
    if "properties" not in simple and "anyOf" in simple:  # no provider accepts it at the top level
        simple = _merge_objects(simple, simple["anyOf"])
    simple = {key: value for key, value in simple.items() if key != "anyOf"}
    return _finish({**simple, "type": "object", "properties": simple.get("properties", {})})


def provider_schema(schema: Mapping[str, Any]) -> Schema:
    """Return a simplified schema as it is sent to a model: with what providers require, without original names."""
    sent = {key: value for key, value in schema.items() if key != ORIGINAL_NAME}
    if "anyOf" in sent:
        sent["anyOf"] = [provider_schema(option) for option in sent["anyOf"]]
    if sent.get("type") == "array":
        sent["items"] = provider_schema(sent.get("items", {})) or {"type": "string"}
    if sent.get("type") == "object":
        properties = sent.get("properties", {})
        sent["properties"] = {name: provider_schema(value) for name, value in properties.items()}
    return sent


def restore_names(schema: Mapping[str, Any], value: Any) -> Any:
    """Return a value with the original names of its properties, as the server expects them."""
    if "anyOf" in schema:
        schema = next((option for option in schema["anyOf"] if not find_problem(option, value)), schema)
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        return {
            properties.get(name, {}).get(ORIGINAL_NAME, name): restore_names(properties.get(name, {}), item)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [restore_names(schema.get("items", {}), item) for item in value]
    return value


class _Simplifier:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes = 0

    def copy(self, schema: object, depth: int, references: tuple[str, ...]) -> Schema:
        """Return a copy; `references` are those that are being resolved."""
        self._nodes += 1
        if self._nodes > MAX_SCHEMA_NODES:
            raise SchemaTooLarge(f"it has more than {MAX_SCHEMA_NODES} parts")
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            return {}
        if isinstance(reference := schema.get("$ref", schema.get("$dynamicRef")), str):
            target = self._resolve(reference)
            if not isinstance(target, Mapping):
                return _describe(schema)
            if reference in references:  # it refers to itself: one level is enough
                return {"type": "object", **_describe(schema)} if "properties" in target else _describe(schema)
            others = {key: value for key, value in schema.items() if key not in ("$ref", "$dynamicRef")}
            return self.copy({**target, **others}, depth + bool(references), (*references, reference))
        parts = schema.get("allOf")
        if isinstance(parts, list) and parts:
            copies = [self.copy(part, depth + 1, references) for part in parts[:MAX_CHOICES]]
            others = self.copy({key: value for key, value in schema.items() if key != "allOf"}, depth, references)
            return _merge_all(others, copies)
        options = next((schema[key] for key in COMBINATIONS if isinstance(schema.get(key), list) and schema[key]), None)
        if options is None:
            return self._copy_plain(schema, depth, references)
        others = {key: value for key, value in schema.items() if key not in COMBINATIONS}
        base = self._copy_plain(others, depth, references)
        return _combine(base, [self.copy(option, depth + 1, references) for option in options[:MAX_CHOICES]])

    def _copy_plain(self, schema: Mapping[str, Any], depth: int, references: tuple[str, ...]) -> Schema:
        names = _type_names(schema)
        if schema.get("nullable") is True and names:
            names = [*names, "null"]
        if len(set(names)) > 1:
            copies = [
                self._copy_typed({**schema, "description": None, "nullable": None}, name, depth, references)
                for name in dict.fromkeys(names)
            ]
            return {"anyOf": copies, **_describe(schema)}
        return self._copy_typed(schema, names[0] if names else _infer_type(schema), depth, references)

    def _copy_typed(
        self, schema: Mapping[str, Any], kind: str | None, depth: int, references: tuple[str, ...]
    ) -> Schema:
        simple: Schema = ({"type": kind} if kind else {}) | _describe(schema) | _copy_choices(schema)
        properties = schema.get("properties")
        if kind == "object":
            if isinstance(schema.get("additionalProperties"), bool):
                simple["additionalProperties"] = schema["additionalProperties"]
            if isinstance(properties, Mapping):
                simple |= self._copy_properties(schema, properties, depth, references)
        if kind == "array":
            simple["items"] = self._copy_items(schema, depth, references)
        return simple

    def _copy_properties(
        self, schema: Mapping[str, Any], properties: Mapping[str, Any], depth: int, references: tuple[str, ...]
    ) -> Schema:
        if len(properties) > MAX_PROPERTIES:
            raise SchemaTooLarge(f"it has more than {MAX_PROPERTIES} parameters")
        copied = {name: self.copy(value, depth + 1, references) for name, value in properties.items()}
        listed = schema.get("required")
        listed = listed if isinstance(listed, list) else []
        required = [
            name
            for name, value in properties.items()
            if name in listed or (isinstance(value, Mapping) and value.get("required") is True)
        ]
        return {"properties": copied, **({"required": required} if required else {})}

    def _copy_items(self, schema: Mapping[str, Any], depth: int, references: tuple[str, ...]) -> Schema:
        items = schema.get("items")
        members = schema.get("prefixItems") or items
        if not isinstance(members, list):
            return self.copy(items, depth + 1, references)
        copies = [self.copy(member, depth + 1, references) for member in members[:MAX_CHOICES]]
        return _combine({}, copies) if copies else {}

    def _resolve(self, reference: str) -> object:
        """Return what a reference inside the schema points to; None if there is nothing."""
        if not reference.startswith("#"):
            return None
        found: object = self._root
        for part in filter(None, unquote(reference[1:]).split("/")):
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, Mapping) else None
        return found


def safe_names(names: Iterable[str]) -> dict[str, str]:
    """Return a name for each one that every provider accepts; no two of them differ only by case."""
    safe: dict[str, str] = {}
    ordered = sorted(names, key=lambda name: not SAFE_NAME.fullmatch(name))  # those that stay as they are go first
    for name in ordered:
        base = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:MAX_NAME_LENGTH] or "parameter"
        base = name if SAFE_NAME.fullmatch(name) else base
        taken, candidate, number = {other.lower() for other in safe.values()}, base, 1
        while candidate.lower() in taken:
            number += 1
            candidate = f"{base[: MAX_NAME_LENGTH - 4]}_{number}"
        safe[name] = candidate
    return {name: safe[name] for name in names}


def _type_names(schema: Mapping[str, Any]) -> list[str]:
    """Return the valid types that a schema names."""
    names = schema.get("type")
    names = names if isinstance(names, list) else [names]
    lowered = [name.lower() for name in names if isinstance(name, str)]
    return [name for name in (TYPE_ALIASES.get(name, name) for name in lowered) if name in TYPES]


def _infer_type(schema: Mapping[str, Any]) -> str | None:
    if isinstance(schema.get("properties"), Mapping):
        return "object"
    if "items" in schema or "prefixItems" in schema:
        return "array"
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list) and choices:
        return next((kind for kind, fits in TYPES.items() if kind != "object" and all(map(fits, choices))), None)
    return None


def _describe(schema: Mapping[str, Any]) -> Schema:
    description = schema.get("description") or schema.get("title")
    if not isinstance(description, str):
        return {}
    return {"description": escape_line(shorten(sanitize_text(description), MAX_TEXT_LENGTH))}


def _copy_choices(schema: Mapping[str, Any]) -> Schema:
    """Return the choices; none if they are too many or too long: the server knows them."""
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(choices, list) or len(choices) > MAX_CHOICES:
        return {}
    if any(isinstance(item, str) and len(item) > MAX_CHOICE_LENGTH for item in choices):
        return {}
    return {"enum": choices}


def _finish(schema: Schema) -> Schema:
    """Return a copied schema with what fits its type, and with safe names of properties."""
    finished: Schema = {key: schema[key] for key in ("description", "type") if key in schema}
    if "anyOf" in schema:
        finished.pop("type", None)
        return {**finished, "anyOf": [_finish(option) for option in schema["anyOf"]]}
    kind, properties = schema.get("type"), schema.get("properties", {})
    choices = [item for item in schema.get("enum", ()) if _is_choice(item) and (kind is None or TYPES[kind](item))]
    if kind in ("string", "integer", "number") or (kind is None and len(choices) == len(schema.get("enum", ()))):
        finished |= {"enum": list({json.dumps(item): item for item in choices}.values())} if choices else {}
    if kind == "array":
        finished["items"] = _finish(schema.get("items", {}))
    if kind == "object":
        names = safe_names(properties)
        finished |= {key: schema[key] for key in ("additionalProperties",) if key in schema}
        finished |= {"properties": {name: _finish(properties[original]) for original, name in names.items()}}
        for original, name in names.items():
            if name != original:
                finished["properties"][name][ORIGINAL_NAME] = original
        required = [names[original] for original in schema.get("required", ()) if original in names]
        finished |= {"required": required} if required else {}
    return finished


def _is_choice(item: object) -> bool:
    if isinstance(item, str):
        return item == sanitize_text(item)
    return item is None or (isinstance(item, int | float) and isfinite(item))


def _combine(base: Schema, options: list[Schema]) -> Schema:
    """Return the schema of a value that fits the base and one of the options."""
    if "properties" in base:
        return _merge_objects(base, options)
    if not all(option.keys() - {"description"} for option in options):  # one of them accepts everything
        return base
    distinct = list({json.dumps(option, sort_keys=True): option for option in options}.values())
    flat = [inner for option in distinct for inner in (option.get("anyOf") or [option])]
    if len(flat) == 1:
        return {**flat[0], **base}
    return {**{key: base[key] for key in base if key == "description"}, "anyOf": flat}


def _merge_objects(base: Schema, options: list[Schema]) -> Schema:
    """Return an object with the properties of all; those that only some require are optional."""
    objects = [option for option in options if "properties" in option]
    properties: Schema = {}
    for item in (*objects, base):
        properties |= item.get("properties", {})
    shared = set.intersection(*(set(item.get("required", ())) for item in objects)) if objects else set()
    required = [name for name in properties if name in shared or name in base.get("required", ())]
    merged = {"type": "object", "properties": properties}
    merged |= {"description": base["description"]} if "description" in base else {}
    return {**merged, "required": required} if required else merged


def _merge_all(base: Schema, parts: list[Schema]) -> Schema:
    """Return the schema of a value that fits the base and all parts."""
    merged: Schema = {}
    for part in (*parts, base):
        properties = {**merged.get("properties", {}), **part.get("properties", {})}
        required = list(dict.fromkeys([*merged.get("required", ()), *part.get("required", ())]))
        merged = {**merged, **part}
        merged |= ({"properties": properties} if properties else {}) | ({"required": required} if required else {})
    if "properties" in merged:
        merged = {key: value for key, value in merged.items() if key != "anyOf"} | {"type": "object"}
        merged.pop("additionalProperties", None)  # each part knows only its own
    return merged


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
        originals = {item[ORIGINAL_NAME]: name for name, item in properties.items() if ORIGINAL_NAME in item}
        named = {name if name in properties else originals.get(name, name): item for name, item in value.items()}
        return {name: coerce_value(properties.get(name, {}), item) for name, item in named.items()}
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
