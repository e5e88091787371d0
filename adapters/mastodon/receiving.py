"""Receiving: notifications from a stored position on, woken by the stream of events; edits and deletions."""

import json
import logging
from typing import Any

from adapters.mastodon import incoming
from adapters.mastodon.client import MastodonClient, RequestRefused, UnreadableAnswer
from adapters.mastodon.config import MastodonSettings
from bot.platform import AgentHandle, InboundMessage, Reaction, StreamCursor

logger = logging.getLogger(__name__)
POSITION_KEY = "notifications"
ANSWERED_RULE = "answered already"
EMOJIS = {"favourite": "⭐", "reblog": "🔁"}
CONVERSION_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
MAX_CONTEXT = 10  # posts above a mention that are stored with it


class NotificationReceiver:
    """The notifications of one account. Calls raise as the client and the inbox do."""

    def __init__(
        self, handle: AgentHandle, identity: incoming.BotIdentity, client: MastodonClient, settings: MastodonSettings
    ) -> None:
        self._handle, self._identity, self._client, self._settings = handle, identity, client, settings
        self._world = incoming.build_world(identity.host, identity.agent_id)

    async def poll(self, *, is_backfill: bool) -> None:
        """Read and store what is new. With `is_backfill` old mentions are stored and not answered.

        At the very first call only the latest page is read, and what the account has answered is not answered again.
        """
        position = await self._handle.cursor(incoming.PLATFORM, self._identity.account, POSITION_KEY)
        is_repeated = False
        while True:
            page = await self._client.notifications(position)
            messages: list[InboundMessage] = []
            for raw in reversed(page):
                try:
                    messages += await self._read(raw, is_first=position is None, is_backfill=is_backfill)
                except CONVERSION_ERRORS as error:  # one notification must not stop all that follow
                    raw_id = raw.get("id") if isinstance(raw, dict) else None
                    await self._record_unreadable(f"notification {raw_id}" if raw_id else "", raw, error)
            ids = [raw["id"] for raw in page if isinstance(raw, dict) and isinstance(raw.get("id"), str)]
            newest = max([position or "0", *ids], key=_order)
            if not page and position is not None:
                return
            cursor = StreamCursor(incoming.PLATFORM, self._identity.account, POSITION_KEY, newest)
            await self._handle.submit_tolerant(messages, cursor)
            if position is None or (newest == position and is_repeated):  # a server may ignore the position
                return
            position, is_repeated = newest, newest == position

    async def handle_event(self, name: str, data: str) -> None:
        """Apply an edit or a deletion of a stored message that the stream reports."""
        if name == "delete":
            if room := await self._handle.conversations.room_of_message(self._world.id, data):
                await self._handle.edits.delete_messages(room.id, [data])
        elif name == "status.update":
            try:
                status = incoming.Status.model_validate(json.loads(data))
            except ValueError as error:
                await self._record_unreadable("", data, error)
                return
            if status.edited_at is None or status.account.id == self._identity.own.id:
                return
            if await self._handle.conversations.room_of_message(self._world.id, status.id):
                thread = await self._thread_of(status, needs_thread=False)
                received = incoming.ReceivedPost(status, self._identity, thread.ancestors)
                revision = round(status.edited_at.timestamp() * 1000)
                event_id = f"{status.id} edited {status.edited_at.isoformat()}"
                denied_by = self._denying_rule(received)
                await self._handle.edits.submit_edit(
                    received.to_inbound(denied_by=denied_by, event_id=event_id, revision=revision)
                )

    async def _read(self, raw: Any, *, is_first: bool, is_backfill: bool) -> list[InboundMessage]:
        """Return the messages of a notification; any other one takes effect at once."""
        notification = incoming.Notification.model_validate(raw)
        status = notification.status
        if notification.type == "follow_request":
            await self._answer_follower(notification)
        elif notification.type in EMOJIS and status is not None:
            await self._add_reaction(notification, status)
        elif notification.type == "mention" and status is not None and status.account.id != self._identity.own.id:
            return await self._read_mention(status, is_first=is_first, is_backfill=is_backfill or is_first)
        return []

    async def _read_mention(
        self, status: incoming.Status, *, is_first: bool, is_backfill: bool
    ) -> list[InboundMessage]:
        """Return a mention after the posts above it; nothing where a rule ignores its room."""
        thread = await self._thread_of(status, needs_thread=is_first)
        received = incoming.ReceivedPost(status, self._identity, thread.ancestors)
        rule = self._handle.room_rules.find(incoming.PLATFORM, received.room.external_id, self._identity.host)
        if rule.is_ignored:
            return []
        own_id = self._identity.own.id
        answers = (post for post in thread.descendants if post.account.id == own_id)
        is_answered = is_first and any(post.in_reply_to_id == status.id for post in answers)
        denied_by = ANSWERED_RULE if is_answered else self._denying_rule(received)
        is_known = await self._handle.conversations.room(received.room.id) is not None
        context = [post for post in received.context() if not (is_known and post.status.account.id == own_id)]
        return [
            *(post.to_inbound(denied_by=incoming.THREAD_CONTEXT) for post in context[-MAX_CONTEXT:]),
            received.to_inbound(denied_by=denied_by, is_backfill=is_backfill),
        ]

    def _denying_rule(self, received: incoming.ReceivedPost) -> str:
        rule = self._handle.room_rules.find(incoming.PLATFORM, received.room.external_id, self._identity.host)
        return rule.refusal_for(received.mention, is_direct=received.room.type.is_direct)

    async def _thread_of(self, status: incoming.Status, *, needs_thread: bool) -> incoming.Thread:
        """Return the posts around a post; none where it answers none, or the server does not show them."""
        if status.in_reply_to_id is None and not needs_thread:
            return incoming.Thread()
        try:
            return await self._client.thread(status.id)
        except (RequestRefused, UnreadableAnswer) as error:
            logger.info("the thread of post %s is not read: %s", status.id, error)
            return incoming.Thread()

    async def _add_reaction(self, notification: incoming.Notification, status: incoming.Status) -> None:
        """Store a favourite or a boost of a post that the agent has made."""
        if room := await self._handle.conversations.room_of_message(self._world.id, status.id):
            author = incoming.to_entity(notification.account, self._identity)
            emoji = EMOJIS[notification.type]
            await self._handle.edits.add_reaction(
                Reaction(self._world, room, author, status.id, emoji, notification.created_at)
            )

    async def _answer_follower(self, notification: incoming.Notification) -> None:
        """Accept a request to follow if its sender is on the list."""
        name = self._identity.full_name(notification.account.acct)
        allowed = {item.removeprefix("@").lower() for item in self._settings.mastodon_allowed_followers}
        if allowed.isdisjoint((name, name.partition("@")[2])):
            return
        try:
            await self._client.accept_follower(notification.account.id)
            logger.info("accepted that %s follows the account", name)
        except RequestRefused as error:
            logger.warning("the request of %s to follow could not be accepted: %s", name, error)

    async def _record_unreadable(self, event_id: str, raw: object, error: object) -> None:
        await self._handle.record_unreadable(incoming.PLATFORM, self._identity.account, event_id, raw, error)


def _order(notification_id: str) -> tuple[int, str]:
    """Return the place of an id among others: a number, or another text that grows with time."""
    return len(notification_id), notification_id
