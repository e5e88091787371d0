"""Long polling of updates; the offset is stored in one transaction with them.

Webhook deliveries; each is stored before it is acknowledged.
"""

import asyncio
import hmac
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from aiohttp import web
from telegram import WebhookInfo
from telegram.error import Conflict, InvalidToken, TelegramError

import bot.platform as bp
from adapters.telegram.client import (
    MAX_UPDATES,
    PARSE_ERRORS,
    BotClient,
    ResponseTooLarge,
    TooManyRequests,
    disconnect_cause_of,
    error_text,
    read_bounded_json,
    update_id_of,
)
from adapters.telegram.config import Limits, TelegramSettings
from adapters.telegram.incoming import PLATFORM
from adapters.telegram.receiving import ParsedUpdate, UpdateReceiver
from bot import BotError, ConfigError, TemporaryError
from bot.text import shorten

logger = logging.getLogger(__name__)
OFFSET_CURSOR, LAST_CALL_CURSOR = "offset", "called"
CALL_RECORD_INTERVAL = timedelta(minutes=10)


class UpdatePoller:
    """Polls the updates of one bot and retries after errors until the inbox closes.

    Each of its characters stores the position; it is continued at the earliest of these.
    """

    def __init__(
        self,
        client: BotClient,
        handles: Sequence[bp.AgentHandle],
        receiver: UpdateReceiver,
        limits: Limits,
        time_source: bp.TimeSource,
        status: bp.ConnectionStatus,
    ) -> None:
        self._status = status
        self._client, self._handles, self._receiver = client, handles, receiver
        self._limits, self._time = limits, time_source
        self._offset: int | None = None
        self._advanced_at: datetime | None = None  # when the last update was stored
        self._last_call_at: datetime | None = None  # when Telegram last answered, as stored
        self._processed_ids: set[int] = set()  # beyond the offset, which a pending album holds back
        self._delayed_albums: set[str] = set()  # albums that were already waited for
        self._failures, self._backoff = 0, bp.Backoff(1.0, limits.max_retry_delay)
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
            except bp.InboxClosed:
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
                self._status.failed(bp.DisconnectCause.FAULT, type(error).__name__)
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
        positions = [cursor.partition(" ") for cursor in await self._read_cursors(OFFSET_CURSOR)]
        known = [(int(offset), timestamp) for offset, _, timestamp in positions if offset.lstrip("-").isdecimal()]
        if known:  # a character that has none joined later
            self._offset, timestamp = min(known)
            self._advanced_at = _parse_timestamp(timestamp)
        self._last_call_at = _parse_timestamp((await self._read_cursors(LAST_CALL_CURSOR))[0])
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
            await self._handles[0].submit_all([], self._cursor(LAST_CALL_CURSOR, now.isoformat()))

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
            bp.DisconnectCause.CONTESTED,
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

    def _cursor(self, name: str, value: str) -> bp.StreamCursor:
        return bp.StreamCursor(PLATFORM, self._client.account, name, value)

    async def _read_cursors(self, name: str) -> list[str]:
        return [await handle.cursor(PLATFORM, self._client.account, name) or "" for handle in self._handles]


def _parse_timestamp(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"
MAX_BODY_BYTES = 1 << 20


class Webhook:
    """Receives the deliveries of one bot and keeps its webhook registered."""

    def __init__(
        self,
        client: BotClient,
        receiver: UpdateReceiver,
        settings: TelegramSettings,
        limits: Limits,
        time_source: bp.TimeSource,
        status: bp.ConnectionStatus,
    ) -> None:
        if settings.telegram_webhook_secret is None:
            raise ConfigError("TELEGRAM_WEBHOOK_SECRET is not set: without it anyone can deliver messages")
        self._client, self._receiver = client, receiver
        self._settings, self._limits, self._time = settings, limits, time_source
        self._status = status
        self._secret = settings.telegram_webhook_secret.get_secret_value()
        self._album_parts: dict[str, list[ParsedUpdate]] = {}
        self._album_tasks: dict[str, asyncio.Task[None]] = {}
        self._tasks = bp.TaskSet("an album on Telegram", logs_failures=False)  # the deliveries await them

    @property
    def account(self) -> str:
        """The bot's id, which is the last part of the URL."""
        return self._client.account

    @property
    def url(self) -> str:
        """The URL to which Telegram delivers."""
        return f"{self._settings.telegram_webhook_url}/{self.account}"

    async def run(self) -> None:
        """Register the webhook and check regularly that it is still registered.

        Raises InvalidToken if Telegram rejects the token.
        """
        failures, backoff, is_set = 0, bp.Backoff(1.0, self._limits.max_retry_delay), False
        try:
            while True:
                delay = self._limits.webhook_check_seconds
                try:
                    if is_set and not self._check_registration(await self._client.get_webhook_info()):
                        is_set = False
                    if not is_set:
                        await self._register()
                        is_set = True
                    failures = 0
                except InvalidToken:
                    raise
                except (TelegramError, *PARSE_ERRORS) as error:
                    self._status.failed(disconnect_cause_of(error), error_text(error))
                    failures += 1
                    delay = backoff.delay(failures)
                await self._time.sleep(delay)
        finally:
            await self._tasks.cancel()

    async def _register(self) -> None:
        await self._client.set_webhook(
            self.url, allowed_updates=list(self._client.update_kinds), drop_pending_updates=False
        )
        self._status.connected()

    def _check_registration(self, info: WebhookInfo) -> bool:
        """Update the status from the webhook info; return False if Telegram does not deliver here."""
        if info.url != self.url:
            self._status.failed(
                bp.DisconnectCause.WEBHOOK, "another program has replaced the webhook; setting it again"
            )
            return False
        failed_at, window = info.last_error_date, timedelta(seconds=self._limits.webhook_check_seconds)
        if info.pending_update_count and failed_at and failed_at > self._time.now() - window:
            reason = shorten(info.last_error_message or "no reason given", 200)
            self._status.failed(bp.DisconnectCause.WEBHOOK, f"Telegram cannot deliver to {self.url}: {reason}")
        else:
            self._status.connected()
        return True

    def is_secret(self, value: str) -> bool:
        """Return whether this is the secret that Telegram sends; it is compared in constant time."""
        return hmac.compare_digest(value.encode("utf-8", "replace"), self._secret.encode())

    async def handle(self, body: bytes) -> web.Response:
        """Handle one delivery: 200 if it is stored, 503 if Telegram must repeat it."""
        try:
            update = read_bounded_json(body)
        except ValueError:
            return web.Response(status=400)
        try:
            for parsed_update in await self._receiver.parse([update], may_be_old=True):  # its age is unknown
                await self._submit(parsed_update)
        except (bp.InboxClosed, TemporaryError):
            return web.Response(status=503, headers={"Retry-After": "5"})
        return web.Response()

    async def _submit(self, update: ParsedUpdate) -> None:
        if not update.album_ids:
            await self._receiver.submit([update])
            return
        album_id = update.album_ids[0]
        parts = self._album_parts.setdefault(album_id, [])
        parts.append(update)
        if len(parts) == 1:
            self._album_tasks[album_id] = self._tasks.start(self._submit_album(album_id))
        await asyncio.shield(self._album_tasks[album_id])

    async def _submit_album(self, album_id: str) -> None:
        """Wait for the other parts, which Telegram delivers concurrently, and store them as one message."""
        await self._time.sleep(self._limits.album_seconds)
        del self._album_tasks[album_id]
        parts = self._album_parts.pop(album_id)
        await self._receiver.submit(sorted(parts, key=lambda part: part.update_id))


class WebhookServer:
    """HTTP server for the deliveries of all bots of the process."""

    def __init__(
        self,
        find_webhook: Callable[[str], Webhook | None],
        settings: TelegramSettings,
        prefix: str,
        limits: bp.ServerLimits,
    ) -> None:
        self._find_webhook, self._limits = find_webhook, limits
        self._proxies = bp.TrustedProxies()
        self._pool = bp.ConnectionPool(limits, self._proxies)
        self._guess_limiter = bp.GuessLimiter(limits.max_guesses, limits.max_total_guesses, label="webhook secrets")
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_post(f"{prefix}/{{number}}", self._dispatch)
        self.port = settings.telegram_webhook_port
        self._server = bp.HttpServer(
            app, self._pool, host=settings.telegram_webhook_host, port=self.port, settings_prefix="TELEGRAM_WEBHOOK"
        )

    async def start(self) -> None:
        """Start to listen. Raises SettingError if the address is not available."""
        self.port = await self._server.start()

    async def stop(self) -> None:
        """Stop listening."""
        await self._server.stop()

    async def _dispatch(self, request: web.Request) -> web.Response:
        self._pool.record_activity(request)
        try:
            webhook = self._authorize(request)
            async with bp.body_timeout(self._limits.body_seconds):
                body = await request.read()
        except bp.HttpProblem as problem:
            return web.Response(status=problem.status, text=problem.message, headers=problem.headers)
        return await webhook.handle(body)

    def _authorize(self, request: web.Request) -> Webhook:
        """Return the webhook to which a request with the right secret is addressed. Raises HttpProblem."""
        webhook = self._find_webhook(request.match_info["number"])
        if webhook is None:
            raise bp.HttpProblem(404, "not_found", "no bot has this address")
        secrets = request.headers.getall(SECRET_HEADER, [])
        if len(secrets) != 1:
            raise bp.HttpProblem(401, "unauthorized", f"send {SECRET_HEADER} once")
        if not webhook.is_secret(secrets[0]):
            problem = bp.HttpProblem(403, "forbidden", "this is not the secret")
            self._guess_limiter.refuse(self._proxies.find_client(request.remote, request.headers), problem)
        self._pool.authenticate(request)
        return webhook
