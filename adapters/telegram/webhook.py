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
from bot.platform import (
    Backoff,
    ConnectionPool,
    ConnectionStatus,
    DisconnectCause,
    GuessLimiter,
    HttpProblem,
    HttpServer,
    InboxClosed,
    ServerLimits,
    TaskSet,
    TimeSource,
    TrustedProxies,
    body_timeout,
)
from bot.text import shorten

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

    def __init__(
        self,
        find_webhook: Callable[[str], Webhook | None],
        settings: TelegramSettings,
        prefix: str,
        limits: ServerLimits,
    ) -> None:
        self._find_webhook, self._limits = find_webhook, limits
        self._proxies = TrustedProxies()
        self._pool = ConnectionPool(limits, self._proxies)
        self._guess_limiter = GuessLimiter(limits.max_guesses, limits.max_total_guesses, label="webhook secrets")
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_post(f"{prefix}/{{number}}", self._dispatch)
        self.port = settings.telegram_webhook_port
        self._server = HttpServer(
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
            async with body_timeout(self._limits.body_seconds):
                body = await request.read()
        except HttpProblem as problem:
            return web.Response(status=problem.status, text=problem.message, headers=problem.headers)
        return await webhook.handle(body)

    def _authorize(self, request: web.Request) -> Webhook:
        """Return the webhook to which a request with the right secret is addressed. Raises HttpProblem."""
        webhook = self._find_webhook(request.match_info["number"])
        if webhook is None:
            raise HttpProblem(404, "not_found", "no bot has this address")
        secrets = request.headers.getall(SECRET_HEADER, [])
        if len(secrets) != 1:
            raise HttpProblem(401, "unauthorized", f"send {SECRET_HEADER} once")
        if not webhook.is_secret(secrets[0]):
            problem = HttpProblem(403, "forbidden", "this is not the secret")
            self._guess_limiter.refuse(self._proxies.find_client(request.remote, request.headers), problem)
        self._pool.authenticate(request)
        return webhook
