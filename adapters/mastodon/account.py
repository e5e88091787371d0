"""One character's account on Mastodon: it is identified, receives and sends."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import timedelta
from functools import partial

from adapters.mastodon.client import MastodonClient, RequestRefused
from adapters.mastodon.config import MastodonSettings, read_settings
from adapters.mastodon.incoming import PLATFORM, BotIdentity, account_key, build_feed_room, build_world
from adapters.mastodon.receiving import NotificationReceiver
from adapters.mastodon.sending import PostSender
from bot.platform import (
    Account,
    AgentHandle,
    Backoff,
    ConnectionStatus,
    Delivery,
    DeliveryError,
    DisconnectCause,
    Feed,
    InboxClosed,
    NotSent,
    TaskSet,
    TimeSource,
    TokenCheck,
    Undeliverable,
    disconnect_cause,
    is_quiet,
)
from bot.store import StoreUnavailable

logger = logging.getLogger(__name__)
TOKEN_REFUSED = "Mastodon refuses MASTODON_TOKEN: copy the application's access token from Preferences, Development"
RETRIES = Backoff(1.0, 60.0)
STREAM_RETRIES = Backoff(1.0, 300.0)
STORE_RETRY_SECONDS = 1.0
Send = Callable[[Delivery, BotIdentity], Awaitable[str]]


class MastodonAccount(Account):
    """One account, opened and closed by the adapter."""

    def __init__(self, handle: AgentHandle, time_source: TimeSource) -> None:
        self._handle, self._time = handle, time_source
        self.settings: MastodonSettings = read_settings(handle.settings)
        self.keys = (account_key(self.settings.host, handle.agent_id),)
        self.status = ConnectionStatus(PLATFORM, handle.character.name, time_source.now, agent_id=handle.agent_id)
        self.client = MastodonClient(self.settings, handle.settings.network_environment(), time_source.now)
        self.sender = PostSender(handle, self.client, self.settings, time_source)
        self._token_check = TokenCheck(self.status, self._is_token_accepted, TOKEN_REFUSED, time_source)
        self.identity: BotIdentity | None = None
        self._tasks = TaskSet(f"{handle.character.name} on Mastodon")
        self._wake = asyncio.Event()
        self._is_behind = True  # mentions were missed, and old ones are not answered

    async def open(self) -> None:
        """Open the HTTP session and start in the background."""
        await self.client.open()
        self._tasks.start(self._run())

    async def close(self) -> None:
        """Stop all tasks and close the session."""
        await self._token_check.close()
        await self._tasks.cancel()
        await self.client.close()

    @property
    def feed(self) -> Feed:
        """The account's timeline, the interval of scheduled posts, and why they pause."""
        settings, host, agent_id = self.settings, self.settings.host, self._handle.agent_id
        shortest, longest = settings.mastodon_post_interval_min, settings.mastodon_post_interval_max
        interval = (timedelta(minutes=shortest), timedelta(minutes=longest)) if settings.mastodon_post_enable else None
        hours, reason = settings.mastodon_quiet_hours, self._token_check.problem
        if not self._token_check.is_refused:
            is_paused = is_quiet(hours, settings.mastodon_time_zone, self._time.now())
            reason = f"MASTODON_QUIET_HOURS is {hours}" if is_paused else ""
        return Feed(build_world(host, agent_id), build_feed_room(host, agent_id), interval, reason)

    async def send(self, method: Send, delivery: Delivery) -> str:
        """Call a method of the sender for a delivery; raise DeliveryError."""
        if self._token_check.is_refused:
            raise NotSent(self._token_check.problem, retry_after=self._token_check.retry_after)
        if self.identity is None:
            raise NotSent("Mastodon has not been reached yet")
        try:
            return await method(delivery, self.identity)
        except RequestRefused as error:
            if error.status != 401:
                raise Undeliverable(str(error)) from error
            if await self._token_check.confirm():
                raise NotSent(self._token_check.problem, retry_after=self._token_check.retry_after) from error
            raise NotSent(f"{error}, although it does not refuse the token") from error

    async def _run(self) -> None:
        """Identify the account, then receive, until the process stops."""
        identity = await self._retry(self._identify)
        if not self.is_receiving or identity is None:
            return
        receiver = NotificationReceiver(self._handle, identity, self.client, self.settings)
        self._tasks.start(self._listen(receiver))
        self._tasks.start(self._tick())
        while True:
            self._wake.clear()
            try:
                await self._retry(partial(self._poll, receiver))
            except InboxClosed:
                return
            await self._wake.wait()

    async def _poll(self, receiver: NotificationReceiver) -> None:
        await receiver.poll(is_backfill=self._is_behind)
        self._is_behind = False

    async def _retry(self, work: Callable[[], Awaitable[BotIdentity | None]]) -> BotIdentity | None:
        """Return what `work` returns, once it succeeds; failures are reported to `status`. Raises InboxClosed."""
        failures = 0
        while True:
            retry_after = 0.0
            try:
                result = await work()
                self.status.connected()
                return result
            except InboxClosed:
                raise
            except RequestRefused as error:
                if error.status == 401 and await self._token_check.confirm():
                    await self._token_check.wait_accepted()
                    continue
                self.status.failed(DisconnectCause.FORBIDDEN, error)
            except DeliveryError as error:
                retry_after = getattr(error, "retry_after", None) or 0.0
                self.status.failed(DisconnectCause.LIMITED if retry_after else disconnect_cause(error), error)
            except StoreUnavailable as error:
                logger.info("notifications of %s were not stored: %s", self.status.label, error)
                await self._time.sleep(STORE_RETRY_SECONDS)
                continue
            except Exception as error:  # a defect must not end the receiving for ever
                logger.exception("reading the notifications of %s failed", self.status.label)
                self.status.failed(DisconnectCause.FAULT, type(error).__name__)
            failures, self._is_behind = failures + 1, True
            await self._time.sleep(RETRIES.delay(failures, retry_after=retry_after))

    async def _identify(self) -> BotIdentity:
        own = await self.client.own_account()
        self.sender.instance = await self.client.instance()
        self.identity = BotIdentity(self._handle.agent_id, self.settings.host, own)
        self.status.account = f"@{own.acct}"
        logger.info(
            "connected to %s as @%s%s",
            self.settings.host,
            own.acct,
            "" if own.bot else ", whose profile does not say that it is automated",
        )
        return self.identity

    async def _is_token_accepted(self) -> bool | None:
        try:
            await self.client.own_account()
        except RequestRefused as error:
            return False if error.status == 401 else None
        except DeliveryError:
            return None
        return True

    async def _tick(self) -> None:
        """Look at the notifications at intervals, whether or not the server streams events."""
        while True:
            await self._time.sleep(self.settings.mastodon_poll_interval)
            self._wake.set()

    async def _listen(self, receiver: NotificationReceiver) -> None:
        """Follow the stream of events; what it reports is read from the notifications, so that nothing is missed."""
        failures = 0
        while True:
            try:
                async with aclosing(self.client.stream(self.sender.instance.streaming_url)) as events:
                    async for name, data in events:
                        if name in ("open", "notification"):
                            self._wake.set()
                        else:
                            await self._apply(receiver, name, data)
                        failures = 0
            except InboxClosed:
                return
            except (DeliveryError, RequestRefused) as error:
                logger.info("%s: %s", self.status.label, error)
            self._wake.set()  # whether the server can be reached at all
            failures += 1
            await self._time.sleep(STREAM_RETRIES.delay(failures))

    async def _apply(self, receiver: NotificationReceiver, name: str, data: str) -> None:
        """Apply an event, once it can be stored."""
        while True:
            try:
                return await receiver.handle_event(name, data)
            except StoreUnavailable:
                await self._time.sleep(STORE_RETRY_SECONDS)
            except (DeliveryError, RequestRefused, InboxClosed):
                raise
            except Exception:  # a defect costs one event, not the stream
                return logger.exception("an event of %s could not be applied", self.status.label)
