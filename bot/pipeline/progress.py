"""The message that says that a long-running action is under way, edited with the progress that it reports."""

import asyncio
from contextlib import suppress
from dataclasses import replace

from bot.domain.content import Content
from bot.domain.ids import derived_id
from bot.domain.ledger import DeliveryState
from bot.domain.memory import PROGRESS_KEY, Memory, MemoryKind
from bot.errors import StoreUnavailable
from bot.outbound.message_parts import OutgoingReply
from bot.turn import REPLIES_PER_STEP, Turn
from bot.user_texts import user_text

ACKNOWLEDGE_SECONDS = 5.0
EDIT_SECONDS = 3.0  # between two edits of the message


class ActionProgress:
    """What the room sees of one action while it runs; `step` is the number of its replies' step.

    It is no reply of the turn: what the action found or did is still told.
    """

    def __init__(self, turn: Turn, step: int) -> None:
        self._turn, self._step = turn, step
        self._text = user_text("actions.under_way")
        self._changed = asyncio.Event()

    def report(self, text: str) -> None:
        """Show this text from the next edit on."""
        self._text = text
        self._changed.set()

    async def show(self) -> None:
        """Post the message once the action takes long, and edit it from then on, until cancelled.

        From the first message on, the next turn of the room does not wait for this one.
        """
        await asyncio.sleep(ACKNOWLEDGE_SECONDS)
        self._turn.release_room()
        while True:
            self._changed.clear()
            with suppress(StoreUnavailable):  # the result is told all the same
                await self._show_text(self._text)
            await asyncio.sleep(EDIT_SECONDS)
            await self._changed.wait()

    async def _show_text(self, text: str) -> None:
        turn, agent = self._turn, self._turn.agent
        if turn.is_cancelled or turn.is_stopped:
            return
        memory_id = derived_id(turn.id, "progress", str(self._step))
        earlier = (await agent.store.memories.memories([memory_id])).get(memory_id)
        if earlier is not None and not await self._can_edit(earlier, text):
            return
        memory = Memory(
            id=memory_id,
            kind=MemoryKind.MESSAGE,
            entity_id=agent.id,
            room_id=turn.room.id,
            world_id=turn.world.id,
            content=Content(text, in_reply_to=turn.message.id, source=turn.message.content.source),
            created_at=agent.clock(),
            turn_id=turn.id,
            metadata={PROGRESS_KEY: 1},
        )
        if earlier is not None:
            count = earlier.metadata[PROGRESS_KEY] + 1
            memory = replace(memory, created_at=earlier.created_at, metadata={PROGRESS_KEY: count})
        index = (self._step + 1) * REPLIES_PER_STEP - memory.metadata[PROGRESS_KEY]  # behind the replies of the step
        await agent.outbox.commit([OutgoingReply(memory, turn.room, index, turn.message.external_id, earlier)])

    async def _can_edit(self, earlier: Memory, text: str) -> bool:
        """Return whether the message can show another text: it has arrived, and the platform has edits."""
        adapter = self._turn.agent.outbox.adapter(self._turn.room.platform)
        if adapter is None or not adapter.can_edit or earlier.content.text == text:
            return False
        parts = await self._turn.agent.store.ledger.deliveries(turn_id=self._turn.id)
        own = [part for part in parts if part.memory_id == earlier.id]
        return bool(own) and all(part.state is DeliveryState.SENT for part in own)
