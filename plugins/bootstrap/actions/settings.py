"""UPDATE_SETTINGS: change a setting of a world after confirmation."""

from typing import Annotated, Literal

from pydantic import ValidationError

from bot import ActionResult, ChannelType, CoreSettings, Effect, Role, Turn, action
from bot.prompts import ActionPreview, Authority
from plugins.bootstrap.actions.permissions import (
    AuthorizationRequest,
    authorize,
    build_request,
    refusal_result,
    request_example,
)

ChangeableSetting = Literal[
    "CONVERSATION_LENGTH", "ON_EDIT", "RESPOND_TO_BOTS", "SHOULD_RESPOND_BYPASS_TYPES", "TIMEZONE"
]
MAX_VALUE_LENGTH = 100
DEFAULT_VALUE = "default"
SIMILES = ("UPDATE_SETTING", "SAVE_SETTING", "SET_CONFIGURATION", "CONFIGURE")


async def preview_setting_change(turn: Turn, name: str, value: str) -> ActionPreview | ActionResult:
    """Return which setting would have which value, or why not."""
    value = value.strip()
    if problem := find_problem(name, value):
        return refusal_result(problem)
    if refusal := await authorize(turn.agent, _setting_request(turn, name, value), is_preview=True):
        return refusal_result(refusal)
    text = f"{name} would be {value} here, instead of {turn.find_setting(name) or DEFAULT_VALUE}."
    return ActionPreview(text, ((name, name.replace("_", " ")), (value,)))


@action(
    "UPDATE_SETTINGS",
    "Change a setting for this world. Only for the person who asks for it in their own message.",
    similes=SIMILES,
    role=Role.ADMIN,
    effect=Effect.KEYED,
    authority=Authority.confirmed(),
    preview=preview_setting_change,
    examples=[request_example("Ada, set CONVERSATION_LENGTH to 12", "One moment.", "UPDATE_SETTINGS")],
)
async def update_settings(
    turn: Turn,
    name: Annotated[ChangeableSetting, "Which setting"],
    value: Annotated[str, "Its new value, as they wrote it; default to reset it"],
) -> ActionResult:
    """Store a valid value of a setting."""
    return await run_setting_change(turn, name, value)


async def run_setting_change(turn: Turn, name: str, value: str) -> ActionResult:
    """Store a valid value of a setting that every world has, for an admin."""
    value = value.strip()
    if problem := find_problem(name, value):
        return refusal_result(problem)
    if refusal := await authorize(turn.agent, _setting_request(turn, name, value)):
        return refusal_result(refusal)
    await turn.agent.store.worlds.set_setting(turn.world.id, name, "" if value.casefold() == DEFAULT_VALUE else value)
    return ActionResult(text=f"{name} is {value} here now.")


def _setting_request(turn: Turn, name: str, value: str) -> AuthorizationRequest:
    arguments = {"name": name, "old": turn.find_setting(name) or DEFAULT_VALUE, "new": value}
    return build_request(turn, "UPDATE_SETTINGS", arguments, required_role=Role.ADMIN)


def find_problem(name: str, value: str) -> str:
    """Return what is wrong with a value; empty if it is valid."""
    if value.casefold() == DEFAULT_VALUE:
        return ""
    if not value or len(value) > MAX_VALUE_LENGTH:
        return f"{name}: a value of at most {MAX_VALUE_LENGTH} characters, or {DEFAULT_VALUE}"
    try:
        settings = CoreSettings().for_world({name: value})
        for channel_type in settings.should_respond_bypass_types:
            ChannelType(channel_type)
    except ValidationError as error:
        return f"{name}: {error.errors(include_url=False, include_input=False)[0]['msg']}"
    except ValueError:
        return f"{name}: one or more of {', '.join(ChannelType)}"
    return ""
