"""What the tests of reflection have in common: things that are said, and a model that notes them."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

from bot import ChannelType, Memory, MemoryKind, Plugin, Receipt, Role, Turn, derived_id, model, new_id, short_id
from bot.events import MessageReceived
from bot.models import EmbeddingRequest, EmbeddingResult, ModelType, Purpose, TextRequest
from bot.platform import InboundMessage
from bot.testing import AgentHarness, ScriptedModel, make_message, model_answer
from bot.turn import Agent, TurnInput
from plugins.bootstrap import plugin

REFLECTION = plugin.evaluators[0]
NOTHING = "<response></response>"


def fact(message: int, text: str, replaces: int | str = "") -> str:
    """Write a fact as a well-behaved model would."""
    return f"<fact><message>{message}</message><text>{text}</text><replaces>{replaces}</replaces></fact>"


def relationship(source: str, target: str, tags: str) -> str:
    """Write a relationship, likewise."""
    sides = f"<source>{source}</source><target>{target}</target>"
    return f"<relationship>{sides}<tags>{tags}</tags></relationship>"


def noted(facts: Sequence[str] = (), forgotten: str = "", relationships: Sequence[str] = ()) -> str:
    """Write what was noted in one reflection, likewise."""
    return (
        f"<response><facts>{''.join(facts)}</facts><forgotten>{forgotten}</forgotten>"
        f"<relationships>{''.join(relationships)}</relationships></response>"
    )


def thinking(script: Sequence[str] | Callable[[TextRequest], str], reply: str = "") -> ScriptedModel:
    """Return a model that answers in one way and reflects by this script, whose last text repeats."""
    left = [] if callable(script) else list(script)

    def write(request: TextRequest) -> str:
        if request.purpose is not Purpose.REFLECTION:
            return reply or model_answer("Hello.")
        if callable(script):
            return script(request)
        return left.pop(0) if len(left) > 1 else left[0]

    return ScriptedModel(write)


def meaning(vector: Callable[[str], tuple[float, ...]]) -> Plugin:
    """Return an embedding model."""

    @model(ModelType.TEXT_EMBEDDING)
    async def embedding(agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
        return EmbeddingResult(tuple(map(vector, request.texts)), "meaning-2")

    return Plugin("meaning", "Compares meanings.", models=[embedding])


def about(agent: Agent, arrival: InboundMessage) -> Turn:
    """Make the turn of a message."""
    ids = (new_id(), arrival.key, arrival.room.id, arrival.author.id, arrival.message.id)
    receipt = Receipt(*ids, agent.clock())
    turn_input = TurnInput(receipt, arrival.message, arrival.author, time.monotonic(), lambda receipt: None)
    return Turn(agent, new_id(), arrival.room, arrival.world, [turn_input])


async def say(harness: AgentHarness, *texts: str, author: str = "Alice", room: str = "lobby", **details: Any) -> Turn:
    """Send messages of a person in a room; return the turn of the last message."""
    details = {"kind": ChannelType.GROUP, "role": Role.MEMBER, **details}
    turn = None
    for text in texts:
        arrival = make_message(text, sent_at=harness.agent.clock(), author=author, room=room, **details)
        await harness.agent.store.ledger.receive([arrival], harness.agent.clock())
        heard = MessageReceived(harness.agent.id, arrival.message, arrival.room, arrival.author)
        harness.agent.events.emit(heard)
        turn = about(harness.agent, arrival)
    assert turn is not None
    await harness.agent.events.wait_idle()
    return turn


async def reflected(turn: Turn) -> bool:
    """Reflect if it is due; return whether it was."""
    assert REFLECTION.when is not None
    is_due = REFLECTION.when(turn)
    is_due = await is_due if isinstance(is_due, Awaitable) else is_due
    if is_due:
        await REFLECTION(turn)
    return is_due


async def facts_of(harness: AgentHarness, room: str = "lobby") -> list[Memory]:
    """List the facts of a room."""
    room_id = derived_id("test", "room", room)
    return await harness.agent.store.memories.recent(room_id, 1000, kind=MemoryKind.FACT)


async def known(harness: AgentHarness, room: str = "lobby") -> list[str]:
    """List the facts of a room as texts."""
    return [fact.content.text for fact in await facts_of(harness, room)]


def person(name: str) -> UUID:
    """Return a person's id."""
    return derived_id("test", "entity", name)


def called(name: str) -> str:
    """Return the id that prompts use for a person."""
    return short_id(person(name))
