"""Webhook deliveries; each is stored before it is acknowledged."""

import asyncio
import hmac
from collections.abc import Callable
from datetime import timedelta

from aiohttp import web
from telegram import WebhookInfo
from telegram.error import InvalidToken, TelegramError

from adapters.telegram.client import UPDATE_KINDS, BotClient
from adapters.telegram.config import Limits, TelegramSettings
from adapters.telegram.errors import PARSE_ERRORS, disconnect_cause_of, error_text
from adapters.telegram.receiving import ParsedUpdate, UpdateReceiver
from adapters.telegram.validation import read_bounded_json
from bot import ConfigError, TemporaryError
from bot.platform import Backoff, ConnectionStatus, DisconnectCause, InboxClosed, TaskSet, TimeSource
from bot.text import shorten

SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"
MAX_BODY_BYTES = 1 << 20
HEADER_SECONDS = 30.0  # from the connection, or the last response, to the end of the next request's headers


class Webhook:
    """Receives the deliveries of one bot and keeps its webhook registered."""

    def __init__(
        self,
        client: BotClient,
        receiver: UpdateReceiver,
        settings: TelegramSettings,
        limits: Limits,
        time_source: TimeSource,
        status: ConnectionStatus,
    ) -> None:
        if settings.telegram_webhook_secret is None:
            raise ConfigError("TELEGRAM_WEBHOOK_SECRET is not set: without it anyone can deliver messages")
        self._client, self._receiver = client, receiver
        self._settings, self._limits, self._time = settings, limits, time_source
        self._status = status
        self._secret = settings.telegram_webhook_secret.get_secret_value()
        self._album_parts: dict[str, list[ParsedUpdate]] = {}
        self._album_tasks: dict[str, asyncio.Task[None]] = {}
        self._tasks = TaskSet("an album on Telegram", logs_failures=False)  # the deliveries await them

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
        failures, backoff, is_set = 0, Backoff(1.0, self._limits.max_retry_delay), False
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
        await self._client.set_webhook(self.url, allowed_updates=list(UPDATE_KINDS), drop_pending_updates=False)
        self._status.connected()

    def _check_registration(self, info: WebhookInfo) -> bool:
        """Update the status from the webhook info; return False if Telegram does not deliver here."""
        if info.url != self.url:
            self._status.failed(DisconnectCause.WEBHOOK, "another program has replaced the webhook; setting it again")
            return False
        failed_at, window = info.last_error_date, timedelta(seconds=self._limits.webhook_check_seconds)
        if info.pending_update_count and failed_at and failed_at > self._time.now() - window:
            reason = shorten(info.last_error_message or "no reason given", 200)
            self._status.failed(DisconnectCause.WEBHOOK, f"Telegram cannot deliver to {self.url}: {reason}")
        else:
            self._status.connected()
        return True

    async def handle(self, request: web.Request) -> web.Response:
        """Handle one delivery: 200 if it is stored, 503 if Telegram must repeat it."""
        secrets = request.headers.getall(SECRET_HEADER, [])
        if len(secrets) != 1:
            return web.Response(status=401)
        if not hmac.compare_digest(secrets[0].encode("utf-8", "replace"), self._secret.encode()):
            return web.Response(status=403)
        try:
            update = read_bounded_json(await request.read())
        except ValueError:
            return web.Response(status=400)
        try:
            for parsed_update in await self._receiver.parse([update], may_be_old=True):  # its age is unknown
                await self._submit(parsed_update)
        except (InboxClosed, TemporaryError):
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

    def __init__(self, find_webhook: Callable[[str], Webhook | None], settings: TelegramSettings, prefix: str) -> None:
        self._find_webhook, self._settings, self._prefix = find_webhook, settings, prefix
        self._runner: web.AppRunner | None = None
        self.port = settings.telegram_webhook_port

    async def start(self) -> None:
        """Start to listen. Raises ConfigError if the address is not available."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_post(f"{self._prefix}/{{number}}", self._dispatch)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, keepalive_timeout=HEADER_SECONDS)
        await self._runner.setup()
        host = self._settings.telegram_webhook_host
        try:
            site = web.TCPSite(self._runner, host, self._settings.telegram_webhook_port)
            await site.start()
        except OSError as error:
            await self.stop()
            raise ConfigError(
                f"cannot listen on {host}:{self._settings.telegram_webhook_port} "
                f"({error.strerror or error}): set TELEGRAM_WEBHOOK_PORT to a free port"
            ) from None
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _dispatch(self, request: web.Request) -> web.Response:
        webhook = self._find_webhook(request.match_info["number"])
        return web.Response(status=404) if webhook is None else await webhook.handle(request)
