"""What has been said before: the answer that an edit gives anew, and our own words coming back."""

from bot.domain.changes import LATE_EDIT
from bot.domain.ledger import Outcome
from bot.domain.memory import Memory, MemoryKind
from bot.turn import Turn

LAST_WORDS = 20


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
