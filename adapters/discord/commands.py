"""Slash commands and buttons."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import discord
from discord.http import Route

from adapters.discord.config import DiscordSettings
from adapters.discord.entities import PLATFORM, Places, lineage
from adapters.discord.incoming import denied
from adapters.discord.outgoing import CHOICE, LONGEST, SILENT, components, cut
from bot import Role, Room, Shown, World
from bot.platform import Asked, CommandSpec, Door, MentionContext, Pressed
from bot.text import shorten

logger = logging.getLogger(__name__)

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


DEFERRED, UNCHANGED = 5, 6  # "is thinking", and "it was pressed, and nothing is to be seen of it"
PRIVATE = 64
QUESTION = "ask"
LONGEST_ECHO = 300  # and in one line: what stands below the quotation would be ours
SORRY = "That did not work just now. Please try again."
ORIGINAL = "/webhooks/{webhook_id}/{webhook_token}/messages/@original"
Ask = Callable[..., Awaitable[Any]]


class Interactions:
    """Answers what people ask the bot itself, through the address that Discord gives for fifteen minutes."""

    def __init__(self, door: Door, places: Places, settings: DiscordSettings, ask: Ask) -> None:
        self._door, self._places, self._settings, self._ask = door, places, settings, ask

    async def answer(self, asked: discord.Interaction[Any]) -> None:
        """Acknowledge, have it carried out, and show what came of it."""
        match asked.type:
            case discord.InteractionType.application_command:
                await self._command(asked)
            case discord.InteractionType.component:
                await self._press(asked)

    async def _command(self, asked: discord.Interaction[Any]) -> None:
        data: Mapping[str, Any] = asked.data or {}
        name = str(data.get("name", ""))
        is_open = name == QUESTION
        await self._acknowledge(asked, DEFERRED, is_private=not is_open)
        world, room = self._place(asked)
        arguments = {str(one.get("name")): one.get("value") for one in data.get("options") or ()}
        command = Asked(
            name=name,
            world=world,
            room=room,
            author=self._places.person(asked.user),
            event_id=str(asked.id),
            created_at=asked.created_at,
            arguments=arguments,
        )
        if is_open and (rule := self._rule_against(asked)):
            shown = Shown(f"Nothing is answered here: {rule} forbids it.")
        else:
            shown = await self._carried_out(self._door.command(command))
        if shown.receipt is not None:
            question = shorten(str(arguments.get("question", "")), LONGEST_ECHO)
            await self._original(asked, f"> {question}")
        elif shown.is_private or is_open:
            await self._show(asked, shown)
        else:
            await self._ask(Route("DELETE", ORIGINAL, **_address(asked)))
            await self._follow_up(asked, shown, is_private=False)

    async def _press(self, asked: discord.Interaction[Any]) -> None:
        data: Mapping[str, Any] = asked.data or {}
        await self._acknowledge(asked, UNCHANGED)
        value = next(iter(data.get("values") or ()), str(data.get("custom_id", "")).removeprefix(CHOICE))
        world, room = self._place(asked)
        author = self._places.person(asked.user)
        pressed = Pressed(world, room, author, str(value), str(asked.id), asked.created_at)
        shown = await self._carried_out(self._door.chosen(pressed))
        if shown.text:
            await self._follow_up(asked, shown, is_private=True)

    def _rule_against(self, asked: discord.Interaction[Any]) -> str:
        names = lineage(asked.channel, asked.guild_id)
        rule = self._door.rules.find(PLATFORM, *names)
        mention = MentionContext(is_mention=True)
        return denied(mention, names, self._settings, rule, is_direct=asked.guild_id is None).denied_by

    async def _carried_out(self, doing: Awaitable[Shown]) -> Shown:
        try:
            return await doing
        except Exception:
            logger.warning("what was asked on Discord could not be carried out", exc_info=True)
            return Shown(SORRY)

    def _place(self, asked: discord.Interaction[Any]) -> tuple[World, Room]:
        room = self._places.room(asked.channel or discord.Object(asked.channel_id or 0), asked.guild_id)
        if not asked.guild_id:
            return self._places.direct_world(asked.channel_id or 0), room
        known = self._places.world(asked.guild) if asked.guild is not None else None
        name, roles = (known.name, known.roles) if known is not None else ("", {})
        roles = {self._places.person_id(asked.user.id): _role(asked), **roles}
        return World(room.world_id, PLATFORM, str(asked.guild_id), name, roles), room

    async def _acknowledge(
        self, asked: discord.Interaction[Any], kind: int, *, is_private: bool = False
    ) -> None:
        path = "/interactions/{webhook_id}/{webhook_token}/callback"
        route = Route("POST", path, webhook_id=asked.id, webhook_token=asked.token)
        await self._ask(route, json={"type": kind, "data": {"flags": PRIVATE if is_private else 0}})

    async def _show(self, asked: discord.Interaction[Any], shown: Shown) -> None:
        first, *rest = cut(shown.text, LONGEST) or ["Done."]
        await self._original(asked, first, shown if not rest else None)
        for number, text in enumerate(rest, 1):
            last = shown if number == len(rest) else Shown()
            await self._follow_up(asked, Shown(text, choices=last.choices), is_private=True)

    async def _original(self, asked: discord.Interaction[Any], text: str, shown: Shown | None = None) -> None:
        route = Route("PATCH", ORIGINAL, **_address(asked))
        await self._ask(route, json=_body(cut(text, LONGEST)[0], shown or Shown()))

    async def _follow_up(self, asked: discord.Interaction[Any], shown: Shown, *, is_private: bool) -> None:
        pieces = cut(shown.text, LONGEST)
        for number, text in enumerate(pieces, 1):
            body = _body(text, shown if number == len(pieces) else Shown())
            route = Route("POST", "/webhooks/{webhook_id}/{webhook_token}", **_address(asked))
            await self._ask(route, json={**body, "flags": PRIVATE if is_private else 0})


def _role(asked: discord.Interaction[Any]) -> Role:
    may = asked.permissions
    return Role.ADMIN if may.administrator or may.manage_guild else Role.MEMBER


def _address(asked: discord.Interaction[Any]) -> dict[str, Any]:
    return {"webhook_id": asked.application_id, "webhook_token": asked.token}


def _body(text: str, shown: Shown) -> dict[str, Any]:
    return {
        "content": text,
        "allowed_mentions": dict(SILENT),
        "components": components(shown.choices) if shown.choices else [],
    }
