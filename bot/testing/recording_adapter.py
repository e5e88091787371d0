"""An adapter that records deliveries instead of sending them."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from bot.adapter.adapter import Adapter
from bot.domain.content import Content
from bot.domain.environment import ChannelType, Room
from bot.domain.ids import derived_id
from bot.domain.ledger import Delivery
from bot.domain.reactions import ReactionSet


class RecordingAdapter(Adapter):
    """Records deliveries in `sent`, edits in `edited` and typing indicators in `typing_calls`, and in
    `busy_rooms` the rooms that were shown a busy model.

    `faults` are raised one after another before anything is sent. Texts are split into parts of `max_length`
    characters, of which the last has the attachments. Sent messages can be edited only with `can_edit`. Replies
    are streamed every `stream_interval` seconds, if set. Without `is_trusted_audience` the public message limits
    apply. Reactions are recorded in `reacted`; only those in `reactions` can be set, without it none. With
    `has_threads` threads can be opened in groups; they are recorded in `opened`, and whether as a repeat in `repeats`.
    """

    platform = "test"

    def __init__(
        self,
        *,
        faults: Iterable[Exception] = (),
        max_length: int = 0,
        can_edit: bool = False,
        stream_interval: float | None = None,
        is_trusted_audience: bool = True,
        reactions: ReactionSet | None = None,
        has_threads: bool = False,
    ) -> None:
        self.can_edit = can_edit
        self.is_trusted_audience = is_trusted_audience
        self.sent: list[Delivery] = []
        self.edited: list[Delivery] = []
        self.reacted: list[Delivery] = []
        self.opened: list[Delivery] = []
        self.repeats: list[bool] = []
        self.has_threads = has_threads
        self.attempts: list[str] = []
        self.typing_calls: list[tuple[str, bool]] = []
        self.busy_rooms: list[str] = []
        self._faults = list(faults)
        self._max_length = max_length
        self._stream_interval = stream_interval
        self._reactions = reactions
        self._changed = asyncio.Condition()

    @property
    def texts(self) -> list[str]:
        """The sent texts, in order."""
        return [delivery.content.text for delivery in self.sent]

    def split_content(self, content: Content) -> list[Content]:
        step = self._max_length or len(content.text) or 1
        texts = [content.text[start : start + step] for start in range(0, len(content.text), step)]
        parts = [Content(text=text) for text in texts]
        if parts and content.attachments:
            parts[-1] = replace(parts[-1], attachments=content.attachments)
        return parts or [content]

    async def deliver(self, delivery: Delivery) -> str:
        await self._attempt(delivery)
        async with self._changed:
            self.sent.append(delivery)
            self._changed.notify_all()
        return f"sent-{len(self.sent)}"

    async def edit(self, delivery: Delivery) -> str:
        await self._attempt(delivery)
        async with self._changed:
            self.edited.append(delivery)
            self._changed.notify_all()
        return delivery.replaces_external_id

    def find_reactions(self, room: Room) -> ReactionSet | None:
        return self._reactions

    async def react(self, delivery: Delivery) -> str:
        await self._attempt(delivery)
        async with self._changed:
            self.reacted.append(delivery)
            self._changed.notify_all()
        return delivery.content.text

    def can_open_thread(self, room: Room) -> bool:
        return self.has_threads and room.type is ChannelType.GROUP

    async def open_thread(self, delivery: Delivery, *, is_repeat: bool = False) -> str:
        await self._attempt(delivery)
        async with self._changed:
            self.opened.append(delivery)
            self.repeats.append(is_repeat)
            self._changed.notify_all()
        return f"{delivery.target}/thread-{len(self.opened)}"

    def build_thread(self, delivery: Delivery, room: Room) -> Room:
        return replace(
            room,
            id=derived_id(room.id, delivery.external_id),
            type=ChannelType.THREAD,
            external_id=delivery.external_id,
            name=delivery.content.text,
            parent_id=room.id,
        )

    def stream_interval(self, room: Room) -> float | None:
        return self._stream_interval

    async def wait_until_attempted(self, count: int) -> None:
        """Wait until `count` attempts to send or edit were made."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.attempts) >= count)

    def fail_with(self, *faults: Exception) -> None:
        """Raise these errors, one after another, before the next send or edit."""
        self._faults += faults

    async def show_model_busy(self, room: Room) -> None:
        self.busy_rooms.append(room.external_id)

    async def set_typing(self, room: Room, active: bool) -> None:
        self.typing_calls.append((room.external_id, active))

    async def wait_until_sent(self, count: int) -> list[str]:
        """Wait until `count` parts have been sent; return their texts."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.sent) >= count)
        return self.texts

    async def wait_until_edited(self, count: int) -> list[str]:
        """Wait until `count` edits have been made; return their texts."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.edited) >= count)
        return [delivery.content.text for delivery in self.edited]

    async def _attempt(self, delivery: Delivery) -> None:
        async with self._changed:
            self.attempts.append(delivery.id)
            self._changed.notify_all()
        if self._faults:
            raise self._faults.pop(0)
