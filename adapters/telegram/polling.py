"""Long polling of updates; the offset is stored in one transaction with them."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from telegram.error import Conflict, InvalidToken, TelegramError

from adapters.telegram.client import MAX_UPDATES, BotClient, ResponseTooLarge, TooManyRequests
from adapters.telegram.config import Limits
from adapters.telegram.entities import PLATFORM
from adapters.telegram.errors import disconnect_cause_of, error_text
from adapters.telegram.receiving import ParsedUpdate, UpdateReceiver, update_id_of
from bot import BotError
from bot.platform import AgentHandle, Backoff, ConnectionStatus, DisconnectCause, InboxClosed, StreamCursor, TimeSource

logger = logging.getLogger(__name__)
OFFSET_CURSOR, LAST_CALL_CURSOR = "offset", "called"
CALL_RECORD_INTERVAL = timedelta(minutes=10)


class UpdatePoller:
    """Polls the updates of one bot and retries after errors until the inbox closes."""

    def __init__(
        self,
        client: BotClient,
        handle: AgentHandle,
        receiver: UpdateReceiver,
        limits: Limits,
        time_source: TimeSource,
        status: ConnectionStatus,
    ) -> None:
        self._status = status
        self._client, self._handle, self._receiver = client, handle, receiver
        self._limits, self._time = limits, time_source
        self._offset: int | None = None
        self._advanced_at: datetime | None = None  # when the last update was stored
        self._last_call_at: datetime | None = None  # when Telegram last answered, as stored
        self._processed_ids: set[int] = set()  # beyond the offset, which a pending album holds back
        self._delayed_albums: set[str] = set()  # albums that were already waited for
        self._failures, self._backoff = 0, Backoff(1.0, limits.max_retry_delay)
        self._has_polled = False
        self._batch_size = MAX_UPDATES  # smaller after an answer that was too large
        self._is_behind = True  # pending updates may be old
        self._probed_at = time_source.monotonic()
        self._pending_since: datetime | None = None  # since when updates were pending that no poll brought

    async def run(self) -> None:
        """Poll until the inbox closes. Raises InvalidToken if Telegram rejects the token."""
        is_restored = False
        while True:
            try:
                if not is_restored:
                    await self._restore_position()
                    is_restored = True
                await self._poll_once()
                self._failures = 0
                self._status.connected()
            except InboxClosed:
                return
            except InvalidToken:
                raise
            except Conflict as error:
                await self._handle_conflict(error)
            except TooManyRequests as error:
                self._status.failed(disconnect_cause_of(error), error_text(error))
                self._is_behind = True
                await self._time.sleep(error.seconds)
            except TelegramError as error:
                await self._handle_error(error)
            except BotError as error:  # nothing can be stored, which the store reports itself
                logger.info("updates of bot %s are delayed: %s", self._client.account, error)
                await self._wait_after_failure()
            except Exception as error:  # a bug must not end polling
                logger.exception("updates of bot %s could not be processed", self._client.account)
                self._status.failed(DisconnectCause.FAULT, type(error).__name__)
                await self._wait_after_failure()

    async def _poll_once(self) -> None:
        is_urgent = self._processed_ids or self._delayed_albums or not self._has_polled
        poll_seconds = 0 if is_urgent else self._limits.poll_seconds
        started_at = self._time.monotonic()
        grace_seconds = self._limits.grace_seconds
        batch_size = self._batch_size
        raw = await self._client.fetch_updates(self._current_offset(), poll_seconds, grace_seconds, batch_size)
        self._batch_size = min(MAX_UPDATES, 2 * batch_size)
        if poll_seconds and not raw and self._time.monotonic() - started_at < 1:
            await self._time.sleep(self._limits.empty_poll_delay)
        self._has_polled = True
        await self._probe(is_empty=not raw)
        update_ids = [update_id for update in raw if (update_id := update_id_of(update)) is not None]
        if raw and not update_ids:
            raise TelegramError("the updates have no ids")  # an immediate retry would return the same
        new_updates = [update for update in raw if update_id_of(update) not in self._processed_ids]
        batch = await self._receiver.parse(new_updates, may_be_old=self._is_behind)
        held_ids = self._find_held_updates(batch)
        ready = [update for update in batch if update.update_id not in held_ids]
        next_offset = min(held_ids, default=max(update_ids, default=(self._offset or 1) - 1) + 1)
        await self._record_call()
        if update_ids:
            position = f"{next_offset} {self._time.now().isoformat()}"
            await self._receiver.submit(ready, self._cursor(OFFSET_CURSOR, position))
            self._offset, self._advanced_at = next_offset, self._time.now()
        processed_ids = {*self._processed_ids, *update_ids} - held_ids
        self._processed_ids = {update_id for update_id in processed_ids if update_id >= next_offset}
        held_updates = [update for update in batch if update.update_id in held_ids]
        self._delayed_albums = {album_id for update in held_updates for album_id in update.album_ids}
        self._is_behind = (bool(held_ids) and self._is_behind) or len(raw) >= batch_size
        if held_ids:
            await self._time.sleep(self._limits.album_seconds)

    async def _probe(self, *, is_empty: bool) -> None:
        """Ask from time to time whether updates are pending though a poll brought none; twice in a row is deaf."""
        if not is_empty:
            self._probed_at, self._pending_since, self._status.unheard_since = self._time.monotonic(), None, None
        elif self._time.monotonic() - self._probed_at >= self._limits.probe_seconds:
            self._probed_at = self._time.monotonic()
            is_pending = bool((await self._client.get_webhook_info()).pending_update_count)
            self._status.unheard_since = self._pending_since if is_pending else None
            self._pending_since = (self._pending_since or self._time.now()) if is_pending else None

    def _find_held_updates(self, batch: Sequence[ParsedUpdate]) -> set[int]:
        """Return the ids of updates of incomplete albums and of those that follow them in the same chat.

        The offset stays before them, so that the next poll returns them again with the rest of the album.
        """
        waiting_chats, held_ids = set[int | None](), set[int]()
        for update in batch:
            if update.chat_id in waiting_chats or not self._delayed_albums.issuperset(update.album_ids):
                waiting_chats.add(update.chat_id)
                held_ids.add(update.update_id)
        return held_ids

    async def _restore_position(self) -> None:
        """Load the stored offset, and warn if the bot was off for longer than Telegram stores updates."""
        offset, _, timestamp = (await self._read_cursor(OFFSET_CURSOR)).partition(" ")
        if offset.lstrip("-").isdecimal():
            self._offset = int(offset)
            self._advanced_at = _parse_timestamp(timestamp)
        self._last_call_at = _parse_timestamp(await self._read_cursor(LAST_CALL_CURSOR))
        self._warn_if_lossy()

    def _warn_if_lossy(self) -> None:
        now, last_call_at = self._time.now(), self._last_call_at
        retention = timedelta(hours=self._limits.update_retention_hours)
        if last_call_at is not None and now - last_call_at > retention:
            logger.warning(
                "no updates were fetched from %s to %s, and Telegram stores them for 24 hours: "
                "messages of that time may be lost",
                last_call_at.isoformat(timespec="minutes"),
                now.isoformat(timespec="minutes"),
            )

    def _current_offset(self) -> int | None:
        """Return the offset; None after six days without updates, as Telegram may restart its numbering."""
        ttl = timedelta(days=self._limits.offset_ttl_days)
        is_expired = self._advanced_at is not None and self._time.now() - self._advanced_at > ttl
        return None if is_expired else self._offset

    async def _record_call(self) -> None:
        """Store from time to time when Telegram last answered."""
        now = self._time.now()
        if self._failures:
            self._warn_if_lossy()
        if self._last_call_at is None or now - self._last_call_at > CALL_RECORD_INTERVAL:
            self._last_call_at = now
            await self._handle.submit_all([], self._cursor(LAST_CALL_CURSOR, now.isoformat()))

    async def _handle_conflict(self, error: Conflict) -> None:
        if "webhook" in error.message.lower():
            logger.warning("bot %s had a webhook; removing it", self._client.account)
            try:
                await self._client.delete_webhook(drop_pending_updates=False)
            except TelegramError as failure:
                logger.warning("the webhook could not be removed: %s", error_text(failure))
            await self._time.sleep(self._limits.empty_poll_delay)
            return
        self._status.failed(
            DisconnectCause.CONTESTED,
            f"another program asks for the updates of bot {self._client.account} ({error_text(error)}): stop "
            "that program, or use another token here",
        )
        self._is_behind = True
        await self._time.sleep(self._limits.conflict_seconds)

    async def _handle_error(self, error: TelegramError) -> None:
        """Wait after an error; after an answer that was too large, ask for half as many updates at once."""
        if isinstance(error, ResponseTooLarge) and self._batch_size > 1:
            self._batch_size //= 2
            self._is_behind = True
            logger.info("%s: asking for %d updates of bot %s", error.message, self._batch_size, self._client.account)
            return
        self._status.failed(disconnect_cause_of(error), error_text(error))
        await self._wait_after_failure()

    async def _wait_after_failure(self) -> None:
        self._failures += 1
        self._is_behind = True
        await self._time.sleep(self._backoff.delay(self._failures))

    def _cursor(self, name: str, value: str) -> StreamCursor:
        return StreamCursor(PLATFORM, self._client.account, name, value)

    async def _read_cursor(self, name: str) -> str:
        return await self._handle.cursor(PLATFORM, self._client.account, name) or ""


def _parse_timestamp(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
