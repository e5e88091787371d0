"""One character's account on Farcaster: it receives at intervals, and sends."""

import logging
from datetime import timedelta

from adapters.farcaster.client import HubClient, RequestRefused
from adapters.farcaster.config import FarcasterSettings, read_settings
from adapters.farcaster.incoming import PLATFORM, account_key, build_feed_room, build_world, name_of
from adapters.farcaster.messages import CastId, sign_cast, to_seconds
from adapters.farcaster.receiving import CastReceiver, ThreadIndex
from bot.platform import (
    Account,
    AgentHandle,
    Backoff,
    ConnectionStatus,
    Delivery,
    DeliveryError,
    DeliveryKind,
    DeliveryState,
    DisconnectCause,
    Feed,
    InboxClosed,
    NotSent,
    TaskSet,
    TimeSource,
    Undeliverable,
    disconnect_cause,
    is_quiet,
)
from bot.store import StoreUnavailable

logger = logging.getLogger(__name__)
PROFILE = "profile"  # the id of a notice that a process without the adapter has committed
RETRIES = Backoff(1.0, 60.0)


class FarcasterAccount(Account):
    """One account, opened and closed by the adapter."""

    def __init__(self, handle: AgentHandle, time_source: TimeSource) -> None:
        self._handle, self._time = handle, time_source
        self.settings: FarcasterSettings = read_settings(handle.settings)
        self.keys = (account_key(self.settings.fid),)
        self.status = ConnectionStatus(PLATFORM, handle.character.name, time_source.now, agent_id=handle.agent_id)
        self._client = HubClient(self.settings, handle.settings.network_environment())
        self._threads = ThreadIndex(handle, time_source)
        self._receiver = CastReceiver(handle, self._client, self.settings, self._threads, time_source)
        self._tasks = TaskSet(f"{handle.character.name} on Farcaster")

    async def open(self) -> None:
        """Open the HTTP session and start in the background."""
        await self._client.open()
        self._tasks.start(self._run())

    async def close(self) -> None:
        """Stop all tasks and close the session."""
        await self._tasks.cancel()
        await self._client.close()

    @property
    def feed(self) -> Feed:
        """The account's timeline, the interval of scheduled casts, and why they pause."""
        settings, agent_id = self.settings, self._handle.agent_id
        shortest, longest = settings.farcaster_post_interval_min, settings.farcaster_post_interval_max
        interval = (timedelta(minutes=shortest), timedelta(minutes=longest)) if settings.farcaster_post_enable else None
        is_paused = is_quiet(settings.farcaster_quiet_hours, settings.farcaster_time_zone, self._time.now())
        reason = f"FARCASTER_QUIET_HOURS is {settings.farcaster_quiet_hours}" if is_paused else ""
        return Feed(build_world(agent_id), build_feed_room(agent_id, settings.fid), interval, reason)

    async def deliver(self, delivery: Delivery) -> str:
        """Send one part and return the cast's id; sent again it has the same hash, and is the same cast.

        What is signed comes from the ledger alone: the text, the cast that it answers, and the time of the part.
        """
        if delivery.kind is DeliveryKind.NOTICE:
            return PROFILE
        fid, content = self.settings.fid, delivery.content
        parent = await self._find_parent(delivery)
        embeds = [item.url for item in content.attachments]
        timestamp = to_seconds(delivery.created_at)
        cast = sign_cast(self.settings.signer_key, fid, timestamp, content.text, parent=parent, embeds=embeds)
        try:
            await self._client.submit(cast.body)
        except RequestRefused as error:
            if not error.is_final:
                raise NotSent(str(error)) from error
            if not (error.is_duplicate or await self._has(cast.id)):
                raise Undeliverable(str(error)) from error
        kind, _, root = delivery.target.partition(":")
        self._threads.note(cast.id, root if kind == "cast" else str(cast.id))
        await self._threads.save()
        return str(cast.id)

    async def _has(self, cast_id: CastId) -> bool:
        """Return whether the hub has a cast that it has refused: then it got it before."""
        try:
            return await self._client.cast(cast_id) is not None
        except RequestRefused as error:
            raise NotSent(str(error)) from error

    async def _find_parent(self, delivery: Delivery) -> CastId | None:
        """Return the cast that a part answers: the part before it, the mention, or the first cast of its thread."""
        kind, _, root = delivery.target.partition(":")
        parent = delivery.reply_to or (root if kind == "cast" else "")
        if delivery.part:
            parts = await self._handle.conversations.deliveries(delivery.turn_id)
            number = delivery.part - 1
            previous = next(
                (item for item in parts if (item.memory_id, item.part) == (delivery.memory_id, number)), None
            )
            if previous is None or previous.state is not DeliveryState.SENT or not previous.external_id:
                state = previous.state if previous is not None else "gone"
                raise Undeliverable(
                    f"part {delivery.part} of the thread waits: the part before it is {state} "
                    f"(bot outbox send {previous.id if previous else 'ID'}, then {delivery.id})"
                )
            parent = previous.external_id
        try:
            return CastId.parse(parent) if parent else None
        except ValueError as error:
            raise Undeliverable(str(error)) from error

    async def _run(self) -> None:
        """Find out the account's name, then read at intervals, until the process stops."""
        failures, is_behind = 0, True  # casts were missed, and old ones are not answered
        while True:
            delay = self.settings.farcaster_poll_interval
            try:
                await self._look(is_backfill=is_behind)
                self.status.connected()
                failures, is_behind = 0, False
                if not self.is_receiving:
                    return
            except InboxClosed:
                return
            except StoreUnavailable as error:
                logger.info("%s does not read: %s", self.status.label, error)
            except Exception as error:
                failures, is_behind = failures + 1, True
                retry_after = self._report(error)
                delay = RETRIES.delay(failures, retry_after=retry_after)
            await self._time.sleep(delay)

    async def _look(self, *, is_backfill: bool) -> None:
        users = {self.settings.fid: await self._receiver.user(self.settings.fid)}
        self.status.account = f"@{name_of(self.settings.fid, users)}"
        if self.is_receiving:
            await self._receiver.poll(is_backfill=is_backfill)

    def _report(self, error: Exception) -> float:
        """Report why the hub was not read; return the seconds that it asks to wait."""
        retry_after = getattr(error, "retry_after", None) or 0.0
        if isinstance(error, RequestRefused):
            self.status.failed(DisconnectCause.FORBIDDEN, error)
        elif isinstance(error, DeliveryError):
            self.status.failed(DisconnectCause.LIMITED if retry_after else disconnect_cause(error), error)
        else:  # a defect must not end the receiving for ever
            logger.error("reading the casts for %s failed", self.status.label, exc_info=error)
            self.status.failed(DisconnectCause.FAULT, type(error).__name__)
        return retry_after
