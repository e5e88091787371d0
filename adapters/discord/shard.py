"""One shard of an account: its connection, its events, and the probe whether it brings them."""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from adapters.discord.client import POSITION, UNREADABLE, DiscordClient, DiscordHttp, GatewayEvent, GatewaySession
from adapters.discord.config import PLATFORM, DiscordSettings, Limits
from adapters.discord.connection import ConnectionRejected, GatewayConnection
from adapters.discord.entities import EntityMapper
from adapters.discord.errors import ALREADY_ACKNOWLEDGED, REQUEST_ERRORS, ErrorResponse
from adapters.discord.membership import GuildFetcher
from adapters.discord.probe import GatewayProbe
from adapters.discord.rate_limits import IdentifyLimiter, IdentifyQueue
from adapters.discord.receiving import EventReceiver
from adapters.discord.sharding import SESSION_CURSOR, ShardId, ShardStatus
from bot import ChannelType, Clock, Room
from bot.platform import AgentHandle, DisconnectCause, TaskSet

logger = logging.getLogger(__name__)
STOP_TIMEOUT = 3.0
MAX_PROBED_ROOMS = 50


@dataclass(frozen=True, slots=True)
class AccountAccess:
    """What the shards of an account share."""

    handle: AgentHandle
    http: DiscordHttp
    mapper: EntityMapper
    settings: DiscordSettings
    limits: Limits
    clock: Clock
    identify_queue: IdentifyQueue
    send_request: Callable[..., Awaitable[Any]]
    is_token_refused: Callable[[], Awaitable[bool]]
    answer_interaction: Callable[[Any], Awaitable[None]]
    on_author: Callable[[str, str], None]
    on_own_message: Callable[[str, int], None]
    on_connected: Callable[[], None]


class DiscordShard:
    """Keeps one shard connected and stores its events; `user` is the bot as Discord describes it."""

    def __init__(
        self, shard: ShardId, account: AccountAccess, status: ShardStatus, user: Any, application_id: int
    ) -> None:
        self.id = shard
        self.status = status
        self._account = account
        self._user, self._application_id = user, application_id
        self._is_prepared = False
        limits = account.limits
        self.client = DiscordClient(
            account.http,
            account.settings,
            limits,
            on_event=self._on_event,
            before_event=self._before_event,
            shard=shard,
        )
        self.receiver = EventReceiver(
            account.handle,
            self.client,
            account.mapper,
            account.settings,
            limits,
            shard=shard,
            on_author=account.on_author,
            clock=account.clock,
            on_connected=self._on_connected,
        )
        self._connection = GatewayConnection(
            self.client,
            IdentifyLimiter(time.monotonic),
            account.identify_queue,
            limits,
            status,
            shard=shard,
            wait_for_room=self.receiver.queue.wait_for_room,
            is_token_refused=account.is_token_refused,
        )
        self._guild_fetcher = GuildFetcher(time.monotonic)
        self.probe = GatewayProbe(
            account.send_request, self._list_rooms, status, account.clock, self._connection.end_session
        )
        self._tasks = TaskSet("a task of a Discord shard")

    async def run(self) -> None:
        """Stay connected until cancelled; raise ConnectionRejected if Discord rejects that permanently."""
        self._tasks.start(self.receiver.run())
        self._tasks.start(self.probe.run(self._account.limits.probe_seconds))
        while True:
            try:
                if not self._is_prepared:
                    await self.client.prepare(self._user, self._application_id)
                    self._is_prepared = True
                handle, mapper = self._account.handle, self._account.mapper
                stored = await handle.cursor(PLATFORM, mapper.account, self.id.cursor_name(SESSION_CURSOR))
                self._connection.session = GatewaySession.from_json(stored)
                await self._connection.run()
            except ConnectionRejected:
                raise
            except Exception as error:  # an unreadable response, a store outage or a defect: all may pass
                name = self._account.handle.character.name
                logger.exception("the Discord account of %s failed and is retried later", name)
                self.status.failed(DisconnectCause.FAULT, type(error).__name__)
            await self._account.limits.sleep(self._account.limits.max_retry_delay)

    async def stop(self) -> None:
        """End what `run` has started; events that were not stored come again when the session is resumed."""
        await self._tasks.cancel(STOP_TIMEOUT)
        self.status.close()

    def _on_event(self, event: GatewayEvent) -> None:
        if event.name == "interaction":
            self._tasks.start(self._handle_interaction(event))
            return
        if event.name == "message":
            [message] = event.args
            self.probe.note(str(message.channel.id), message.id)
            if message.nonce and message.author.id == self._account.mapper.bot_id:
                self._account.on_own_message(str(message.nonce), message.channel.id)
        elif event.name == "resumed" and not self.client.guilds:  # at the start: nothing announces them
            self._tasks.start(self._guild_fetcher.fetch_all(self.client, self.id))
        elif event.name == UNREADABLE:
            self.probe.note_unreadable(event.raw)
        self.receiver.enqueue(event)

    async def _handle_interaction(self, event: GatewayEvent) -> None:
        try:
            await self._account.answer_interaction(*event.args)
        except REQUEST_ERRORS as error:  # the interaction may have expired, or its channel may be gone
            if isinstance(error, ErrorResponse) and error.code == ALREADY_ACKNOWLEDGED:
                logger.debug("an interaction on Discord came again: %s", error)
            else:
                logger.warning("an interaction on Discord was not answered: %s", error or type(error).__name__)
        self.receiver.enqueue(GatewayEvent(POSITION, (), event.session))

    async def _before_event(self, event: str, data: Any) -> None:
        self._connection.note_event()
        await self.receiver.queue.require_room(self._account.limits.queue_full_timeout)
        await self._guild_fetcher.ensure_guild(self.client, event, data)
        if (
            event == "GUILD_CREATE"
            and data.get("unavailable") is False
            and self.client.get_guild(int(data["id"])) is None
        ):
            self.receiver.backfill.note_unavailable(int(data["id"]))  # since before the session was resumed

    def _on_connected(self) -> None:
        self.probe.reset()
        self._connection.mark_connected()
        self._account.on_connected()

    async def _list_rooms(self) -> list[Room]:
        """Return the rooms whose events this shard brings, those active last first."""
        mapper, conversations = self._account.mapper, self._account.handle.conversations
        rooms = await conversations.rooms()
        rooms = [room for room in rooms if (room.platform, room.account) == (PLATFORM, mapper.account)]
        if self.id.count == 1:
            return rooms
        own = []
        for room in rooms[:MAX_PROBED_ROOMS]:
            world = None if room.type is ChannelType.DM else await conversations.world(room.world_id)
            guild_id = int(world.external_id) if world is not None and world.external_id.isdecimal() else 0
            if self.id.has_guild(guild_id):
                own.append(room)
        return own
