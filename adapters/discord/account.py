"""One character's account on Discord: login, connection, receiving and sending."""

import asyncio
import logging
import time
from dataclasses import replace
from itertools import count
from typing import Any

import discord
from discord.http import Route

from adapters.discord.client import POSITION, UNREADABLE, DiscordClient, GatewayEvent, GatewaySession, build_http
from adapters.discord.commands import CommandHandler, build_registration
from adapters.discord.config import DiscordSettings, Limits, find_trusted_origin
from adapters.discord.connection import INVALID_TOKEN_MESSAGE, ConnectionRejected, GatewayConnection
from adapters.discord.entities import PLATFORM, EntityMapper
from adapters.discord.errors import (
    ALREADY_ACKNOWLEDGED,
    REQUEST_ERRORS,
    ErrorResponse,
    disconnect_cause_of,
    to_delivery_error,
)
from adapters.discord.membership import GuildFetcher
from adapters.discord.probe import GatewayProbe
from adapters.discord.rate_limits import IdentifyLimiter
from adapters.discord.receiving import SESSION_CURSOR, EventReceiver
from adapters.discord.sending import MessageSender, TypingIndicator
from bot import ChannelType, Clock, Room, World
from bot.platform import (
    AgentHandle,
    Backoff,
    ConnectionStatus,
    Delivery,
    DeliveryUnknown,
    DisconnectCause,
    KnownPeople,
    NotSent,
    TaskSet,
)

logger = logging.getLogger(__name__)
STOP_TIMEOUT = 3.0
REFUSED_RETRY_SECONDS = 600.0  # retry interval of deliveries that cannot leave before the next start


class DiscordAccount:
    """One bot account: logs in and stays connected until `stop`; `problem` is why it gave up."""

    def __init__(self, handle: AgentHandle, settings: DiscordSettings, limits: Limits, clock: Clock) -> None:
        self.handle = handle
        self.problem = ""
        self.is_connected = asyncio.Event()
        self._settings, self._limits = settings, limits
        self.trusted_origin = find_trusted_origin(handle.settings)
        self._mapper = EntityMapper(handle.agent_id)
        self._known_people = KnownPeople[str]()
        self._client = DiscordClient(
            build_http(settings, limits, handle.settings.network_environment()),
            settings,
            limits,
            on_event=self._on_event,
            before_event=self._before_event,
        )
        self.status = ConnectionStatus(PLATFORM, handle.character.name, clock, agent_id=handle.agent_id)
        self._receiver = EventReceiver(
            handle,
            self._client,
            self._mapper,
            settings,
            limits,
            on_author=self._on_author,
            clock=clock,
            on_connected=self._on_connected,
        )
        self._connection = GatewayConnection(
            self._client,
            IdentifyLimiter(time.monotonic),
            limits,
            self.status,
            wait_for_room=self._receiver.queue.wait_for_room,
        )
        self._message_sender = MessageSender(self._send_request, self._known_people, clock)
        self._typing_indicator = TypingIndicator(self._send_request, limits)
        self._command_handler = CommandHandler(handle, self._mapper, settings, self._send_request)
        self._guild_fetcher = GuildFetcher(time.monotonic)
        self._probe = GatewayProbe(self._send_request, self._list_rooms, self.status, clock)
        self._tasks = TaskSet("a task of a Discord account")
        self._is_logged_in = asyncio.Event()

    def start(self, *, is_receiving: bool = True) -> None:
        """Start connecting in the background; without receiving, log in only."""
        if not is_receiving:
            self._tasks.start(self._run_sending())
            return
        self._tasks.start(self._run())
        self._tasks.start(self._receiver.run())
        self._tasks.start(self._probe.run(self._limits.probe_seconds))

    async def stop(self) -> None:
        """Disconnect with a close code that lets the next start resume the session."""
        await self._typing_indicator.stop()
        await self._tasks.cancel(STOP_TIMEOUT)
        await self._client.close()

    async def deliver(self, delivery: Delivery) -> str:
        """Send a part and return its message id."""
        await self._wait_until_logged_in()
        return await self._message_sender.deliver(delivery, self._mapper.bot_id)

    async def edit(self, delivery: Delivery) -> str:
        """Edit or delete the message that a part replaces."""
        await self._wait_until_logged_in()
        return await self._message_sender.edit(delivery)

    async def reconcile(self, delivery: Delivery) -> str:
        """Resolve a part of which it is unknown whether it arrived."""
        try:
            await self._wait_until_logged_in()
        except NotSent as error:
            raise DeliveryUnknown(str(error), retry_after=error.retry_after) from error
        return await self._message_sender.reconcile(delivery, self._mapper.bot_id)

    async def open_direct(self, user_id: str) -> tuple[World, Room]:
        """Return the direct channel with a user and its world, opened if there is none; raises as `deliver`."""
        await self._wait_until_logged_in()
        route = Route("POST", "/users/@me/channels")
        try:
            channel = await self._send_request(route, json={"recipient_id": user_id})
        except REQUEST_ERRORS as error:
            raise to_delivery_error(error) from error
        channel_id = int(channel["id"])
        room = replace(self._mapper.to_room(discord.Object(channel_id)), type=ChannelType.DM)
        return self._mapper.world_of(None, None, channel_id), room

    async def typing(self, channel_id: str, active: bool) -> None:
        """Show or hide the typing indicator in a channel."""
        if self._is_logged_in.is_set() and not self.problem:
            await self._typing_indicator.show(channel_id, active)

    async def _wait_until_logged_in(self) -> None:
        """Wait for the login; raise NotSent after `request_timeout` or if the account was rejected."""
        try:
            async with asyncio.timeout(self._limits.request_timeout):
                await self._is_logged_in.wait()
        except TimeoutError:
            raise NotSent("not logged in with Discord yet") from None
        if self.problem:
            raise NotSent(self.problem, retry_after=REFUSED_RETRY_SECONDS)

    async def _send_request(self, *args: Any, **kwargs: Any) -> Any:
        """Send one request; a 401 response stops the account."""
        try:
            return await self._client.http.request(*args, **kwargs)
        except ErrorResponse as error:
            if error.status == 401:
                await self._stop_with(INVALID_TOKEN_MESSAGE)
            raise

    async def _run(self) -> None:
        while True:
            try:
                if not self._is_logged_in.is_set():
                    await self._log_in()
                stored = await self.handle.cursor(PLATFORM, self._mapper.account, SESSION_CURSOR)
                self._connection.session = GatewaySession.from_json(stored)
                await self._connection.run()
            except ConnectionRejected as error:
                await self._stop_with(str(error), error.cause)
                return
            except Exception as error:  # an unreadable response, a store outage or a defect: all may pass
                logger.exception("the Discord account of %s failed and is retried later", self.handle.character.name)
                self.status.failed(DisconnectCause.FAULT, type(error).__name__)
            await self._limits.sleep(self._limits.max_retry_delay)

    async def _run_sending(self) -> None:
        try:
            await self._log_in()
        except ConnectionRejected as error:
            await self._stop_with(str(error), error.cause)
            return
        self.status.connected()

    async def _log_in(self) -> None:
        token = self._settings.discord_api_token
        backoff = Backoff(1.0, self._limits.max_retry_delay)
        for failures in count(1):
            try:
                await self._client.login(token.get_secret_value() if token else "")
            except REQUEST_ERRORS as error:
                if isinstance(error, ErrorResponse) and error.status == 401:
                    raise ConnectionRejected(INVALID_TOKEN_MESSAGE) from None
                self.status.failed(disconnect_cause_of(error), error or type(error).__name__)
                await self._limits.sleep(backoff.delay(failures))
            else:
                break
        self._mapper.bot_id = self._client.user.id if self._client.user else 0
        self.status.account = f"@{self._client.user.name}" if self._client.user else ""
        self._is_logged_in.set()
        try:
            commands = build_registration(self.handle.commands)
            await self._client.http.bulk_upsert_global_commands(self._client.application_id or 0, commands)
        except REQUEST_ERRORS as error:
            logger.warning("Discord did not register the commands: %s", error)

    async def _stop_with(self, problem: str, cause: DisconnectCause = DisconnectCause.REFUSED) -> None:
        if self.problem:
            return
        self.problem = problem
        self._is_logged_in.set()  # releases those who wait for the login
        self.is_connected.set()
        self.status.stopped(cause, problem)
        await self._tasks.cancel(timeout=0)

    def _on_event(self, event: GatewayEvent) -> None:
        if event.name == "interaction":
            self._tasks.start(self._handle_interaction(event))
        elif event.name == "disconnect":
            self.is_connected.clear()
        else:
            if event.name == "message":
                [message] = event.args
                self._probe.note(str(message.channel.id), message.id)
            elif event.name == UNREADABLE:
                self._probe.note_unreadable(event.raw)
            self._receiver.enqueue(event)

    async def _list_rooms(self) -> list[Room]:
        rooms = await self.handle.conversations.rooms()
        return [room for room in rooms if (room.platform, room.account) == (PLATFORM, self._mapper.account)]

    async def _handle_interaction(self, event: GatewayEvent) -> None:
        try:
            await self._command_handler.handle(*event.args)
        except REQUEST_ERRORS as error:  # the interaction may have expired, or its channel may be gone
            if isinstance(error, ErrorResponse) and error.code == ALREADY_ACKNOWLEDGED:
                logger.debug("an interaction on Discord came again: %s", error)
            else:
                logger.warning("an interaction on Discord was not answered: %s", error or type(error).__name__)
        self._receiver.enqueue(GatewayEvent(POSITION, (), event.session))

    async def _before_event(self, event: str, data: Any) -> None:
        await self._receiver.queue.require_room(self._limits.queue_full_timeout)
        await self._guild_fetcher.ensure_guild(self._client, event, data)

    def _on_author(self, channel_id: str, user_id: str) -> None:
        self._known_people.note_user(channel_id, user_id)
        self._message_sender.mark_writable(channel_id)

    def _on_connected(self) -> None:
        self._probe.reset()
        self._connection.mark_connected()
        self.is_connected.set()
