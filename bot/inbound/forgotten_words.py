"""Words of people who had their data deleted, in what others send: replies to their messages, and forwards."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from bot.domain.content import FORWARDED_AT, FORWARDED_AUTHOR, FORWARDED_MESSAGE, Content
from bot.domain.edits import ERASURE_COMPONENT
from bot.domain.inbound import InboundMessage
from bot.domain.ledger import Rule
from bot.store.environment import EntityStore
from bot.store.ledger import Ledger

REMOVED_FORWARD = "[a forwarded message of a person whose data was deleted]"


class EventAuthor(NamedTuple):
    """Who wrote which message of a room."""

    room_id: UUID
    message_id: str
    author_id: UUID


@dataclass(frozen=True, slots=True)
class ForgottenWords:
    """Removes from inbound messages what people wrote before they had their data deleted."""

    ledger: Ledger
    entities: EntityStore

    async def remove_all(self, messages: Sequence[InboundMessage]) -> list[InboundMessage]:
        """Return messages without such words; raises as the store does."""
        batch = [EventAuthor(message.room.id, message.key.message_id, message.author.id) for message in messages]
        return [await self._remove(message, batch) for message in messages]

    async def _remove(self, inbound: InboundMessage, batch: Collection[EventAuthor]) -> InboundMessage:
        content = inbound.message.content
        cleaned = await self._clean_forward(await self._clean_quotation(content, inbound.room.id, batch))
        return inbound if cleaned is content else replace(inbound, message=replace(inbound.message, content=cleaned))

    async def _clean_quotation(self, content: Content, room_id: UUID, batch: Collection[EventAuthor]) -> Content:
        """Return a content without a quotation of such words: what was written later is stored, or in the batch."""
        quotation = content.quotation
        if quotation is None or quotation.author_id is None or not await self._forgotten_at(quotation.author_id):
            return content
        quoted = EventAuthor(room_id, quotation.message_id, quotation.author_id)
        receipts = await self.ledger.receipts_by_message_id(quotation.message_id) if quotation.message_id else []
        is_known = quoted in batch or any(
            EventAuthor(receipt.room_id, receipt.key.message_id, receipt.author_id) == quoted
            and receipt.rule != Rule.ERASED
            for receipt in receipts
        )
        return content if is_known else replace(content, quotation=None)

    async def _clean_forward(self, content: Content) -> Content:
        """Return a content whose metadata names the author of a forwarded message, if that is known."""
        metadata = content.metadata
        if FORWARDED_MESSAGE in metadata:
            receipts = await self.ledger.receipts_by_message_id(str(metadata[FORWARDED_MESSAGE]))
            if receipts:
                content = replace(content, metadata={**metadata, FORWARDED_AUTHOR: str(receipts[-1].author_id)})
        if FORWARDED_AUTHOR not in content.metadata:
            return content
        forgotten_at = await self._forgotten_at(UUID(str(content.metadata[FORWARDED_AUTHOR])))
        written_at = datetime.fromisoformat(str(content.metadata[FORWARDED_AT]))
        if forgotten_at is None or written_at > forgotten_at:
            return content
        return replace(content, text=REMOVED_FORWARD, attachments=(), metadata={})

    async def _forgotten_at(self, author_id: UUID) -> datetime | None:
        components = await self.entities.components(author_id, ERASURE_COMPONENT)
        times = (datetime.fromisoformat(component.data["at"]) for component in components)
        return max(times, default=None)
