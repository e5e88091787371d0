"""Tickets: writes down what a team must look at, hands upset people over, and welcomes newcomers."""

from typing import Annotated, Literal

from bot import (
    ActionResult,
    Agent,
    ChannelType,
    Component,
    Effect,
    Plugin,
    Turn,
    action,
    derived_id,
    evaluator,
    on,
    short_id,
)
from bot.events import EntityJoined
from bot.text import sanitize_name

ESCALATED = "ESCALATED"
UPSET = ("cancel", "useless", "third time", "complaint")


@action("CREATE_TICKET", "Hand a problem over to the team.", similes=["OPEN_TICKET"], effect=Effect.KEYED)
async def create_ticket(
    turn: Turn,
    problem: Annotated[str, "What was done, expected and seen, in one or two sentences"],
    urgency: Annotated[Literal["low", "normal", "high"], "How urgent it is"] = "normal",
) -> ActionResult:
    """Keep it under a number that is the same however often this runs for one message."""
    number = short_id(derived_id(turn.id, "ticket"))
    ticket = {"problem": problem, "urgency": urgency, "by": str(turn.author.id)}
    await turn.agent.store.cache.set(f"ticket:{number}", ticket)
    await turn.reply(f"That is ticket {number} now; the team reads it next.")
    return ActionResult(text=f"ticket {number} was created", data={"number": number})


async def is_upset(turn: Turn) -> bool:
    """Whether a person sounds as if they should talk to a human."""
    text = turn.message.content.text.lower()
    return any(word in text for word in UPSET)


@evaluator("ESCALATION", "Notes who should talk to a human.", when=is_upset)
async def escalate(turn: Turn) -> None:
    """Note it of the person, for the team's page and for later conversations."""
    noted = Component(
        id=derived_id(turn.author.id, ESCALATED),
        entity_id=turn.author.id,
        type=ESCALATED,
        data={"because": turn.message.content.text},
        world_id=turn.world.id,
        source_entity_id=turn.agent.id,
    )
    await turn.agent.store.entities.save_component(noted)


@on(EntityJoined)
async def welcome(agent: Agent, event: EntityJoined) -> None:
    """Greet new members in the world's first group room."""
    rooms = await agent.store.worlds.rooms(event.world.id)
    room = next((room for room in rooms if room.type is ChannelType.GROUP), None)
    if room is not None:
        await agent.say(room, f"Welcome, {sanitize_name(event.entity.name)}. Tell me what does not work.")


plugin = Plugin(
    "tickets",
    "Creates tickets, hands over, welcomes.",
    actions=[create_ticket],
    evaluators=[escalate],
    listeners=[welcome],
)
