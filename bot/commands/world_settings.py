"""/settings: shows and sets what plugins let the owners of worlds decide, secrets too."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

from bot.domain.component_specs import WorldSettingState
from bot.domain.content import Choice
from bot.domain.environment import Role, World
from bot.domain.ids import short_id
from bot.domain.inbound import CommandResponse
from bot.errors import SettingError
from bot.plugin_system.command import Command, CommandContext, command
from bot.text import sanitize_name, shorten
from bot.user_texts import user_text

SETTINGS_COMMAND = "settings"
SELECT, DEFAULT = "use", "default"
SELECTION_TTL = timedelta(days=1)
MAX_SHOWN_VALUE = 200


def build_settings_command() -> Command[Any]:
    """Return the command; its role is required in a room of several people, in a direct one ownership counts."""
    description = user_text("commands.settings.description")
    return command(SETTINGS_COMMAND, description, role=Role.OWNER, open_in_direct=True)(run_settings)


async def run_settings(
    context: CommandContext,
    name: Annotated[str, "Which setting; nothing to list them"] = "",
    value: Annotated[str, "Its new value, or default to remove it"] = "",
) -> CommandResponse:
    """List the settings of a world, show one, or set one."""
    worlds = await _find_worlds(context)
    if not worlds:
        return CommandResponse(user_text("commands.settings.no_world"))
    if name == SELECT:
        return await _select(context, worlds, value.strip())
    world = worlds[0] if len(worlds) == 1 else await _selected(context, worlds)
    if world is None:
        return _ask_which(worlds)
    if not name:
        return CommandResponse(await _describe_world(context, world))
    name = name.upper().replace("-", "_")
    if not value.strip():
        return CommandResponse(await _describe_setting(context, world, name))
    return CommandResponse(await _set(context, world, name, value.strip()))


async def _find_worlds(context: CommandContext) -> list[World]:
    """Return the world of the room where its owner asks; in a direct chat, also the others that they own."""
    agent, invocation = context.agent, context.invocation
    is_direct = invocation.room.type.is_direct
    worlds = await agent.world_settings.worlds_of(invocation.author.id) if is_direct else []
    if context.role is Role.OWNER and all(world.id != invocation.world.id for world in worlds):
        stored = await agent.store.worlds.world(invocation.world.id)
        if stored is None:
            await agent.store.worlds.save_world(invocation.world, [invocation.room])
        worlds.append(stored or invocation.world)
    return worlds


async def _select(context: CommandContext, worlds: Sequence[World], title: str) -> CommandResponse:
    world = next((world for world in worlds if title in (short_id(world.id), world.name)), None)
    if world is None:
        return _ask_which(worlds)
    expires_at = context.agent.clock() + SELECTION_TTL
    await context.agent.store.cache.set(_selection_key(context), str(world.id), expires_at=expires_at)
    return CommandResponse(await _describe_world(context, world))


async def _selected(context: CommandContext, worlds: Sequence[World]) -> World | None:
    selected = await context.agent.store.cache.get(_selection_key(context))
    world_id = UUID(selected) if selected else None
    return next((world for world in worlds if world.id == world_id), None)


def _selection_key(context: CommandContext) -> str:
    return f"settings-world:{context.invocation.author.id}"


def _ask_which(worlds: Sequence[World]) -> CommandResponse:
    choices = [Choice(_title(world), f"/{SETTINGS_COMMAND} {SELECT} {short_id(world.id)}") for world in worlds]
    lines = [f"{choice.value}  {choice.label}" for choice in choices]
    return CommandResponse("\n".join([user_text("commands.settings.which"), *lines]), choices=tuple(choices))


async def _describe_world(context: CommandContext, world: World) -> str:
    states = await context.agent.world_settings.states(world)
    heading = user_text("commands.settings.heading", world=_title(world))
    lines = [f"{state.spec.name}: {_describe_value(state)}  {state.spec.description}" for state in states]
    return "\n".join([heading, *lines, user_text("commands.settings.how")])


async def _describe_setting(context: CommandContext, world: World, name: str) -> str:
    states = await context.agent.world_settings.states(world)
    state = next((state for state in states if state.spec.name == name), None)
    if state is None:
        problem = await context.agent.world_settings.find_problem(world, name, "?")
        return user_text("commands.settings.refused", cause=problem or name)
    lines = [f"{name}: {_describe_value(state)}", state.spec.description, state.spec.usage]
    return "\n".join(line for line in lines if line)


async def _set(context: CommandContext, world: World, name: str, value: str) -> str:
    """Set a setting; return what has changed and which required one is still missing."""
    settings, invocation = context.agent.world_settings, context.invocation
    spec = next((spec for spec in context.agent.catalog.world_settings if spec.name == name), None)
    is_secret = spec is not None and spec.is_secret
    if is_secret and not invocation.room.type.is_direct:
        return user_text("commands.settings.secret_elsewhere", name=name)
    value = "" if value.casefold() == DEFAULT else value
    try:
        note = await settings.change(world.id, name, value, actor=invocation.author.id, source=f"/{SETTINGS_COMMAND}")
    except SettingError as error:
        return user_text("commands.settings.refused", cause=error)
    done = user_text("commands.settings.set" if value else "commands.settings.removed", name=name, world=_title(world))
    hint = user_text("commands.settings.delete_message") if is_secret and value else ""
    changed = await context.agent.store.worlds.world(world.id) or world
    missing = [state for state in await settings.states(changed) if state.spec.is_required and not state.value]
    needed = [
        user_text("commands.settings.missing", name=state.spec.name, usage=_explain(state)) for state in missing[:1]
    ]
    return "\n".join(line for line in (done, note, hint, *needed) if line)


def _explain(state: WorldSettingState) -> str:
    return " ".join(text for text in (state.spec.description, state.spec.usage) if text)


def _describe_value(state: WorldSettingState) -> str:
    if state.spec.is_secret:
        return user_text("commands.settings.is_set" if state.is_set else "commands.settings.not_set")
    return shorten(state.value, MAX_SHOWN_VALUE) or user_text("commands.settings.not_set")


def _title(world: World) -> str:
    return f"{sanitize_name(world.name or world.external_id)} ({world.platform})"
