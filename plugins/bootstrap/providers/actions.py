"""What the character can do just now, and with which parameters."""

from collections.abc import Mapping
from typing import Any

from bot import ActionSpec, ProviderResult, Turn, provider


@provider("ACTIONS", "The actions that can be taken, with their parameters.", position=-90)
async def actions(turn: Turn) -> ProviderResult:
    """List the actions the author may use, always in the same order."""
    lines = [_line(spec) for spec in turn.actions]
    names = ", ".join(spec.name for spec in turn.actions)
    text = "\n".join(["# Actions", *lines]) if lines else ""
    return ProviderResult(text=text, values={"actionNames": names}, data={"actions": turn.actions})


def _line(spec: ActionSpec) -> str:
    properties: Mapping[str, Mapping[str, Any]] = spec.parameters.get("properties", {})
    required = spec.parameters.get("required", ())
    if spec.name == "REPLY" or not properties:
        return f"- {spec.name}: {spec.description}"
    parameters = [_parameter(name, one, is_required=name in required) for name, one in properties.items()]
    return f"- {spec.name}: {spec.description} Parameters: {'; '.join(parameters)}."


def _parameter(name: str, schema: Mapping[str, Any], *, is_required: bool) -> str:
    kind = str(schema.get("type", "value"))
    if "enum" in schema:
        kind = " | ".join(map(str, schema["enum"]))
    described = f", {schema['description']}" if schema.get("description") else ""
    return f"{name} ({kind}{'' if is_required else ', optional'}{described})"
