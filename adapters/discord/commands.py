"""The commands as Discord wants them registered: what they are called, take, and who is shown them; pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import discord

from bot import CommandSpec, Role

# What Discord itself asks of a member before it shows a command: to administer, to manage the server.
PERMISSIONS = {
    Role.OWNER: discord.Permissions(administrator=True).value,
    Role.ADMIN: discord.Permissions(manage_guild=True).value,
}
_TYPES = {"string": 3, "integer": 4, "boolean": 5, "number": 10}
MOST_OPTIONS = 25


def registration(commands: Sequence[CommandSpec]) -> list[dict[str, Any]]:
    """Describe all commands as Discord wants them registered."""
    return [
        {
            "name": spec.name.lower(),
            "type": 1,
            "description": spec.description[:100] or spec.name,
            "options": _options(spec.parameters),
            "contexts": [0, 1],
            "integration_types": [0],
            "default_member_permissions": PERMISSIONS.get(spec.role),
        }
        for spec in commands
    ]


def _options(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    required = schema.get("required", ())
    options = [
        {
            "name": name,
            "type": _TYPES.get(one.get("type", "string"), 3),
            "description": str(one.get("description") or name)[:100],
            "required": name in required,
            **_choices(one),
        }
        for name, one in schema.get("properties", {}).items()
    ]
    return sorted(options, key=lambda option: not option["required"])[:MOST_OPTIONS]


def _choices(schema: Mapping[str, Any]) -> dict[str, Any]:
    values = schema.get("enum") or ()
    return {"choices": [{"name": str(one)[:100], "value": one} for one in values[:25]]} if values else {}
