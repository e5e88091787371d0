"""The Mastodon adapter: for every character that has a token one account, which receives and sends.

`bot doctor` for Mastodon: the token, the bot flag, and the server's limits.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from uuid import UUID

from yarl import URL

import bot.platform as bp
from adapters.mastodon.client import MastodonClient, RequestRefused
from adapters.mastodon.config import REQUIRED_VARIABLES, MastodonSettings, read_settings
from adapters.mastodon.incoming import (
    PLATFORM,
    BotIdentity,
    Instance,
    account_key,
    build_direct_room,
    build_feed_room,
    build_world,
    html_to_text,
)
from adapters.mastodon.outgoing import split_reply
from adapters.mastodon.receiving import NotificationReceiver
from adapters.mastodon.sending import PostSender
from bot import Content, Entity, Room, Settings, TemporaryError, World, system_clock
from bot.store import CheckReport, StoreUnavailable
from bot.text import names_ai

logger = logging.getLogger(__name__)
TOKEN_REFUSED = "Mastodon refuses MASTODON_TOKEN: copy the application's access token from Preferences, Development"
RETRIES = bp.Backoff(1.0, 60.0)
STREAM_RETRIES = bp.Backoff(1.0, 300.0)
STORE_RETRY_SECONDS = 1.0
Send = Callable[[bp.Delivery, BotIdentity], Awaitable[str]]


class MastodonAccount(bp.Account):
    """One account, opened and closed by the adapter."""

    def __init__(self, handle: bp.AgentHandle, time_source: bp.TimeSource) -> None:
        self._handle, self._time = handle, time_source
        self.settings: MastodonSettings = read_settings(handle.settings)
        self.keys = (account_key(self.settings.host, handle.agent_id),)
        self.status = bp.ConnectionStatus(PLATFORM, handle.character.name, time_source.now, agent_id=handle.agent_id)
        self.client = MastodonClient(self.settings, handle.settings.network_environment(), time_source.now)
        self.sender = PostSender(handle, self.client, self.settings, time_source)
        self._token_check = bp.TokenCheck(self.status, self._is_token_accepted, TOKEN_REFUSED, time_source)
        self.identity: BotIdentity | None = None
        self._tasks = bp.TaskSet(f"{handle.character.name} on Mastodon")
        self._wake = asyncio.Event()
        self._is_behind = True  # mentions were missed, and old ones are not answered

    async def open(self) -> None:
        """Open the HTTP session and start in the background."""
        await self.client.session.__aenter__()
        self._tasks.start(self._run())

    async def close(self) -> None:
        """Stop all tasks and close the session."""
        await self._token_check.close()
        await self._tasks.cancel()
        await self.client.session.__aexit__()

    @property
    def feed(self) -> bp.Feed:
        """The account's timeline, the interval of scheduled posts, and why they pause."""
        settings, host, agent_id = self.settings, self.settings.host, self._handle.agent_id
        shortest, longest = settings.mastodon_post_interval_min, settings.mastodon_post_interval_max
        interval = (timedelta(minutes=shortest), timedelta(minutes=longest)) if settings.mastodon_post_enable else None
        hours, reason = settings.mastodon_quiet_hours, self._token_check.problem
        if not self._token_check.is_refused:
            is_paused = bp.is_quiet(hours, settings.mastodon_time_zone, self._time.now())
            reason = f"MASTODON_QUIET_HOURS is {hours}" if is_paused else ""
        return bp.Feed(build_world(host, agent_id), build_feed_room(host, agent_id), interval, reason)

    async def send(self, method: Send, delivery: bp.Delivery) -> str:
        """Call a method of the sender for a delivery; raise DeliveryError."""
        if self._token_check.is_refused:
            raise bp.NotSent(self._token_check.problem, retry_after=self._token_check.retry_after)
        if self.identity is None:
            raise bp.NotSent("Mastodon has not been reached yet")
        try:
            return await method(delivery, self.identity)
        except RequestRefused as error:
            if error.status != 401:
                raise bp.Undeliverable(str(error)) from error
            if await self._token_check.confirm():
                raise bp.NotSent(self._token_check.problem, retry_after=self._token_check.retry_after) from error
            raise bp.NotSent(f"{error}, although it does not refuse the token") from error

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
            except bp.InboxClosed:
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
            except bp.InboxClosed:
                raise
            except RequestRefused as error:
                if error.status == 401 and await self._token_check.confirm():
                    await self._token_check.wait_accepted()
                    continue
                self.status.failed(bp.DisconnectCause.FORBIDDEN, error)
            except bp.DeliveryError as error:
                retry_after = getattr(error, "retry_after", None) or 0.0
                self.status.failed(bp.DisconnectCause.LIMITED if retry_after else bp.disconnect_cause(error), error)
            except StoreUnavailable as error:
                logger.info("notifications of %s were not stored: %s", self.status.label, error)
                await self._time.sleep(STORE_RETRY_SECONDS)
                continue
            except Exception as error:  # a defect must not end the receiving for ever
                logger.exception("reading the notifications of %s failed", self.status.label)
                self.status.failed(bp.DisconnectCause.FAULT, type(error).__name__)
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
        except bp.DeliveryError:
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
            except bp.InboxClosed:
                return
            except (bp.DeliveryError, RequestRefused) as error:
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
            except (bp.DeliveryError, RequestRefused, bp.InboxClosed):
                raise
            except Exception:  # a defect costs one event, not the stream
                return logger.exception("an event of %s could not be applied", self.status.label)


REAL_TIME = bp.TimeSource()
FAVOURITE = bp.ReactionSet(("⭐",))
NOT_MARKED = 'the profile does not mark it as a bot: switch on "This is an automated account" in Edit profile'


class MastodonAdapter(bp.AccountAdapter[MastodonAccount]):
    """Reads notifications and sends posts; each character has an account of its own."""

    platform = PLATFORM
    can_edit = True
    links_parts = True
    shows_notices = False  # the profile has it, and with AI_NOTICE_POSTS each post a label
    marks_late_parts = False  # a post shows its time and what it answers

    def __init__(self, handles: Sequence[bp.AgentHandle], *, time_source: bp.TimeSource = REAL_TIME) -> None:
        owners = bp.select_accounts(
            handles,
            PLATFORM,
            REQUIRED_VARIABLES,
            lambda handle: read_settings(handle.settings).token,
            label="MASTODON_TOKEN",
        )
        super().__init__(MastodonAccount(handle, time_source) for handle in owners.values())
        hosts = {URL(account.settings.mastodon_server).host for account in self.accounts}
        self.is_trusted_audience = hosts == {"127.0.0.1"}  # the emulator
        self.labels_posts = any(account.sender.label for account in self.accounts)

    def split_content(self, content: Content) -> list[Content]:
        """Split a text into posts that every account's server takes."""
        senders = [account.sender for account in self.accounts]
        instance = min(
            (sender.instance for sender in senders), key=lambda item: item.max_characters, default=Instance()
        )
        return split_reply(content, instance, next((sender.label for sender in senders if sender.label), ""))

    async def deliver(self, delivery: bp.Delivery) -> str:
        """Send one part and return the post's id."""
        account = self.account_for(delivery)
        return await account.send(account.sender.deliver, delivery)

    async def edit(self, delivery: bp.Delivery) -> str:
        """Edit a post, or delete it if its new content is empty."""
        account = self.account_for(delivery)
        return await account.send(account.sender.edit, delivery)

    def find_reactions(self, room: Room) -> bp.ReactionSet:
        """Return the favourite."""
        return FAVOURITE

    async def react(self, delivery: bp.Delivery) -> str:
        """Favourite a post, or take that back."""
        account = self.account_for(delivery)
        return await account.send(account.sender.react, delivery)

    async def reconcile(self, delivery: bp.Delivery) -> str:
        """Send a part again, which the server publishes once, or look for it."""
        account = self.account_for(delivery)
        return await account.send(account.sender.reconcile, delivery)

    async def open_direct(self, agent_id: UUID, person: Entity) -> tuple[World, Room] | None:
        """Return the private chat of a character with a person: direct posts that mention the person."""
        account = self.account_of(agent_id)
        if account is None:
            return None
        host = account.settings.host
        return build_world(host, agent_id), build_direct_room(host, agent_id, person.external_id, person.name)

    def trusted_origin(self, account: str) -> str:
        """Return the origin of an account's server, which the operator has named."""
        owner = self.find_account(account)
        return str(URL(owner.settings.mastodon_server).origin()) if owner is not None else ""


def open_mastodon(handles: Sequence[bp.AgentHandle]) -> MastodonAdapter:
    """Return the adapter for all characters that have an account; raise ConfigError if two share one."""
    return MastodonAdapter(handles)


async def check_account(settings: Settings, read_cursor: bp.CursorReader) -> CheckReport:
    """Ask the server whose the token is, and for its limits, without sending anything visible.

    Raises SettingError if variables are wrong, TemporaryError if the server cannot be reached.
    """
    loaded = read_settings(settings)
    client = MastodonClient(loaded, settings.network_environment(), system_clock)
    try:
        async with client.session:
            own, instance = await client.own_account(), await client.instance()
    except RequestRefused as error:
        problem = TOKEN_REFUSED if error.status == 401 else f"{error}: check MASTODON_SERVER and the token's scopes"
        return CheckReport(f"the account on {loaded.host}", exists=False, problems=(problem,))
    except bp.DeliveryError as error:
        raise TemporaryError(f"{loaded.mastodon_server} cannot be reached: {error}") from None
    identity = BotIdentity(UUID(int=0), loaded.host, own)
    facts: dict[str, str | int] = {
        "server": f"Mastodon {instance.version}" if instance.version else loaded.host,
        "characters in a post": instance.max_characters,
        "followers": "ask first" if own.locked else "need not ask",
        "the profile says that it is an AI": "yes" if names_ai(html_to_text(own.note, (), identity)) else "no: add it",
        "scheduled posts": "on" if loaded.mastodon_post_enable else "off",
    }
    return CheckReport(f"@{own.acct} on {loaded.host}", facts=facts, warnings=() if own.bot else (NOT_MARKED,))
