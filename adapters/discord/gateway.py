"""The connections to Discord's gateway, the events that they receive, and how these are stored.

Gateway events in order: queue, probe of a quiet gateway, backfill, inbox. Guild, channel and member events.

The gateway: its session, the library's client and socket, the queue of events, and the connection of a shard.

New sessions are limited in their number and order. Guilds that Discord announces only at the start of a session are
fetched. A probe finds out whether the gateway brings what is written: a socket that lives may still bring nothing.
"""

import asyncio
import json
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Self, TypeGuard

import aiohttp
import discord
from discord.errors import ConnectionClosed
from discord.gateway import DiscordWebSocket, ReconnectWebSocket
from discord.http import HTTPClient, Route
from discord.state import ConnectionState
from discord.utils import snowflake_time

import bot.platform as bp
from adapters.discord import incoming
from adapters.discord.backfill import Backfill, MissedMessages
from adapters.discord.config import DEVELOPER_PORTAL_URL, PLATFORM, DiscordSettings, Limits
from adapters.discord.errors import REQUEST_ERRORS, ErrorResponse
from adapters.discord.incoming import EntityMapper, build_lineage, has_ignored_role
from adapters.discord.sharding import SESSION_CURSOR, ShardId, ShardStatus
from bot import Clock, Room, World
from bot.store import LeaseSharing, StoreUnavailable

logger = logging.getLogger(__name__)
UNREADABLE, POSITION = "unreadable", "position"  # events beside those of the library
MAX_CHANNELS, MAX_KNOWN_CHANNELS = 3, 1000
TOLERANCE = timedelta(seconds=20)  # within which the gateway may bring a message later than it can be read


@dataclass(frozen=True, slots=True)
class GatewaySession:
    """A gateway session that can be resumed: its id, its URL and the last event that was stored."""

    id: str
    url: str
    seq: int

    def to_json(self) -> str:
        """Return the session as JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | None) -> Self | None:
        """Parse the text of `to_json`; return None for an empty or invalid text."""
        try:
            return cls(**json.loads(text)) if text else None
        except (ValueError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class GatewayEvent:
    """One event as the library names it, the session up to it, and what Discord sent."""

    name: str
    args: tuple[Any, ...]
    session: GatewaySession | None = None
    raw: Any = None


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


class GatewayProbe:
    """Compares the newest messages of the channels that were active last with those that the gateway brought.

    It asks only while the gateway is connected and quiet, and never for more than three channels at a time.
    `status.unheard_since` is when the oldest message was written that the gateway should have brought; then
    `reconnect` is called.
    """

    def __init__(
        self,
        send_request: Callable[..., Awaitable[Any]],
        list_rooms: Callable[[], Awaitable[list[Room]]],
        status: ShardStatus,
        clock: Clock,
        reconnect: Callable[[], None],
    ) -> None:
        self._send_request, self._list_rooms = send_request, list_rooms
        self._status, self._clock, self._reconnect = status, clock, reconnect
        # by channel: the newest message known to be brought
        self._newest = bp.BoundedDict[str, int](MAX_KNOWN_CHANNELS)
        self._heard_at: datetime | None = None
        self._has_listed = False

    def note(self, channel_id: str, message_id: int) -> None:
        """Note a message that the gateway brought."""
        self._newest[channel_id] = max(message_id, self._newest.pop(channel_id, 0))
        self._heard_at = self._clock()
        if self._status.unheard_since is not None:
            self._status.note_unheard(None)

    def note_unreadable(self, raw: Any) -> None:
        """Note an event that the gateway brought and that could not be read, if it is a message."""
        match raw:
            case {"d": {"id": str(message_id), "channel_id": str(channel_id)}} if message_id.isdecimal():
                self.note(channel_id, int(message_id))

    def reset(self) -> None:
        """Forget what was brought: a connection has begun, and what was missed is read otherwise."""
        self._newest.clear()
        self._status.note_unheard(None)
        self._has_listed = False

    async def run(self, seconds: float) -> None:
        """Probe every so many seconds, until cancelled."""
        quiet = timedelta(seconds=min(seconds, 30.0))
        while True:
            await asyncio.sleep(seconds)
            is_quiet = self._heard_at is None or self._clock() - self._heard_at >= quiet
            if is_quiet and self._status.is_connected:
                await self.check()

    async def check(self) -> None:
        """Compare once."""
        if not self._newest and not self._has_listed:
            self._has_listed = True
            rooms = [room for room in await self._list_rooms() if room.external_id.isdecimal()]
            for room in reversed(rooms[:MAX_CHANNELS]):
                self._newest[room.external_id] = 0
        unheard = []
        for channel_id in list(self._newest)[-MAX_CHANNELS:]:
            known = self._newest.get(channel_id, 0)
            try:
                newest = await self._read_newest(channel_id)
            except ErrorResponse as error:
                if error.is_final:
                    self._newest.pop(channel_id, None)
                continue
            except REQUEST_ERRORS:  # whether the platform is reached at all, the connection itself tells
                continue
            if not known:
                self._newest[channel_id] = max(newest, self._newest.get(channel_id, 0))
            elif newest > self._newest.get(channel_id, newest):
                unheard.append(snowflake_time(newest))
        written_at = min(unheard, default=None)
        is_late = written_at is not None and self._clock() - written_at >= TOLERANCE
        self._status.note_unheard(written_at if is_late else None)
        if is_late:
            logger.warning(
                "the gateway of Discord is connected but has brought nothing that was written since %s: "
                "it is connected again, and what was missed is read",
                written_at,
            )
            self._reconnect()

    async def _read_newest(self, channel_id: str) -> int:
        route = Route("GET", "/channels/{channel_id}/messages", channel_id=channel_id)
        messages = await self._send_request(route, params={"limit": 1})
        match messages:
            case [{"id": str(message_id)}] if message_id.isdecimal():
                return int(message_id)
        return 0


class MembershipHandler:
    """Reports membership events; `handlers` has one method by event name of the library."""

    # Events that are processed before the backfill is complete.
    BEFORE_BACKFILL: ClassVar = ("guild_available", "guild_join")

    def __init__(self, handle: bp.AgentHandle, mapper: EntityMapper) -> None:
        self._handle = handle
        self._mapper = mapper
        self.handlers: dict[str, Callable[..., Awaitable[object]]] = {
            "guild_available": self._guild_available,
            "guild_join": self._guild_joined,
            "guild_update": lambda before, guild: handle.membership.update_world(mapper.to_world(guild)),
            "guild_remove": lambda guild: handle.edits.leave_world(mapper.world_id(guild.id)),
            "guild_channel_create": self._channel_created,
            "guild_channel_update": self._channel_updated,
            "guild_channel_delete": lambda channel: handle.edits.leave_room(mapper.room_id(channel.id)),
            "thread_create": self._channel_created,
            "thread_update": self._channel_updated,
            "raw_thread_delete": lambda payload: handle.edits.leave_room(mapper.room_id(payload.thread_id)),
            "member_join": self._member_joined,
            "member_update": self._member_updated,
            "raw_member_remove": self._member_left,
        }

    async def _guild_available(self, guild: discord.Guild) -> None:
        await self._handle.membership.join_world(self._mapper.to_world(guild), self._rooms(guild))

    async def _guild_joined(self, guild: discord.Guild) -> None:
        joined_at = guild.me.joined_at if guild.me else None
        event_id = f"invited:{guild.id}:{_format_time(joined_at)}" if joined_at else ""
        await self._handle.membership.join_world(self._mapper.to_world(guild), self._rooms(guild), event_id=event_id)

    async def _channel_created(self, channel: Any) -> None:
        if _is_room(channel):
            await self._handle.membership.join_room(*self._world_and_room(channel))

    async def _channel_updated(self, before: Any, channel: Any) -> None:
        if _is_room(channel):
            await self._handle.membership.update_room(*self._world_and_room(channel))

    async def _member_joined(self, member: discord.Member) -> None:
        world, entity = self._mapper.to_world(member.guild, [member]), self._mapper.to_entity(member)
        event_id = f"join:{member.guild.id}:{member.id}:{_format_time(member.joined_at)}"
        await self._handle.membership.add_member(world, entity, event_id=event_id)

    async def _member_updated(self, before: discord.Member, member: discord.Member) -> None:
        world = self._mapper.to_world(member.guild, [member])
        await self._handle.membership.update_member(world, self._mapper.to_entity(member))

    async def _member_left(self, payload: discord.RawMemberRemoveEvent) -> None:
        world = self._mapper.world_of(payload.guild_id, getattr(payload.user, "guild", None), 0)
        await self._handle.membership.remove_member(world, self._mapper.to_entity(payload.user))

    def _world_and_room(self, channel: Any) -> tuple[World, Room]:
        return self._mapper.to_world(channel.guild), self._mapper.to_room(channel)

    def _rooms(self, guild: discord.Guild) -> list[Room]:
        return [self._mapper.to_room(channel) for channel in (*guild.channels, *guild.threads) if _is_room(channel)]


def _is_room(channel: Any) -> bool:
    """Return whether a channel is a room; a category only contains channels."""
    return not isinstance(channel, discord.CategoryChannel)


def _format_time(timestamp: datetime | None) -> str:
    return timestamp.isoformat() if timestamp else ""


MAX_BATCH = 100
MAX_REPEATED_EVENTS = 100  # such as the bot's own messages: after a restart they may come again
STORE_RETRY_SECONDS = 1.0
MESSAGE, MESSAGE_CREATED, INTERACTION = "message", "MESSAGE_CREATE", "interaction"
SESSION_STARTED = "connect"
RESUMED = "resumed"
CONNECTED_EVENTS = ("ready", RESUMED)
LATE_GUILD, GUILD_UNAVAILABLE = "guild_available", "guild_unavailable"
READ_UNREAD = "read_unread"  # event: the channels that could not be read are read again
QUEUED_EVENTS = (SESSION_STARTED, *CONNECTED_EVENTS, POSITION, READ_UNREAD)


class EventReceiver:
    """Stores the events of one shard in order, together with the position in the gateway session.

    After a new session has started, messages wait until the missed ones are stored: otherwise the start of
    the gap would be lost.
    """

    def __init__(
        self,
        handle: bp.AgentHandle,
        client: discord.Client,
        queue: EventQueue,
        probe: GatewayProbe,
        mapper: EntityMapper,
        settings: DiscordSettings,
        limits: Limits,
        *,
        shard: ShardId,
        clock: Clock,
        on_message: Sequence[Callable[[discord.Message], None]],
        on_own_message: Callable[[str, int], None],
        on_interaction: Callable[[GatewayEvent], object],
        on_connected: Callable[[str], None],
    ) -> None:
        self._handle, self._client, self._mapper = handle, client, mapper
        self._settings, self._limits, self._clock = settings, limits, clock
        self._on_message, self._on_own_message = on_message, on_own_message
        self._on_interaction, self._on_connected = on_interaction, on_connected
        self.queue, self._probe = queue, probe
        self._deferred: list[GatewayEvent] | None = None
        self._saved_session: GatewaySession | None = None
        self._has_changed = False  # since then, by an event that must not come again
        self._shard, self._session_cursor = shard, shard.cursor_name(SESSION_CURSOR)
        self.backfill = Backfill(handle, client, mapper, limits, shard)
        self._unread_failures, self._backoff = 0, bp.Backoff(1.0, limits.max_retry_delay)
        self._tasks = bp.TaskSet("reading missed Discord messages")
        self._handlers: dict[str, Callable[..., Awaitable[object]]] = {
            **MembershipHandler(handle, mapper).handlers,
            "raw_message_edit": self._on_edit,
            "raw_message_delete": lambda payload: self._delete(payload.channel_id, [payload.message_id]),
            "raw_bulk_message_delete": lambda payload: self._delete(payload.channel_id, sorted(payload.message_ids)),
            "raw_reaction_add": self._on_reaction,
            "raw_reaction_remove": self._on_reaction_removed,
            "raw_reaction_clear": self._on_reaction_removed,
            "raw_reaction_clear_emoji": self._on_reaction_removed,
            "raw_typing": self._on_typing,
            GUILD_UNAVAILABLE: self._on_guild_unavailable,
        }

    def enqueue(self, event: GatewayEvent) -> bool:
        """Add an event to the queue, or the position after events that need no processing; return whether it is taken.

        An interaction is handled beside the queue.
        """
        if event.name == MESSAGE:
            [message] = event.args
            self._probe.note(str(message.channel.id), message.id)
            if message.nonce and message.author.id == self._mapper.bot_id:
                self._on_own_message(str(message.nonce), message.channel.id)
        elif event.name == INTERACTION:
            self._on_interaction(event)
            return True
        elif event.name == UNREADABLE:
            self._probe.note_unreadable(event.raw)
        elif event.name not in self._handlers and event.name not in QUEUED_EVENTS:
            return False
        self.queue.add(event)
        return True

    async def run(self) -> None:
        """Process queued events until the inbox closes."""
        try:
            while True:
                await self._process_batch(await self.queue.next(MAX_BATCH))
                self.queue.mark_stored()
        except bp.InboxClosed:
            logger.debug("no more Discord events are processed")
        finally:
            await self._tasks.cancel()

    async def _process_batch(self, batch: Sequence[GatewayEvent]) -> None:
        """Process a batch; consecutive messages are stored in one transaction."""
        messages: list[GatewayEvent] = []
        for event in batch:
            if event.name == MESSAGE and self._deferred is None:
                messages.append(event)
                continue
            await self._process_reliably(self._submit_messages, messages)
            messages = []
            await self._process_reliably(self._process_event, [event])
        await self._process_reliably(self._submit_messages, messages)
        if self._deferred is None:
            await self._process_reliably(self._save_position, batch[-1:])

    async def _process_reliably(
        self, process: Callable[[Sequence[GatewayEvent]], Awaitable[None]], events: Sequence[GatewayEvent]
    ) -> None:
        """Process events, retrying while the store is unavailable; one that fails is recorded and costs no other."""
        while events:
            try:
                await process(events)
            except StoreUnavailable:
                await self._limits.sleep(STORE_RETRY_SECONDS)
                continue
            except bp.InboxClosed:
                raise
            except Exception as error:  # an event may be invalid in any way: later events must not wait
                if len(events) > 1:
                    for event in events:
                        await self._process_reliably(process, [event])
                else:
                    logger.debug("a Discord event failed", exc_info=True)
                    await self._record(events[0].raw, error)
            return

    async def _process_event(self, events: Sequence[GatewayEvent]) -> None:
        [event] = events
        self._has_changed = True
        if event.name == POSITION:
            return
        if event.name == SESSION_STARTED:
            self._deferred = []
        elif event.name in CONNECTED_EVENTS:
            self._on_connected(event.name)
            await self._finish_backfill()
        elif event.name == READ_UNREAD:
            await self._submit_missed(self.backfill.read_unread())
        elif event.name == UNREADABLE:
            await self._record(event.raw, *event.args)
        elif self._deferred is not None and event.name not in (*MembershipHandler.BEFORE_BACKFILL, GUILD_UNAVAILABLE):
            self._deferred.append(event)
        else:
            await self._report_roles(*event.args[-1:])
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
        except (StoreUnavailable, bp.InboxClosed):
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

    async def _read_missed(self, payload: Any, channel: Any, *, is_edit: bool = False) -> bp.InboundMessage | None:
        try:
            message = self._client._connection.create_message(channel=channel, data=payload)
            return await self._to_inbound(message, is_backfill=True, edited_at=message.edited_at if is_edit else None)
        except (StoreUnavailable, bp.InboxClosed):
            raise
        except Exception as error:  # the library does not check types: one invalid message costs no other
            await self._record({"t": MESSAGE_CREATED, "d": payload}, error)
            return None

    async def _submit_messages(self, events: Sequence[GatewayEvent]) -> None:
        inbound = []
        for event in events:
            await self._report_roles(*people_of(event.args[0]))
        for event in events:
            try:
                inbound.append(await self._to_inbound(*event.args))
            except (StoreUnavailable, bp.InboxClosed):
                raise
            except Exception as error:  # as above
                await self._record(event.raw, error)
        if messages := [message for message in inbound if message]:
            await self._store(messages, events[-1].session)

    async def _save_position(self, last_events: Sequence[GatewayEvent]) -> None:
        """Store the position after the last event of a batch, unless only a few came since that changed nothing."""
        session, saved = last_events[0].session, self._saved_session
        if not _is_after(session, saved):
            return
        is_far = saved is None or saved.id != session.id or session.seq - saved.seq >= MAX_REPEATED_EVENTS
        if is_far or self._has_changed:
            await self._store([], session)

    async def _store(self, messages: Sequence[bp.InboundMessage], session: GatewaySession | None) -> None:
        """Store messages together with the position after them."""
        await self._handle.submit_all(messages, self._cursor(session))
        self._saved_session, self._has_changed = session or self._saved_session, False

    async def _record(self, raw: Any, error: Exception) -> None:
        """Record what could not be read; a repeated message has the same id, other events their content tells."""
        event_id = ""
        match raw:
            case {"t": str(name), "d": {"id": str(message_id)}} if name == MESSAGE_CREATED:
                event_id = f"message {message_id}"
        while True:
            try:
                await self._handle.record_unreadable(PLATFORM, self._mapper.account, event_id, raw, error)
            except StoreUnavailable:
                await self._limits.sleep(STORE_RETRY_SECONDS)
                continue
            except bp.InboxClosed:
                raise
            except Exception:  # later events must not wait
                logger.exception("an unreadable Discord event could not be recorded")
            return

    def _cursor(self, session: GatewaySession | None) -> bp.StreamCursor | None:
        if session is None:
            return None
        return bp.StreamCursor(PLATFORM, self._mapper.account, self._session_cursor, session.to_json())

    async def _to_inbound(
        self, message: discord.Message, *, is_backfill: bool = False, edited_at: datetime | None = None
    ) -> bp.InboundMessage | None:
        """Build the inbound message with the rule that forbids an answer; return None if it is not stored."""
        mention = await incoming.find_mention(message, self._mapper, self._settings, self._handle.room_rules)
        if mention is None:
            return None
        for note in self._on_message:
            note(message)
        return incoming.to_inbound_message(message, self._mapper, mention, is_backfill=is_backfill, edited_at=edited_at)

    async def _on_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        message, edited_at = payload.message, payload.message.edited_at
        await self._report_roles(*people_of(message))
        inbound = await self._to_inbound(message, edited_at=edited_at) if edited_at is not None else None
        if inbound is not None:
            await self._handle.edits.submit_edit(inbound)

    async def _delete(self, channel_id: int, message_ids: Sequence[int]) -> None:
        await self._handle.edits.delete_messages(self._mapper.room_id(channel_id), [*map(str, message_ids)])

    async def _on_reaction(self, payload: discord.RawReactionActionEvent) -> None:
        if payload.user_id == self._mapper.bot_id:
            return
        await self._report_roles(payload.member)
        channel = self._client.get_channel(payload.channel_id) or self._client.get_partial_messageable(
            payload.channel_id, guild_id=payload.guild_id
        )
        is_ignored = self._handle.room_rules.find(PLATFORM, *build_lineage(channel, payload.guild_id)).is_ignored
        if is_ignored or await self._mapper.is_absent(channel, payload.guild_id):
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

    async def _report_roles(self, *people: object) -> None:
        """Report whether members of servers have a role that keeps them unread, before anything of them is stored."""
        for member in people:
            if isinstance(member, discord.Member):
                await report_roles(self._handle, member, self._mapper, self._settings)

    async def _on_guild_unavailable(self, guild: discord.Guild) -> None:
        self.backfill.note_unavailable(guild.id)

    async def _on_typing(self, payload: discord.RawTypingEvent) -> None:
        if payload.user_id != self._mapper.bot_id:
            room_id = self._mapper.room_id(payload.channel_id)
            self._handle.note_typing(room_id, self._mapper.entity_id(payload.user_id))


def people_of(message: discord.Message) -> tuple[object, ...]:
    """Return the author of a message, and that of the message to which it replies, if that is known."""
    referenced = message.reference.resolved if message.reference is not None else None
    return (message.author, referenced.author) if isinstance(referenced, discord.Message) else (message.author,)


async def report_roles(
    handle: bp.AgentHandle, member: discord.Member, mapper: EntityMapper, settings: DiscordSettings
) -> None:
    """Report whether a member of a server has a role that keeps them unread, if the server's roles are known."""
    if not settings.ignored_roles and not handle.people.not_read:
        return
    guild: discord.Guild | None = member.guild
    if guild is not None and guild.default_role is not None:
        is_ignored = has_ignored_role(member, settings)
        world_id = mapper.world_id(guild.id)
        await handle.edits.report_ignored_role(mapper.to_entity(member), world_id, is_ignored=is_ignored)


def _is_after(session: GatewaySession | None, previous: GatewaySession | None) -> TypeGuard[GatewaySession]:
    """Return whether a session was read further than a previous one, or is another one."""
    if session is None:
        return False
    return previous is None or session.id != previous.id or session.seq > previous.seq


MAX_PER_HOUR, MAX_PER_DAY = 50, 500
HOUR, DAY, DELAY_SECONDS = 3600.0, 86_400.0, 1800.0
DAILY_RESERVE = 50  # of the thousand a day; people may want to start the bot too
GUILD_EVENTS = frozenset({"GUILD_CREATE", "GUILD_UPDATE", "GUILD_DELETE"})
MAX_FAILED_GUILDS, MAX_FETCHED_GUILDS = 1000, 100
RETRY_SECONDS = 60.0  # seconds until an unknown guild is requested again
BEFORE_EVENT = "before_event"  # hook awaited with each event before the library reads it
AFTER_EVENT = "after_event"  # hook awaited with each event and, where it could not be read, the error
FRAME_EVENT = "socket_event_type"  # the library's report of each frame, before it reads it
RESUMABLE_CLOSE = 4000  # close code that keeps the session; 1000 and 1001 end it
CLOSE_TIMEOUT = 2.0


class DiscordClient(discord.Client):
    """The library's client of one shard, which caches its guilds and channels; `DiscordShard` connects it.

    `receivers`, which its shard sets, get every event, in order: with one of the name UNREADABLE where the library
    failed (its argument is the error), and with one of the name POSITION after each event of the gateway of which
    nothing was taken. No event is read while the queue of one of them is full. `deadline` is when the connection must
    have brought its first event.
    """

    def __init__(self, http: HTTPClient, settings: DiscordSettings, limits: Limits, shard: ShardId) -> None:
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False  # voice is not used
        self._http_client = http
        self.receivers: Sequence[EventReceiver] = ()
        self.guild_fetcher = GuildFetcher(time.monotonic)
        self.deadline: asyncio.Timeout | None = None
        self.is_session_over = False
        self._queue_timeout = limits.queue_full_timeout
        self._raw_event: Any = None
        self._is_taken = False
        super().__init__(
            intents=build_intents(settings),
            shard_id=shard.number if shard.count > 1 else None,
            shard_count=shard.count if shard.count > 1 else None,
            max_messages=None,
            chunk_guilds_at_startup=False,
            heartbeat_timeout=limits.heartbeat_timeout,
            guild_ready_timeout=limits.guild_ready_timeout,
            allowed_mentions=discord.AllowedMentions.none(),
        )
        self._hooks[BEFORE_EVENT] = self._begin_event
        self._hooks[AFTER_EVENT] = self._end_event

    async def prepare(self, user: Any, application_id: int) -> None:
        """Do what the library's login does after its requests: `user` is the bot as Discord describes it."""
        await self._async_setup_hook()
        self._connection.user = discord.ClientUser(state=self._connection, data=user)
        self._connection.application_id = application_id

    def _get_state(self, **options: Any) -> ConnectionState[Any]:
        self.http = self._http_client
        return super()._get_state(**options)

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """Pass an event on together with the session up to it."""
        super().dispatch(event, *args, **kwargs)
        if event != FRAME_EVENT:
            self._is_taken |= self.enqueue(GatewayEvent(event, args, session_of(self.ws), self._raw_event))

    async def _begin_event(self, event: Any) -> None:
        name, data = str(event["t"]), event.get("d")
        self._set_deadline(None)  # the connection brings events
        for receiver in self.receivers:
            await receiver.queue.require_room(self._queue_timeout)
        await self.guild_fetcher.ensure_guild(self, name, data)
        if name == "GUILD_CREATE" and data.get("unavailable") is False and self.get_guild(int(data["id"])) is None:
            for receiver in self.receivers:
                receiver.backfill.note_unavailable(int(data["id"]))  # since before the session was resumed
        self._raw_event, self._is_taken = event, False

    async def _end_event(self, event: Any, error: Exception | None) -> None:
        self._raw_event = None
        if error is not None:
            self.enqueue(GatewayEvent(UNREADABLE, (error,), session_of(self.ws), event))
        elif not self._is_taken:
            self.enqueue(GatewayEvent(POSITION, (), session_of(self.ws)))

    def enqueue(self, event: GatewayEvent) -> bool:
        """Pass an event to the receiver of each character; interactions, which are handled once, to the first.

        Return whether the first has taken it.
        """
        receivers = self.receivers[:1] if event.name == INTERACTION else self.receivers
        taken = [receiver.enqueue(event) for receiver in receivers]
        return bool(taken) and taken[0]

    def end_session(self) -> None:
        """Replace the connection, which does not bring what is written, by one with a new session."""
        self.is_session_over = self._set_deadline(asyncio.get_running_loop().time())

    def _set_deadline(self, at: float | None) -> bool:
        """Set when the connection ends, by the loop's time; return False if there is none, or it ends already."""
        if self.deadline is None or self.deadline.expired() or self.is_session_over:
            return False
        self.deadline.reschedule(at)
        return True

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        """Do not wait before identifying: `IdentifyLimiter` was asked before."""


def build_intents(settings: DiscordSettings) -> discord.Intents:
    """Return the gateway intents: guilds, messages, reactions, emoji, typing in private; members, if switched on."""
    intents = discord.Intents.none()
    intents.guilds = intents.messages = intents.message_content = intents.reactions = True
    intents.emojis_and_stickers = True
    intents.dm_typing = True
    intents.members = settings.discord_members_intent
    return intents


class GatewaySocket(DiscordWebSocket):
    """The library's gateway socket, with time limits, and tolerant of events that cannot be read."""

    async def received_message(self, msg: Any, /) -> None:
        """Pass a frame to the library; an event that it cannot read costs no other."""
        if isinstance(msg, bytes):
            msg = self._decompressor.decompress(msg)
            if msg is None:
                return
        event, failure = None, None
        try:
            frame = json.loads(msg)
            if isinstance(frame, dict) and frame.get("t"):
                event = frame
                await self.call_hooks(BEFORE_EVENT, event)
            await super().received_message(msg)
        except (ReconnectWebSocket, ConnectionClosed, aiohttp.ClientError, OSError):
            raise
        except Exception as error:  # possibly caused by a user's input: it costs this event only
            failure = error
            logger.debug("a frame of Discord could not be read", exc_info=True)
        if event is not None:
            await self.call_hooks(AFTER_EVENT, event, failure)

    async def send_heartbeat(self, data: Any) -> None:
        """Send a heartbeat.

        The library notes its time only after sending, from another thread: by then a near server has answered,
        and the latency would be counted from the heartbeat before.
        """
        if self._keep_alive is not None:
            self._keep_alive._last_send = time.perf_counter()
        await super().send_heartbeat(data)

    async def poll_event(self) -> None:
        """Wait for the next frame; raise ReconnectWebSocket if nothing arrives for too long."""
        try:
            async with asyncio.timeout(self._max_heartbeat_timeout + self._close_timeout):
                await super().poll_event()
        except TimeoutError:  # closing the socket timed out as well
            raise ReconnectWebSocket(self.shard_id) from None

    async def close(self, code: int = RESUMABLE_CLOSE) -> None:
        """Close the socket, waiting at most CLOSE_TIMEOUT seconds for the answer."""
        try:
            async with asyncio.timeout(self._close_timeout):
                await super().close(code)
        except TimeoutError:
            logger.debug("the gateway did not confirm that the connection is closed")

    @property
    def _close_timeout(self) -> float:
        return min(CLOSE_TIMEOUT, self._max_heartbeat_timeout)


def session_of(socket: DiscordWebSocket | None) -> GatewaySession | None:
    """Return the session of a socket up to the last event; None if there is none to resume."""
    if socket is None or not socket.session_id or not socket.sequence:
        return None
    return GatewaySession(socket.session_id, str(socket.gateway), socket.sequence)


class GuildFetcher:
    """Fetches unknown guilds into the library's cache before their first event is read."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._retry_at = bp.BoundedDict[int, float](MAX_FAILED_GUILDS)  # by guild id: monotonic seconds

    async def ensure_guild(self, client: discord.Client, event: str, data: Any) -> None:
        """Fetch the guild of an event if it is unknown; if that fails, the event is read without it.

        The guild of an interaction in which the bot is no member cannot be fetched.
        """
        raw_guild_id = data.get("id" if event in GUILD_EVENTS else "guild_id") if isinstance(data, dict) else None
        if event == "GUILD_CREATE" or not str(raw_guild_id or "").isdigit():
            return
        guild_id, owners = int(str(raw_guild_id)), data.get("authorizing_integration_owners")
        if client.get_guild(guild_id) is not None or (isinstance(owners, dict) and "0" not in owners):
            return
        if event == "GUILD_DELETE":  # the library discards it otherwise
            client._connection._add_guild_from_data(
                {"id": guild_id, "unavailable": True}  # type: ignore[typeddict-item]  # as the library does itself
            )
            return
        await self._fetch(client, guild_id)

    async def fetch_all(self, client: discord.Client, shard: ShardId) -> None:
        """Fetch a shard's unknown guilds, at most MAX_FETCHED_GUILDS; others are fetched with their first event."""
        try:
            guilds = await client.http.request(Route("GET", "/users/@me/guilds"))
        except REQUEST_ERRORS as error:
            logger.warning("the servers of the bot could not be listed: %s", error)
            return
        guild_ids = [int(guild["id"]) for guild in guilds if shard.has_guild(int(guild["id"]))]
        for guild_id in guild_ids[:MAX_FETCHED_GUILDS]:
            if client.get_guild(guild_id) is None:
                await self._fetch(client, guild_id)

    async def _fetch(self, client: discord.Client, guild_id: int) -> None:
        if self._clock() < self._retry_at.get(guild_id, 0.0):
            return
        try:
            guild = await self._fetch_guild(client, guild_id)
        except REQUEST_ERRORS as error:
            logger.warning("server %s is unknown and could not be fetched: %s", guild_id, error)
            self._retry_at[guild_id] = self._clock() + RETRY_SECONDS
            return
        if client.get_guild(guild_id) is None:  # it may have been announced meanwhile
            client._connection.parse_guild_create(guild)

    async def _fetch_guild(self, client: discord.Client, guild_id: int) -> Any:
        guild = await client.http.request(Route("GET", "/guilds/{guild_id}", guild_id=guild_id))
        channels = await client.http.request(Route("GET", "/guilds/{guild_id}/channels", guild_id=guild_id))
        active_threads = await client.http.request(Route("GET", "/guilds/{guild_id}/threads/active", guild_id=guild_id))
        return {**guild, "channels": channels, "threads": active_threads.get("threads", []), "unavailable": False}


class IdentifyQueue:
    """Starts the gateway sessions of an account one after the other, some seconds apart, as Discord demands.

    The shards are in groups, whose sessions may start at the same time; `max_concurrency` is their number, as Discord
    tells it. Processes that share an account take turns by leases.
    """

    def __init__(self, limits: Limits, find_leases: Callable[[], LeaseSharing | None]) -> None:
        self._limits, self._find_leases = limits, find_leases
        self.max_concurrency = 1
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._releases = bp.TaskSet("ending a turn to start a session")

    @asynccontextmanager
    async def turn(self, shard_number: int) -> AsyncIterator[None]:
        """Wait until the session of a shard may start; it starts inside."""
        group = shard_number % self.max_concurrency
        await self._locks[group].acquire()
        try:
            await self._take_lease(group)
            yield
        finally:
            self._releases.start(self._release(group))

    async def stop(self) -> None:
        """End the waiting after the last sessions."""
        await self._releases.cancel()

    async def _take_lease(self, group: int) -> None:
        leases = self._find_leases()
        while leases is not None:
            with suppress(StoreUnavailable):
                if await leases.hold_lease(_lease_name(group)):
                    return
            await asyncio.sleep(self._limits.lease_interval)

    async def _release(self, group: int) -> None:
        try:
            await self._limits.sleep(self._limits.identify_interval)
            if (leases := self._find_leases()) is not None:
                with suppress(StoreUnavailable):  # then it ends with the process
                    await leases.release_lease(_lease_name(group))
        finally:
            self._locks[group].release()


def _lease_name(group: int) -> str:
    return f"start of a Discord session {group}"


class IdentifyLimiter:
    """Limits new gateway sessions: after many in an hour or a day, one per half hour."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._windows = [bp.SlidingWindow(MAX_PER_HOUR, HOUR), bp.SlidingWindow(MAX_PER_DAY, DAY)]

    def wait_seconds(self, remaining: int | None = None, reset_after: float = 0.0) -> float:
        """Return the seconds until the next session may start; the parameters come from Discord."""
        if remaining is not None and remaining <= DAILY_RESERVE:
            return max(reset_after, 1.0)
        now = self._clock()
        if all(window.count_spare(now) > 0 for window in self._windows):
            return 0.0
        return max(0.0, self._windows[0].times[-1] + DELAY_SECONDS - now)

    def record(self) -> None:
        """Count a new session."""
        for window in self._windows:
            window.reserve(self._clock(), self._clock())


CONNECT_TIMEOUT = 60.0
MAX_RESUMES = 5  # in a row without success; the server that holds the session may be gone
INVALID_TOKEN_MESSAGE = (
    "Discord does not accept the token: set DISCORD_API_TOKEN to the one that "
    f"{DEVELOPER_PORTAL_URL} shows for your application under Bot, Reset Token"
)
AUTHENTICATION_FAILED, SHARDING_REQUIRED = 4004, 4011
FATAL_CLOSE_CODES = {
    AUTHENTICATION_FAILED: INVALID_TOKEN_MESSAGE,
    4010: "Discord refuses the shard: unset DISCORD_SHARD_COUNT, so that Discord's recommendation is used",
    SHARDING_REQUIRED: "Discord requires sharding: the bot is in too many servers for its connections; unset "
    "DISCORD_SHARD_COUNT, so that Discord's recommendation is used",
    4012: "Discord no longer supports this API version: update discord.py",
    4013: "Discord does not know the requested intents: update discord.py",
    4014: "Discord refuses the intents: open "
    f"{DEVELOPER_PORTAL_URL}, your application, Bot, Privileged Gateway Intents, and switch on "
    "Message Content Intent (and Server Members Intent where DISCORD_MEMBERS_INTENT is on)",
}


class ConnectionRejected(Exception):
    """Discord rejects the account until its operator changes what the message names."""

    def __init__(self, problem: str, cause: bp.DisconnectCause = bp.DisconnectCause.REFUSED) -> None:
        super().__init__(problem)
        self.cause = cause


class ShardingRequired(ConnectionRejected):
    """The bot is in too many servers for its number of connections."""


def build_rejection(code: int) -> ConnectionRejected:
    """Return the error for a close code in FATAL_CLOSE_CODES."""
    kind = ShardingRequired if code == SHARDING_REQUIRED else ConnectionRejected
    return kind(
        FATAL_CLOSE_CODES[code],
        bp.DisconnectCause.REFUSED if code == AUTHENTICATION_FAILED else bp.DisconnectCause.FORBIDDEN,
    )
