"""What the character can do just now, and with which parameters."""

from collections.abc import Mapping
from typing import Any

from bot import ActionSpec, ModelType, ProviderResult, Turn, provider

Schema = Mapping[str, Any]


@provider("ACTIONS", "The actions that can be taken, with their parameters.", position=-90)
def actions(turn: Turn) -> ProviderResult:
    """List the actions the author may use, always in the same order.

    Where they are given as functions too, that is where their parameters are.
    """
    are_functions = turn.agent.models.can_call_tools(ModelType.TEXT_LARGE)
    lines = [_line(spec, is_function=are_functions) for spec in turn.actions]
    names = ", ".join(spec.name for spec in turn.actions)
    text = "\n".join(["# Actions", *lines]) if lines else ""
    return ProviderResult(text=text, values={"actionNames": names}, data={"actions": turn.actions})


def _line(spec: ActionSpec, *, is_function: bool) -> str:
    properties: Schema = spec.parameters.get("properties", {})
    required = spec.parameters.get("required", ())
    if is_function or spec.name == "REPLY" or not properties:
        return f"- {spec.name}: {spec.description}"
    parts: Schema = spec.parameters.get("$defs", {})
    parameters = [
        _parameter(name, one, _kind(one, parts), is_required=name in required)
        for name, one in properties.items()
    ]
    return f"- {spec.name}: {spec.description} Parameters: {'; '.join(parameters)}."


def _parameter(name: str, schema: Schema, kind: str, *, is_required: bool) -> str:
    described = f", {schema['description']}" if schema.get("description") else ""
    return f"{name} ({kind}{'' if is_required else ', optional'}{described})"


def _kind(schema: Schema, parts: Schema) -> str:
    """Say in words what JSON schema says in JSON."""
    if "$ref" in schema:
        schema = parts.get(str(schema["$ref"]).rpartition("/")[2], {})
    if "enum" in schema or "const" in schema:
        return " | ".join(map(str, schema.get("enum") or [schema["const"]]))
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one, parts) for one in schema["anyOf"]))
    if schema.get("type") == "array" and "items" in schema:
        return f"list of {_kind(schema['items'], parts)}"
    if schema.get("type") == "object" and "properties" in schema:
        return f"object with {', '.join(schema['properties'])}"
    return str(schema.get("type", "value"))
