"""UPDATE_SETTINGS where plugins declare settings of worlds: their owner fills them by talking."""

from dataclasses import dataclass
from typing import Annotated, Any, get_args

from bot import ActionResult, Agent, Catalog, Effect, Role, SettingError, Turn, World, action, short_id
from bot.prompts import ActionPreview, Authority
from bot.text import sanitize_name
from plugins.bootstrap.actions.permissions import authorize, build_request, refusal_result, request_example
from plugins.bootstrap.actions.settings import (
    DEFAULT_VALUE,
    SIMILES,
    ChangeableSetting,
    preview_setting_change,
    run_setting_change,
)

CORE_NAMES = frozenset(get_args(ChangeableSetting))


async def register_update_settings(agent: Agent) -> None:
    """Register the action where plugins declare settings; without them it stays as it is."""
    if agent.catalog.world_settings:
        agent.components.register("bootstrap", build_update_settings(agent.catalog), replaces_own=True)


def build_update_settings(catalog: Catalog) -> Any:
    """Return the action for the settings that plugins declare and for those that every world has."""
    specs = catalog.world_settings
    secrets = {spec.name for spec in specs if spec.is_secret}
    names = ", ".join([*sorted(CORE_NAMES), *(spec.name for spec in specs if not spec.is_secret)])

    async def preview(turn: Turn, name: str, value: str, world: str = "") -> ActionPreview | ActionResult:
        name = name.strip().upper()
        if name in CORE_NAMES:
            return await preview_setting_change(turn, name, value)
        change = await _find_change(turn, secrets, name, value.strip(), world)
        if isinstance(change, ActionResult):
            return change
        text = (
            f"{name} of {sanitize_name(change.world.name or change.world.external_id)} would be "
            f"{change.value or DEFAULT_VALUE}, instead of {change.before or 'not set'}."
        )
        return ActionPreview(text, ((value.strip(),),), {"name": name, "world": str(change.world.id)})

    @action(
        "UPDATE_SETTINGS",
        "Change a setting of a world of the person who asks for it in their own message, in a direct chat.",
        similes=SIMILES,
        when=may_change_settings,
        effect=Effect.KEYED,
        authority=Authority.confirmed(),
        preview=preview,
        examples=[request_example("Ada, set CONVERSATION_LENGTH to 12", "One moment.", "UPDATE_SETTINGS")],
    )
    async def update_settings(
        turn: Turn,
        name: Annotated[str, f"One of {names}; never a secret"],
        value: Annotated[str, "Its new value, as the person wrote it; default to reset it"],
        world: Annotated[str, "Name or id of the world, if they own several"] = "",
    ) -> ActionResult:
        """Store a valid value of a setting."""
        if name in CORE_NAMES:
            return await run_setting_change(turn, name, value)
        change = await _find_change(turn, secrets, name, value.strip(), world)
        if isinstance(change, ActionResult):
            return change
        try:
            note = await turn.agent.world_settings.change(
                change.world.id, name, change.value, actor=turn.author.id, source=str(turn.message.id)
            )
        except SettingError as error:
            return refusal_result(str(error))
        return ActionResult(text=" ".join(filter(None, [f"{name} is {change.value or DEFAULT_VALUE} now.", note])))

    return update_settings


async def may_change_settings(turn: Turn) -> bool:
    """Return whether the author is an admin here, or in a direct chat owns a world."""
    return turn.role.is_at_least(Role.ADMIN) or bool(await find_own_worlds(turn))


async def find_own_worlds(turn: Turn) -> list[World]:
    """Return the worlds that the author owns; none in a room of several people."""
    if not turn.room.type.is_private_chat or any(item.author.id != turn.author.id for item in turn.inputs):
        return []
    return await turn.agent.world_settings.worlds_of(turn.author.id)


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A change that may be made: in which world, to which value (blank: removed), from which."""

    world: World
    value: str
    before: str


async def _find_change(
    turn: Turn, secrets: set[str], name: str, value: str, title: str
) -> SettingChange | ActionResult:
    """Return the change, checked; a failed result if it is none or its author may not make it."""
    if name in secrets:
        return refusal_result(
            f"{name} is a secret and must not be in a conversation: the person sends /settings {name} and the value, "
            "in this direct chat; it is then stored encrypted"
        )
    worlds = await find_own_worlds(turn)
    matching = [world for world in worlds if title in (world.name, str(world.id), short_id(world.id))]
    chosen = matching if title else worlds
    if len(chosen) != 1:
        known = ", ".join(map(describe_world, worlds)) or "none"
        return refusal_result(f"ask which world is meant; they own: {known} (settings are changed in a direct chat)")
    value = "" if value.casefold() == DEFAULT_VALUE else value
    if problem := await turn.agent.world_settings.find_problem(chosen[0], name, value):
        return refusal_result(problem)
    arguments = {"name": name, "new": value}
    request = build_request(turn, "UPDATE_SETTINGS", arguments, required_role=Role.OWNER, world=chosen[0])
    if refusal := await authorize(turn.agent, request, is_preview=True):  # what is done is logged with the change
        return refusal_result(refusal)
    return SettingChange(chosen[0], value, turn.agent.world_settings.value(chosen[0], name))


def describe_world(world: World) -> str:
    return f"{sanitize_name(world.name or world.external_id)} (id {short_id(world.id)}, {world.platform})"
