"""An adapter that keeps what it is given to send."""

import asyncio
from collections.abc import Iterable

from bot.domain.content import Content
from bot.domain.ledger import Delivery
from bot.domain.places import Room
from bot.platform.adapter import Adapter


class RecordingAdapter(Adapter):
    """Keeps every delivery in `sent`, every edit in `edited` and every typing sign in `typings`.

    `faults` are raised one after another before anything is sent; with `longest` texts are cut
    into parts of that many characters; without `can_edit` nothing that was said can be changed.
    """

    platform = "test"

    def __init__(self, *, faults: Iterable[Exception] = (), longest: int = 0, can_edit: bool = False) -> None:
        self.can_edit = can_edit
        self.sent: list[Delivery] = []
        self.edited: list[Delivery] = []
        self.attempts: list[str] = []
        self.typings: list[tuple[str, bool]] = []
        self._faults = list(faults)
        self._longest = longest
        self._changed = asyncio.Condition()

    @property
    def texts(self) -> list[str]:
        """What was said, in order."""
        return [delivery.content.text for delivery in self.sent]

    def parts(self, content: Content) -> list[Content]:
        step = self._longest or len(content.text) or 1
        cut = [content.text[start : start + step] for start in range(0, len(content.text), step)]
        return [Content(text=text) for text in cut] or [content]

    async def deliver(self, delivery: Delivery) -> str:
        self.attempts.append(delivery.id)
        if self._faults:
            raise self._faults.pop(0)
        async with self._changed:
            self.sent.append(delivery)
            self._changed.notify_all()
        return f"sent-{len(self.sent)}"

    async def edit(self, delivery: Delivery) -> str:
        self.attempts.append(delivery.id)
        if self._faults:
            raise self._faults.pop(0)
        self.edited.append(delivery)
        return delivery.edits

    async def typing(self, room: Room, active: bool) -> None:
        self.typings.append((room.external_id, active))

    async def until_sent(self, count: int) -> list[str]:
        """Wait until that many parts have been sent, and give their texts."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.sent) >= count)
        return self.texts
