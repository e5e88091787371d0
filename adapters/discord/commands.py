"""Slash commands and buttons."""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import discord
from discord.http import Route

import bot.platform as bp
from adapters.discord import sending
from adapters.discord.config import PLATFORM, DiscordSettings
from adapters.discord.errors import ALREADY_ACKNOWLEDGED, ErrorResponse
from adapters.discord.gateway import report_roles
from adapters.discord.incoming import EntityMapper, apply_rules, build_lineage
from adapters.discord.outside import (
    GUILD_INSTALL,
    MENU_TYPE,
    USER_INSTALL,
    OutsideQuestions,
    build_question,
    is_from_outside,
)
from bot import BotError, CommandResponse, Content, Role, Room, World
from bot.text import list_translations, shorten, use_language, user_text

logger = logging.getLogger(__name__)

# The Discord permissions a member needs to see a command.
PERMISSIONS = {
    Role.OWNER: discord.Permissions(administrator=True).value,
    Role.ADMIN: discord.Permissions(manage_guild=True).value,
}
_TYPES = {"string": 3, "integer": 4, "boolean": 5, "number": 10}
MAX_OPTIONS = 25
DEFERRED_REPLY, DEFERRED_UPDATE = 5, 6  # Discord's response types: "thinking…", and no visible change
QUESTION_COMMANDS = {"ask": "question", "talk": "text"}  # and the option with what is asked
MAX_ECHO_LENGTH = 300  # in one line: text below the quotation would look like the bot's own
DISCORD_LOCALES = {"es": ("es-ES", "es-419")}  # of languages that have none of their own name


def build_registration(commands: Sequence[bp.CommandSpec], menu: str = "") -> list[dict[str, Any]]:
    """Return all commands in the form in which Discord registers them.

    With the name of a command for the `menu` of messages, it and /ask can be used everywhere by people who have
    installed the bot for themselves.
    """
    everywhere = {"contexts": [0, 1, 2], "integration_types": [GUILD_INSTALL, USER_INSTALL]}
    registered: list[dict[str, Any]] = [
        {
            "name": spec.name.lower(),
            "type": 1,
            "description": spec.description[:100] or spec.name,
            "description_localizations": _localize(spec.description),
            "options": _options(spec.parameters),
            "contexts": [0, 1],
            "integration_types": [GUILD_INSTALL],
            "default_member_permissions": PERMISSIONS.get(spec.role),
            **(everywhere if menu and spec.name == "ask" else {}),
        }
        for spec in commands
    ]
    return [*registered, {"name": menu, "type": MENU_TYPE, **everywhere}] if menu else registered


def _localize(text: str) -> dict[str, str]:
    """Return a description of at most 100 characters by Discord's locales."""
    texts = list_translations(text).items()
    return {locale: own[:100] for language, own in texts for locale in DISCORD_LOCALES.get(language, (language,))}


def _options(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    required = schema.get("required", ())
    options = [
        {
            "name": name,
            "type": _TYPES.get(parameter.get("type", "string"), 3),
            "description": str(parameter.get("description") or name)[:100],
            "description_localizations": _localize(str(parameter.get("description") or "")),
            "required": name in required,
            **_choices(parameter),
        }
        for name, parameter in schema.get("properties", {}).items()
    ]
    return sorted(options, key=lambda option: not option["required"])[:MAX_OPTIONS]


def _choices(schema: Mapping[str, Any]) -> dict[str, Any]:
    values = schema.get("enum") or ()
    return {"choices": [{"name": str(value)[:100], "value": value} for value in values[:25]]} if values else {}


class CommandHandler:
    """Answers slash commands and buttons within the fifteen minutes that an interaction is valid."""

    def __init__(
        self,
        handle: bp.AgentHandle,
        mapper: EntityMapper,
        settings: DiscordSettings,
        send_request: sending.SendRequest,
        outside: OutsideQuestions,
    ) -> None:
        self._handle, self._mapper, self._settings, self._send_request = (handle, mapper, settings, send_request)
        self._outside = outside

    async def handle(self, interaction: discord.Interaction[Any]) -> None:
        """Acknowledge an interaction and run it, unless it was run before; the outbox sends the response."""
        with use_language(interaction.locale.value):
            match interaction.type:
                case discord.InteractionType.application_command:
                    data: Mapping[str, Any] = interaction.data or {}
                    if data.get("type") == MENU_TYPE or is_from_outside(interaction):
                        await self._answer_outside(interaction)
                    else:
                        await self._run_command(interaction)
                case discord.InteractionType.component:
                    await self._select_choice(interaction)

    async def repeat(self, interaction: discord.Interaction[Any]) -> None:
        """Run a command that another character of the account has answered, where it concerns them all."""
        data: Mapping[str, Any] = interaction.data or {}
        value = str(data.get("custom_id", "")).removeprefix(sending.CHOICE_PREFIX)
        name = str(data.get("name", "")) or value.removeprefix("/").partition(" ")[0]
        is_command = bool(data.get("name")) or value.startswith("/")
        if not is_command or name not in bp.SHARED_COMMANDS:
            return
        world, room = self._world_and_room(interaction)
        invocation = bp.CommandInvocation(
            name,
            world,
            room,
            self._mapper.user_of(interaction),
            str(interaction.id),
            interaction.created_at,
            arguments=_arguments_of(data),
            text="" if data.get("name") else value.partition(" ")[2],
        )
        await self._run_safely(self._handle.run_command(invocation))

    async def _run_command(self, interaction: discord.Interaction[Any]) -> None:
        data: Mapping[str, Any] = interaction.data or {}
        name = str(data.get("name", ""))
        arguments = _arguments_of(data)
        is_question = name in QUESTION_COMMANDS and bool(arguments.get(QUESTION_COMMANDS[name]))
        await self._acknowledge(interaction, DEFERRED_REPLY, is_private=not is_question)
        await self._report_roles(interaction)
        world, room = self._world_and_room(interaction)
        invocation = bp.CommandInvocation(
            name=name,
            world=world,
            room=room,
            author=self._mapper.user_of(interaction),
            event_id=str(interaction.id),
            created_at=interaction.created_at,
            arguments=arguments,
        )
        question = shorten(str(arguments[QUESTION_COMMANDS[name]]), MAX_ECHO_LENGTH) if is_question else None
        target = _build_target(interaction, partial(_split_command_response, question=question))
        if is_question and (rule := self._apply_rules(interaction).denied_by):
            response = CommandResponse(user_text("discord.not_here", rule=rule))
        else:
            response = await self._run_safely(self._handle.run_command(invocation, target))
        if response.text:
            route = Route("PATCH", sending.ORIGINAL_PATH, **_webhook_ids(interaction))
            await self._send_request(route, json=sending.build_response_body(response.text))
        if response.attachments:
            route = Route("POST", sending.FOLLOW_UP_PATH, **_webhook_ids(interaction))
            body = sending.MessageBody({"flags": sending.EPHEMERAL_FLAG}, response.attachments)
            payload = {"name": "payload_json", "value": json.dumps(body.json)}
            await self._send_request(route, form=[payload, *body.form_fields])

    async def _answer_outside(self, interaction: discord.Interaction[Any]) -> None:
        """Store a question, then acknowledge it: one that is acknowledged is answered whatever happens."""
        text, receipt = user_text("discord.outside_is_off"), None
        if self._settings.discord_user_install:
            question = build_question(interaction, self._mapper, self._apply_rules(interaction))
            try:
                receipt = await self._outside.submit(interaction, question)
            except BotError as error:
                text = user_text("discord.failed")
                logger.warning("a question from outside could not be stored: %s", error)
        await self._acknowledge(interaction, DEFERRED_REPLY, is_private=True)
        if receipt is not None:
            self._outside.explain(receipt)
            return
        route = Route("PATCH", sending.ORIGINAL_PATH, **_webhook_ids(interaction))
        await self._send_request(route, json=sending.build_response_body(text))

    async def _select_choice(self, interaction: discord.Interaction[Any]) -> None:
        data: Mapping[str, Any] = interaction.data or {}
        await self._acknowledge(interaction, DEFERRED_UPDATE)
        await self._report_roles(interaction)
        value = next(iter(data.get("values") or ()), str(data.get("custom_id", "")).removeprefix(sending.CHOICE_PREFIX))
        world, room = await self._outside.find_place(interaction) or self._world_and_room(interaction)
        author = self._mapper.user_of(interaction)
        selection = bp.ChoiceSelection(world, room, author, str(value), str(interaction.id), interaction.created_at)
        target = _build_target(interaction, _split_choice_response)
        response = await self._run_safely(self._handle.select_choice(selection, target))
        if response.text:
            route = Route("POST", sending.FOLLOW_UP_PATH, **_webhook_ids(interaction))
            await self._send_request(
                route, json={**sending.build_response_body(response.text), "flags": sending.EPHEMERAL_FLAG}
            )

    async def _report_roles(self, interaction: discord.Interaction[Any]) -> None:
        """Report whether the member has a role that keeps them unread."""
        if isinstance(interaction.user, discord.Member):
            await report_roles(self._handle, interaction.user, self._mapper, self._settings)

    def _apply_rules(self, interaction: discord.Interaction[Any]) -> bp.MentionContext:
        lineage_ids = build_lineage(interaction.channel, interaction.guild_id)
        rule = self._handle.room_rules.find(PLATFORM, *lineage_ids)
        mention = bp.MentionContext(is_mention=True)
        return apply_rules(mention, lineage_ids, self._settings, rule, is_direct=interaction.guild_id is None)

    async def _run_safely(self, awaitable: Awaitable[CommandResponse]) -> CommandResponse:
        try:
            return await awaitable
        except Exception:  # the user gets an answer whatever fails
            logger.warning("a Discord command or button failed", exc_info=True)
            return CommandResponse(user_text("discord.failed"))

    def _world_and_room(self, interaction: discord.Interaction[Any]) -> tuple[World, Room]:
        channel = interaction.channel or discord.Object(interaction.channel_id or 0)
        room = self._mapper.to_room(channel, interaction.guild_id, self._mapper.user_of(interaction))
        world = self._mapper.world_of(interaction.guild_id, interaction.guild, interaction.channel_id or 0)
        if not interaction.guild_id:
            return world, room
        roles = {self._mapper.entity_id(interaction.user.id): _role_of(interaction), **world.roles}
        return replace(world, roles=roles), room

    async def _acknowledge(
        self, interaction: discord.Interaction[Any], response_type: int, *, is_private: bool = False
    ) -> None:
        path = "/interactions/{webhook_id}/{webhook_token}/callback"
        route = Route("POST", path, webhook_id=interaction.id, webhook_token=interaction.token)
        data = {"flags": sending.EPHEMERAL_FLAG if is_private else 0}
        try:
            await self._send_request(route, json={"type": response_type, "data": data})
        except ErrorResponse as error:
            if error.code != ALREADY_ACKNOWLEDGED:
                raise
            logger.debug("an interaction on Discord came again: %s", error)  # its receipt says whether it was run


def _arguments_of(data: Mapping[str, Any]) -> dict[str, Any]:
    return {str(option.get("name")): option.get("value") for option in data.get("options") or ()}


async def locate(handle: bp.AgentHandle, world: World, room: Room) -> tuple[World, Room]:
    """Return a world and a room as another character of the account knows them."""
    mapper = EntityMapper(handle.agent_id)
    world = replace(world, id=mapper.world_id(int(world.external_id)))
    stored = await handle.conversations.room(mapper.room_id(room.external_id))
    own = replace(room, id=mapper.room_id(room.external_id), world_id=world.id, account=mapper.account, parent_id=None)
    return world, stored or own


def _build_target(
    interaction: discord.Interaction[Any], split: Callable[[CommandResponse], list[Content]]
) -> bp.ResponseTarget:
    address = sending.build_address(interaction.application_id, interaction.token)
    return bp.ResponseTarget(
        address, split, needs_answer=interaction.type is discord.InteractionType.application_command
    )


def _split_command_response(response: CommandResponse, *, question: str | None) -> list[Content]:
    """Return the parts of the response to a command; the text of a question that is answered is shown to all."""
    if response.receipt is not None:
        return sending.split_response(
            CommandResponse(f"> {question or ''}"), sending.ResponseKind.ORIGINAL, sending.ResponseKind.PRIVATE
        )
    if response.is_ephemeral or question is not None:
        response = response if response.text.strip() else replace(response, text="Done.")
        return sending.split_response(response, sending.ResponseKind.ORIGINAL, sending.ResponseKind.PRIVATE)
    return sending.split_response(response, sending.ResponseKind.PUBLIC, sending.ResponseKind.PUBLIC)


def _split_choice_response(response: CommandResponse) -> list[Content]:
    return sending.split_response(response, sending.ResponseKind.PRIVATE, sending.ResponseKind.PRIVATE)


def _role_of(interaction: discord.Interaction[Any]) -> Role:
    permissions = interaction.permissions
    return Role.ADMIN if permissions.administrator or permissions.manage_guild else Role.MEMBER


def _webhook_ids(interaction: discord.Interaction[Any]) -> dict[str, Any]:
    return {"webhook_id": interaction.application_id, "webhook_token": interaction.token}
