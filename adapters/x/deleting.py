"""Deleting posts of one account, on X and in the store."""

from uuid import UUID

from adapters.x.client import XClient
from adapters.x.connection import RequestRefused
from adapters.x.incoming import PLATFORM
from bot.platform import AgentHandle, Delivery, DeliveryError, DeliveryState, NotSent, Undeliverable

NOT_FOUND, FORBIDDEN = 404, 403
FINAL_STATES = (DeliveryState.SENT, DeliveryState.CANCELLED)


class PostDeleter:
    """Deletes posts of one account; `feed_room_id` is the room of its timeline."""

    def __init__(self, handle: AgentHandle, client: XClient, feed_room_id: UUID) -> None:
        self._handle = handle
        self._client = client
        self._feed_room_id = feed_room_id

    async def delete(self, post_id: str) -> bool:
        """Delete a post, with the whole thread it belongs to; return False if X did not have it any more.

        What is stored of it is deleted as well, and its unsent parts are given up. Repeating it is safe.
        Raises NotSent or DeliveryUnknown if X cannot do it now, Undeliverable if X refuses it for good.
        """
        parts = await self._find_parts(post_id)
        for part in parts:
            if part.state not in FINAL_STATES:
                await self._give_up(part)
        post_ids = [part.external_id for part in parts if part.external_id] or [post_id]
        was_there = [await self._delete_on_x(item) for item in reversed(post_ids)]  # an interruption leaves the start
        if parts:
            await self._handle.edits.delete_messages(parts[0].room_id, [post_id])
        return any(was_there)

    async def _find_parts(self, post_id: str) -> list[Delivery]:
        """Return all parts of the stored message that a post belongs to; empty if it is not stored."""
        rooms = [room.id for room in await self._handle.conversations.rooms() if room.platform == PLATFORM]
        for room_id in sorted(rooms, key=lambda room_id: room_id != self._feed_room_id):
            deliveries = await self._handle.conversations.room_deliveries(room_id)
            part = next((delivery for delivery in deliveries if delivery.external_id == post_id), None)
            if part is not None:
                return [delivery for delivery in deliveries if delivery.memory_id == part.memory_id]
        return []

    async def _give_up(self, part: Delivery) -> None:
        decision = await self._handle.undelivered.drop(part.id)
        if decision is not None and not decision.is_done:
            raise NotSent(f"part {part.id}: {decision.note}")

    async def _delete_on_x(self, post_id: str) -> bool:
        try:
            return await self._client.delete_post(post_id)
        except RequestRefused as error:
            if error.status == NOT_FOUND or (error.status == FORBIDDEN and await self._is_gone(post_id, error)):
                return False
            raise Undeliverable(str(error)) from error

    async def _is_gone(self, post_id: str, refusal: RequestRefused) -> bool:
        """Return whether a post that may not be deleted is gone; raise Undeliverable if it is another account's."""
        try:
            page = await self._client.read_posts([post_id])
        except (DeliveryError, RequestRefused):
            return False
        if not page.posts:
            return True
        author_id = page.posts[0].author_id
        if author_id == self._client.account_id:
            return False
        author = page.users.get(author_id)
        name = f"@{author.username}" if author else author_id
        raise Undeliverable(f"it is a post of {name}, and an account can delete only its own ({refusal})")
