"""Deliveries by webhook: each is kept before Telegram is told that it arrived."""

import asyncio
import hmac
from collections.abc import Callable
from datetime import timedelta

from aiohttp import web
from telegram import WebhookInfo
from telegram.error import InvalidToken, TelegramError

from adapters.telegram.client import UPDATES, Account
from adapters.telegram.config import Limits, Moments, TelegramSettings
from adapters.telegram.errors import UNREADABLE, cause_of_gap, said
from adapters.telegram.receiving import Intake, Known
from adapters.telegram.validation import read_json
from bot import ConfigError, TryAgain
from bot.platform import Cause, IntakeClosed, Link
from bot.text import shorten

SECRET = "X-Telegram-Bot-Api-Secret-Token"
LONGEST_BODY = 1 << 20


class Webhook:
    """Takes deliveries for one bot, and sees to it that Telegram makes them."""

    def __init__(
        self,
        account: Account,
        intake: Intake,
        settings: TelegramSettings,
        limits: Limits,
        moments: Moments,
        link: Link,
    ) -> None:
        if settings.telegram_webhook_secret is None:
            raise ConfigError("TELEGRAM_WEBHOOK_SECRET is not set: without it anybody can deliver messages")
        self._account, self._intake = account, intake
        self._settings, self._limits, self._moments = settings, limits, moments
        self._link = link
        self._secret = settings.telegram_webhook_secret.get_secret_value()
        self._albums: dict[str, list[Known]] = {}
        self._done: dict[str, asyncio.Future[None]] = {}

    @property
    def number(self) -> str:
        """The bot whose deliveries these are; the last part of the address."""
        return self._account.number

    @property
    def address(self) -> str:
        """Where Telegram is to deliver."""
        return f"{self._settings.telegram_webhook_url}/{self.number}"

    async def keep(self) -> None:
        """Have Telegram deliver here, and look now and then whether it still does.

        Raises InvalidToken where it refuses the token.
        """
        failures, is_set = 0, False
        while True:
            try:
                if is_set and not self._judged(await self._account.get_webhook_info()):
                    is_set = False
                if not is_set:
                    await self._announce()
                    is_set = True
            except InvalidToken:
                raise
            except (TelegramError, *UNREADABLE) as error:
                self._link.fails(cause_of_gap(error), said(error))
                failures += 1
                await self._moments.pause(min(2.0 ** min(failures, 10), self._limits.longest_pause))
            else:
                failures = 0
                await self._moments.pause(self._limits.webhook_seconds)

    async def _announce(self) -> None:
        await self._account.set_webhook(self.address, allowed_updates=UPDATES, drop_pending_updates=False)
        self._link.stands()

    def _judged(self, told: WebhookInfo) -> bool:
        """Tell of what Telegram says of its deliveries; False where it makes them elsewhere, or nowhere."""
        if told.url != self.address:
            self._link.fails(Cause.WEBHOOK, "another program has taken the webhook away; it is set anew")
            return False
        failed_at, recently = told.last_error_date, timedelta(seconds=self._limits.webhook_seconds)
        if told.pending_update_count and failed_at and failed_at > self._moments.wall() - recently:
            said_of_it = shorten(told.last_error_message or "it does not say why", 200)
            self._link.fails(Cause.WEBHOOK, f"Telegram cannot deliver to {self.address}: {said_of_it}")
        else:
            self._link.stands()
        return True

    async def handle(self, request: web.Request) -> web.Response:
        """Take one delivery: 200 when it is kept, 503 where it must come again."""
        told = request.headers.getall(SECRET, [])
        if len(told) != 1:
            return web.Response(status=401)
        if not hmac.compare_digest(told[0].encode("utf-8", "replace"), self._secret.encode()):
            return web.Response(status=403)
        try:
            update = read_json(await request.read())
        except ValueError:
            return web.Response(status=400)
        try:
            for one in await self._intake.read([update], may_be_old=True):  # Telegram does not tell
                await self._take(one)
        except (IntakeClosed, TryAgain):
            return web.Response(status=503, headers={"Retry-After": "5"})
        return web.Response()

    async def _take(self, one: Known) -> None:
        if not one.albums:
            await self._intake.take([one])
            return
        album = one.albums[0]
        self._albums.setdefault(album, []).append(one)
        done = self._done.get(album)
        if done is not None:
            await asyncio.shield(done)
            return
        self._done[album] = done = asyncio.get_running_loop().create_future()
        await self._take_album(album, done)

    async def _take_album(self, album: str, done: asyncio.Future[None]) -> None:
        """Wait for the other parts, which Telegram delivers side by side, and keep them as one message."""
        try:
            await self._moments.pause(self._limits.album_seconds)
            parts = sorted(self._albums[album], key=lambda part: part.number)
            del self._done[album], self._albums[album]
            await self._intake.take(parts)
        except BaseException as error:
            self._done.pop(album, None)
            self._albums.pop(album, None)
            done.set_exception(error if isinstance(error, Exception) else IntakeClosed("stopped"))
            done.exception()  # perhaps nobody else waits for it
            raise
        done.set_result(None)


class WebhookServer:
    """Listens for the deliveries of all bots of the process."""

    def __init__(
        self, hook_of: Callable[[str], Webhook | None], settings: TelegramSettings, prefix: str
    ) -> None:
        self._hook_of, self._settings, self._prefix = hook_of, settings, prefix
        self._runner: web.AppRunner | None = None
        self.port = settings.telegram_webhook_port

    async def start(self) -> None:
        """Listen; raises ConfigError where the address cannot be had."""
        app = web.Application(client_max_size=LONGEST_BODY)
        app.router.add_post(f"{self._prefix}/{{number}}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        host = self._settings.telegram_webhook_host
        try:
            site = web.TCPSite(self._runner, host, self._settings.telegram_webhook_port)
            await site.start()
        except OSError as error:
            await self.stop()
            raise ConfigError(
                f"no webhook at {host}:{self._settings.telegram_webhook_port} ({error.strerror or error}): "
                "set TELEGRAM_WEBHOOK_PORT to a free port"
            ) from None
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.Response:
        hook = self._hook_of(request.match_info["number"])
        return web.Response(status=404) if hook is None else await hook.handle(request)
