"""What has been said before: an answer that is given anew, our own words coming back, the same once more."""

from datetime import timedelta

from bot.domain.edits import LATE_EDIT
from bot.domain.ledger import Outcome
from bot.domain.memory import Memory, MemoryKind
from bot.store.similarity import wording
from bot.turn import Turn

LAST_WORDS = 20
LAST_MESSAGES = 100
WHILE = timedelta(minutes=10)
MOST_ALIKE = 3
REPETITION = "repetition"


async def earlier_answer(turn: Turn) -> Memory | None:
    """Find what was first said to a message that is edited now, where it was answered."""
    receipt = turn.inputs[-1].receipt
    if receipt.rule != LATE_EDIT:
        return None
    for one in await turn.agent.store.ledger.called(receipt.key.message_id):
        is_earlier = one.memory_id == receipt.memory_id and one.outcome is Outcome.ANSWERED
        if is_earlier and one.turn_id not in (None, turn.id):
            made = await turn.agent.store.memories.by_turn(one.turn_id)
            return next((memory for memory in made if memory.kind is MemoryKind.MESSAGE), None)
    return None


async def drop_echo(turn: Turn) -> None:
    """Forget a message of ours that only brings back what is remembered as said already."""
    memories, echo = turn.agent.store.memories, turn.message
    last = await memories.recent(turn.room.id, LAST_WORDS)
    ours = (one for one in last if one.entity_id == turn.agent.id and one.turn_id is not None)
    if any(echo.content.text in one.content.text for one in ours):
        await memories.remove([echo.id])


async def is_repetition(turn: Turn, text: str) -> bool:
    """Tell whether the agent has said the same here three times within ten minutes."""
    last = await turn.agent.store.memories.recent(turn.room.id, LAST_MESSAGES)
    since = turn.agent.clock() - WHILE
    own = (one for one in last if one.entity_id == turn.agent.id and one.created_at >= since)
    return sum(wording(one.content.text) == wording(text) for one in own) >= MOST_ALIKE
