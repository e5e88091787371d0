"""Gateway events in order: queue, backfill, inbox."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import discord
from discord.gateway import ReconnectWebSocket

from adapters.discord import incoming
from adapters.discord.backfill import Backfill
from adapters.discord.client import DiscordClient, GatewayEvent, GatewaySession
from adapters.discord.config import DiscordSettings, Limits
from adapters.discord.entities import PLATFORM, EntityMapper, build_lineage
from adapters.discord.membership import MembershipHandler
from bot import Clock
from bot.platform import AgentHandle, InboundMessage, InboxClosed, MentionContext, StreamCursor
from bot.store import StoreUnavailable

logger = logging.getLogger(__name__)

SESSION_CURSOR = "gateway"
MAX_BATCH = 100
STORE_RETRY_SECONDS = 1.0
SESSION_STARTED = "connect"
CONNECTED_EVENTS = ("ready", "resumed")
LATE_GUILD = "guild_available"


class EventReceiver:
    """Stores the events of one account in order, together with the position in the gateway session.

    After a new session has started, messages wait until the missed ones are stored: otherwise the start of
    the gap would be lost.
    """

    def __init__(
        self,
        handle: AgentHandle,
        client: DiscordClient,
        mapper: EntityMapper,
        settings: DiscordSettings,
        limits: Limits,
        *,
        on_author: Callable[[str, str], None],
        clock: Clock,
        on_connected: Callable[[], None],
    ) -> None:
        self._handle, self._client, self._mapper = handle, client, mapper
        self._settings, self._limits, self._clock = settings, limits, clock
        self._on_author = on_author
        self._on_connected = on_connected
        self.queue = EventQueue(limits.max_queued_events)
        self._deferred: list[GatewayEvent] | None = None
        self._backfill = Backfill(handle, client, mapper, limits)
        self._handlers: dict[str, Callable[..., Awaitable[object]]] = {
            **MembershipHandler(handle, mapper).handlers,
            "raw_message_edit": self._on_edit,
            "raw_message_delete": self._on_delete,
            "raw_bulk_message_delete": self._on_bulk_delete,
            "raw_reaction_add": self._on_reaction,
            "raw_reaction_remove": self._on_reaction_removed,
            "raw_reaction_clear": self._on_reaction_removed,
            "raw_reaction_clear_emoji": self._on_reaction_removed,
        }

    def enqueue(self, event: GatewayEvent) -> None:
        """Add an event to the queue."""
        if event.name in self._handlers or event.name in ("message", SESSION_STARTED, *CONNECTED_EVENTS):
            self.queue.add(event)

    async def run(self) -> None:
        """Process queued events until the inbox closes."""
        try:
            while True:
                await self._process_batch(await self.queue.next(MAX_BATCH))
                self.queue.mark_stored()
        except InboxClosed:
            logger.debug("no more Discord events are processed")

    async def _process_batch(self, batch: Sequence[GatewayEvent]) -> None:
        """Process a batch; consecutive messages are stored in one transaction."""
        messages: list[GatewayEvent] = []
        for event in batch:
            if event.name == "message" and self._deferred is None:
                messages.append(event)
                continue
            await self._process_reliably(self._submit_messages, messages)
            messages = []
            await self._process_reliably(self._process_event, event)
        await self._process_reliably(self._submit_messages, messages)

    async def _process_reliably(self, process: Callable[[Any], Awaitable[None]], item: Any) -> None:
        """Process an item, retrying while the store is unavailable; skip it if it fails."""
        while item:
            try:
                await process(item)
            except StoreUnavailable:
                await self._limits.sleep(STORE_RETRY_SECONDS)
                continue
            except InboxClosed:
                raise
            except Exception:  # an event may be invalid in any way: later events must not wait
                if isinstance(item, list) and len(item) > 1:  # only the event that fails is lost
                    for event in item:
                        await self._process_reliably(process, [event])
                else:
                    logger.warning("skipped a Discord event that failed", exc_info=True)
            return

    async def _process_event(self, event: GatewayEvent) -> None:
        if event.name == SESSION_STARTED:
            self._deferred = []
        elif event.name in CONNECTED_EVENTS:
            self._on_connected()
            await self._finish_backfill(event.session)
        elif self._deferred is not None and event.name not in MembershipHandler.BEFORE_BACKFILL:
            self._deferred.append(event)
        else:
            await self._handlers[event.name](*event.args)
            if event.name == LATE_GUILD and self._deferred is None:
                await self._submit_missed(self._backfill.read_missed_in(*event.args))

    async def _finish_backfill(self, session: GatewaySession | None) -> None:
        """Store the missed messages, then the deferred events."""
        if self._deferred is None:
            return
        await self._submit_missed(self._backfill.read_missed())
        deferred, self._deferred = self._deferred, None
        await self._process_batch(deferred)
        await self._handle.submit_all([], self._session_cursor(session))

    async def _submit_missed(self, batches: AsyncIterator[list[discord.Message]]) -> None:
        try:
            async for missed in batches:
                inbound = [self._to_inbound(message, is_backfill=True) for message in missed]
                await self._handle.submit_all([message for message in inbound if message])
        except (StoreUnavailable, InboxClosed):
            raise
        except Exception:  # new messages must not wait for a failed backfill
            logger.exception("missed Discord messages could not be read")

    async def _submit_messages(self, events: Sequence[GatewayEvent]) -> None:
        inbound = [self._to_inbound(*event.args) for event in events]
        messages = [message for message in inbound if message]
        cursor = self._session_cursor(events[-1].session)
        if messages or cursor:
            await self._handle.submit_all(messages, cursor)

    def _session_cursor(self, session: GatewaySession | None) -> StreamCursor | None:
        return StreamCursor(PLATFORM, self._mapper.account, SESSION_CURSOR, session.to_json()) if session else None

    def _to_inbound(self, message: discord.Message, *, is_backfill: bool = False) -> InboundMessage | None:
        """Build the inbound message with the rule that forbids an answer; return None if it is not stored."""
        try:
            if not self._should_store(message):
                return None
            mention = self._mention_context(message)
            if mention is None:
                return None
            self._on_author(str(message.channel.id), str(message.author.id))
            return incoming.to_inbound_message(message, self._mapper, mention, is_backfill=is_backfill)
        except Exception:  # the library does not check types: one invalid message costs no other
            logger.warning("message %s could not be read", message.id, exc_info=True)
            return None

    def _should_store(self, message: discord.Message) -> bool:
        application_id = self._client.application_id
        is_own_webhook = message.webhook_id and application_id and message.application_id == application_id
        is_own = message.author.id == self._mapper.bot_id or is_own_webhook
        if is_own or message.type not in incoming.USER_MESSAGE_TYPES:
            return False
        is_bot = bool(message.author.bot or message.webhook_id)
        return not (is_bot and self._settings.discord_should_ignore_bot_messages)

    def _mention_context(self, message: discord.Message) -> MentionContext | None:
        """Return how a message addresses the bot and what forbids an answer; None if it is not stored."""
        guild_id = incoming.guild_id_of(message)
        lineage_ids = build_lineage(message.channel, guild_id)
        rule = self._handle.room_rules.find(PLATFORM, *lineage_ids)
        if rule.is_ignored:
            return None
        mention = incoming.build_mention(message, self._mapper.bot_id)
        return incoming.apply_rules(mention, lineage_ids, self._settings, rule, is_direct=guild_id is None)

    async def _on_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        message, edited_at = payload.message, payload.message.edited_at
        mention = self._mention_context(message) if edited_at is not None and self._should_store(message) else None
        if edited_at is not None and mention is not None:
            inbound = incoming.to_inbound_message(message, self._mapper, mention, edited_at=edited_at)
            await self._handle.edits.submit_edit(inbound)

    async def _on_delete(self, payload: discord.RawMessageDeleteEvent) -> None:
        await self._handle.edits.delete_messages(self._mapper.room_id(payload.channel_id), [str(payload.message_id)])

    async def _on_bulk_delete(self, payload: discord.RawBulkMessageDeleteEvent) -> None:
        message_ids = sorted(map(str, payload.message_ids))
        await self._handle.edits.delete_messages(self._mapper.room_id(payload.channel_id), message_ids)

    async def _on_reaction(self, payload: discord.RawReactionActionEvent) -> None:
        if payload.user_id == self._mapper.bot_id:
            return
        channel = self._client.get_channel(payload.channel_id) or self._client.get_partial_messageable(
            payload.channel_id, guild_id=payload.guild_id
        )
        guild = self._client.get_guild(payload.guild_id) if payload.guild_id else None
        await self._handle.edits.add_reaction(
            incoming.build_reaction(payload, channel, guild, self._mapper, timestamp=self._clock())
        )

    async def _on_reaction_removed(
        self,
        payload: discord.RawReactionActionEvent | discord.RawReactionClearEvent | discord.RawReactionClearEmojiEvent,
    ) -> None:
        user_id, emoji = getattr(payload, "user_id", None), getattr(payload, "emoji", None)
        await self._handle.edits.remove_reactions(
            self._mapper.room_id(payload.channel_id),
            str(payload.message_id),
            author_id=self._mapper.entity_id(user_id) if user_id else None,
            emoji=str(emoji or ""),
        )


class QueueFull(ReconnectWebSocket):
    """The queue stayed full: the connection ends and is resumed once there is room."""


class EventQueue:
    """Bounded queue of gateway events.

    Once `max_size` events wait, it is full until all are stored. Nothing more is read then: unread events
    come again when the session is resumed, or are fetched.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._events: asyncio.Queue[GatewayEvent] = asyncio.Queue()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._in_progress = 0
        self._is_full_logged = False

    def __len__(self) -> int:
        return self._events.qsize() + self._in_progress

    def add(self, event: GatewayEvent) -> None:
        """Add an event, also to a full queue: it was read already."""
        self._events.put_nowait(event)
        if len(self) >= self._max_size:
            self._has_room.clear()

    async def next(self, max_items: int) -> Sequence[GatewayEvent]:
        """Wait for an event; return it with those that follow, at most `max_items`."""
        events = [await self._events.get()]
        while len(events) < max_items and not self._events.empty():
            events.append(self._events.get_nowait())
        self._in_progress = len(events)
        return events

    def mark_stored(self) -> None:
        """Mark the events returned last as stored."""
        self._in_progress = 0
        if len(self):
            return
        self._has_room.set()
        if self._is_full_logged:
            self._is_full_logged = False
            logger.warning("all queued Discord events are stored: reading continues")

    async def require_room(self, timeout: float) -> None:
        """Wait for room before reading on; raise QueueFull after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._has_room.wait()
        except TimeoutError:
            if not self._is_full_logged:
                self._is_full_logged = True
                logger.warning("%d Discord events cannot be stored: reading pauses until they are", len(self))
            raise QueueFull(None) from None

    async def wait_for_room(self) -> None:
        """Wait until there is room."""
        await self._has_room.wait()
