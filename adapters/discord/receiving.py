"""Gateway events in order: queue, backfill, inbox."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import discord
from discord.gateway import ReconnectWebSocket

from adapters.discord import incoming
from adapters.discord.backfill import Backfill, MissedMessages
from adapters.discord.client import POSITION, UNREADABLE, DiscordClient, GatewayEvent, GatewaySession
from adapters.discord.config import PLATFORM, DiscordSettings, Limits
from adapters.discord.entities import EntityMapper, build_lineage
from adapters.discord.membership import MembershipHandler
from adapters.discord.sharding import SESSION_CURSOR, ShardId
from bot import Clock
from bot.platform import AgentHandle, Backoff, InboundMessage, InboxClosed, MentionContext, StreamCursor, TaskSet
from bot.store import StoreUnavailable

logger = logging.getLogger(__name__)

MAX_BATCH = 100
STORE_RETRY_SECONDS = 1.0
MESSAGE_CREATED = "MESSAGE_CREATE"
SESSION_STARTED = "connect"
CONNECTED_EVENTS = ("ready", "resumed")
LATE_GUILD, GUILD_UNAVAILABLE = "guild_available", "guild_unavailable"
READ_UNREAD = "read_unread"  # event: the channels that could not be read are read again
QUEUED_EVENTS = ("message", SESSION_STARTED, *CONNECTED_EVENTS, UNREADABLE, READ_UNREAD)


@dataclass(frozen=True, slots=True)
class UnreadablePayload:
    """An event as the gateway sends it, and why it could not be read."""

    raw: Any
    error: Exception

    @property
    def event_id(self) -> str:
        """The id of a message; blank for other events, which their content identifies."""
        match self.raw:
            case {"t": str(name), "d": {"id": str(message_id)}} if name == MESSAGE_CREATED:
                return f"message {message_id}"
        return ""


class EventReceiver:
    """Stores the events of one shard in order, together with the position in the gateway session.

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
        shard: ShardId,
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
        self._enqueued_session: GatewaySession | None = None
        self._saved_session: GatewaySession | None = None
        self._shard = shard
        self.backfill = Backfill(handle, client, mapper, limits, shard)
        self._unread_failures, self._backoff = 0, Backoff(1.0, limits.max_retry_delay)
        self._tasks = TaskSet("reading missed Discord messages")
        self._handlers: dict[str, Callable[..., Awaitable[object]]] = {
            **MembershipHandler(handle, mapper).handlers,
            "raw_message_edit": self._on_edit,
            "raw_message_delete": self._on_delete,
            "raw_bulk_message_delete": self._on_bulk_delete,
            "raw_reaction_add": self._on_reaction,
            "raw_reaction_remove": self._on_reaction_removed,
            "raw_reaction_clear": self._on_reaction_removed,
            "raw_reaction_clear_emoji": self._on_reaction_removed,
            "raw_typing": self._on_typing,
            GUILD_UNAVAILABLE: self._on_guild_unavailable,
        }

    def enqueue(self, event: GatewayEvent) -> None:
        """Add an event to the queue, or the position after events that need no processing."""
        is_position = event.name == POSITION and _is_after(event.session, self._enqueued_session)
        if is_position or event.name in self._handlers or event.name in QUEUED_EVENTS:
            self._enqueued_session = event.session or self._enqueued_session
            self.queue.add(event)

    async def run(self) -> None:
        """Process queued events until the inbox closes."""
        try:
            while True:
                await self._process_batch(await self.queue.next(MAX_BATCH))
                self.queue.mark_stored()
        except InboxClosed:
            logger.debug("no more Discord events are processed")
        finally:
            await self._tasks.cancel()

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
        if self._deferred is None:
            await self._process_reliably(self._save_position, batch[-1:])

    async def _process_reliably(self, process: Callable[[Any], Awaitable[None]], item: Any) -> None:
        """Process an item, retrying while the store is unavailable; record it if it fails."""
        while item:
            try:
                await process(item)
            except StoreUnavailable:
                await self._limits.sleep(STORE_RETRY_SECONDS)
                continue
            except InboxClosed:
                raise
            except Exception as error:  # an event may be invalid in any way: later events must not wait
                events = item if isinstance(item, Sequence) else [item]
                if isinstance(item, UnreadablePayload):
                    logger.exception("an unreadable Discord event could not be recorded")
                elif len(events) > 1:  # only the event that fails is skipped
                    for event in events:
                        await self._process_reliably(process, [event])
                else:
                    logger.debug("a Discord event failed", exc_info=True)
                    await self._process_reliably(self._record, UnreadablePayload(events[0].raw, error))
            return

    async def _process_event(self, event: GatewayEvent) -> None:
        if event.name == POSITION:
            return
        if event.name == SESSION_STARTED:
            self._deferred = []
        elif event.name in CONNECTED_EVENTS:
            self._on_connected()
            await self._finish_backfill()
        elif event.name == READ_UNREAD:
            await self._submit_missed(self.backfill.read_unread())
        elif event.name == UNREADABLE:
            await self._record(UnreadablePayload(event.raw, *event.args))
        elif self._deferred is not None and event.name not in (*MembershipHandler.BEFORE_BACKFILL, GUILD_UNAVAILABLE):
            self._deferred.append(event)
        else:
            await self._handlers[event.name](*event.args)
            if event.name == LATE_GUILD and self._deferred is None:
                await self._submit_missed(self.backfill.read_missed_in(*event.args))

    async def _finish_backfill(self) -> None:
        """Store the missed messages, then the deferred events."""
        if self._deferred is None:  # resumed: nothing was missed, but an earlier session may have left a gap
            await self._submit_missed(self.backfill.read_unread())
            return
        await self._submit_missed(self.backfill.read_missed())
        deferred, self._deferred = self._deferred, None
        await self._process_batch(deferred)

    async def _submit_missed(self, batches: AsyncIterator[MissedMessages]) -> None:
        try:
            async for missed in batches:
                await self._apply_missed_changes(missed)  # before the answers to the missed messages are begun
                inbound = [await self._read_missed(payload, missed.channel) for payload in missed.payloads]
                await self._handle.submit_tolerant([message for message in inbound if message], missed.cursor)
        except (StoreUnavailable, InboxClosed):
            raise
        except Exception:  # new messages must not wait for a failed backfill
            logger.exception("missed Discord messages could not be read")
        self._unread_failures = self._unread_failures + 1 if self.backfill.has_unread else 0
        if self.backfill.has_unread:
            self._tasks.start(self._retry_unread(self._backoff.delay(self._unread_failures)))

    async def _retry_unread(self, delay: float) -> None:
        await self._limits.sleep(delay)
        self.queue.add(GatewayEvent(READ_UNREAD, ()))

    async def _apply_missed_changes(self, missed: MissedMessages) -> None:
        """Store the edits and deletions that were missed in a channel."""
        for payload in missed.edited:
            if edit := await self._read_missed(payload, missed.channel, is_edit=True):
                await self._handle.edits.submit_edit(edit)
        if missed.deleted_ids:
            await self._handle.edits.delete_messages(self._mapper.room_id(missed.channel.id), missed.deleted_ids)

    async def _read_missed(self, payload: Any, channel: Any, *, is_edit: bool = False) -> InboundMessage | None:
        try:
            message = self._client._connection.create_message(channel=channel, data=payload)
            return self._to_inbound(message, is_backfill=True, edited_at=message.edited_at if is_edit else None)
        except Exception as error:  # the library does not check types: one invalid message costs no other
            await self._record(UnreadablePayload({"t": MESSAGE_CREATED, "d": payload}, error))
            return None

    async def _submit_messages(self, events: Sequence[GatewayEvent]) -> None:
        inbound = []
        for event in events:
            try:
                inbound.append(self._to_inbound(*event.args))
            except Exception as error:  # as above
                await self._record(UnreadablePayload(event.raw, error))
        await self._handle.submit_all([message for message in inbound if message], self._cursor(events[-1].session))
        self._saved_session = events[-1].session or self._saved_session

    async def _save_position(self, last_events: Sequence[GatewayEvent]) -> None:
        """Store the position after the last event of a batch."""
        session = last_events[0].session
        if _is_after(session, self._saved_session):
            await self._handle.submit_all([], self._cursor(session))
            self._saved_session = session

    async def _record(self, payload: UnreadablePayload) -> None:
        """Record what could not be read; a repeated event has the same id."""
        await self._handle.record_unreadable(
            PLATFORM, self._mapper.account, payload.event_id, payload.raw, payload.error
        )

    def _cursor(self, session: GatewaySession | None) -> StreamCursor | None:
        if session is None:
            return None
        name = self._shard.cursor_name(SESSION_CURSOR)
        return StreamCursor(PLATFORM, self._mapper.account, name, session.to_json())

    def _to_inbound(
        self, message: discord.Message, *, is_backfill: bool = False, edited_at: datetime | None = None
    ) -> InboundMessage | None:
        """Build the inbound message with the rule that forbids an answer; return None if it is not stored."""
        mention = self._mention_context(message) if self._should_store(message) else None
        if mention is None:
            return None
        self._on_author(str(message.channel.id), str(message.author.id))
        return incoming.to_inbound_message(message, self._mapper, mention, is_backfill=is_backfill, edited_at=edited_at)

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
        mention = incoming.build_mention(message, self._mapper)
        return incoming.apply_rules(mention, lineage_ids, self._settings, rule, is_direct=guild_id is None)

    async def _on_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        message, edited_at = payload.message, payload.message.edited_at
        inbound = self._to_inbound(message, edited_at=edited_at) if edited_at is not None else None
        if inbound is not None:
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
        if self._handle.room_rules.find(PLATFORM, *build_lineage(channel, payload.guild_id)).is_ignored:
            return
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

    async def _on_guild_unavailable(self, guild: discord.Guild) -> None:
        self.backfill.note_unavailable(guild.id)

    async def _on_typing(self, payload: discord.RawTypingEvent) -> None:
        if payload.user_id != self._mapper.bot_id:
            room_id = self._mapper.room_id(payload.channel_id)
            self._handle.note_typing(room_id, self._mapper.entity_id(payload.user_id))


def _is_after(session: GatewaySession | None, previous: GatewaySession | None) -> bool:
    """Return whether a session was read further than a previous one, or is another one."""
    if session is None:
        return False
    return previous is None or session.id != previous.id or session.seq > previous.seq


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
