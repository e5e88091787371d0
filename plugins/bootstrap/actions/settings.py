"""UPDATE_SETTINGS: change a setting of a world after confirmation."""

from typing import Annotated, Literal

from pydantic import ValidationError

from bot import ActionResult, Agent, ChannelType, ChoiceRequest, CoreSettings, Effect, Role, Task, Turn, action, worker
from plugins.bootstrap.actions.permissions import (
    AuthorizationRequest,
    authorize,
    build_request,
    refusal_result,
    report_outcome,
    request_confirmation,
    request_example,
)

ChangeableSetting = Literal["CONVERSATION_LENGTH", "ON_EDIT", "RESPOND_TO_BOTS", "SHOULD_RESPOND_BYPASS_TYPES"]
MAX_VALUE_LENGTH = 100
DEFAULT_VALUE = "default"


@action(
    "UPDATE_SETTINGS",
    "Change a setting for this world. Only for the person who asks for it in their own message.",
    similes=["UPDATE_SETTING", "SAVE_SETTING", "SET_CONFIGURATION", "CONFIGURE"],
    role=Role.ADMIN,
    effect=Effect.KEYED,
    examples=[request_example("Ada, set CONVERSATION_LENGTH to 12", "One moment.", "UPDATE_SETTINGS")],
)
async def update_settings(
    turn: Turn,
    name: Annotated[ChangeableSetting, "Which setting"],
    value: Annotated[str, "Its new value, as the person wrote it; default to reset it"],
) -> ActionResult:
    """Ask the author to confirm a valid value of a setting."""
    value = value.strip()
    if problem := find_problem(name, value):
        return refusal_result(problem)
    request = build_request(
        turn,
        "UPDATE_SETTINGS",
        {"name": name, "old": turn.find_setting(name) or DEFAULT_VALUE, "new": value},
        required_role=Role.ADMIN,
        spoken_text=((name, name.replace("_", " ")), (value,)),
    )
    summary = f"{name} would be {value} here, instead of {turn.find_setting(name) or DEFAULT_VALUE}."
    return await request_confirmation(turn, request, "CHANGE_SETTING", {"name": name, "value": value}, summary)


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


@worker("CHANGE_SETTING")
async def change_setting(agent: Agent, task: Task) -> None:
    """Store the confirmed setting if its requester may still change it."""
    worlds, confirmation = agent.store.worlds, ChoiceRequest.from_metadata(task.metadata)
    change = confirmation.operation
    name, value = str(change["name"]), str(change["value"])
    room = await worlds.room(task.room_id) if task.room_id else None
    world = await worlds.world(room.world_id) if room else None
    if room is None or world is None or find_problem(name, value):
        return
    request = AuthorizationRequest(
        "UPDATE_SETTINGS",
        (confirmation.chooser,),
        room,
        world,
        {"name": name, "old": world.settings.get(name, DEFAULT_VALUE), "new": value, "step": "confirmed"},
        required_role=Role.ADMIN,
        event=task.id,
    )
    if refusal := await authorize(agent, request):
        await report_outcome(agent, task, room, f"Nothing was changed: {refusal}.")
        return
    await worlds.set_setting(world.id, name, "" if value.casefold() == DEFAULT_VALUE else value)
    await report_outcome(agent, task, room, f"{name} is {value} here now.")
