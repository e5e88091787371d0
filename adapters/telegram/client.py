"""`BotClient` and its HTTP transport without the token in logs."""

import asyncio
import json
import math
import os
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
from telegram import Bot
from telegram.error import BadRequest, EndPointNotFound, NetworkError, TelegramError
from telegram.request import BaseRequest, RequestData
from yarl import URL

from adapters.telegram.config import Limits, TelegramSettings
from adapters.telegram.validation import read_json
from bot import SettingError, reached

METHODS, FILES = "methods", "files"  # what the library takes for the addresses of both
CONNECT_SECONDS = 10.0
UNSENT = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.ConnectionTimeoutError)
KNOWN = frozenset({400, 401, 403, 404, 408, 409})  # what the library has a word for, or nobody knows
DEFAULT_WAIT = 5.0  # where Telegram says "too many" and not for how long
LOCAL = frozenset({"127.0.0.1", "::1", "localhost"})
watched: ContextVar[str] = ContextVar("watched", default="")  # a request with kill-points of that name
Connector = Callable[[], aiohttp.BaseConnector]


class NotConnected(NetworkError):
    """Not a byte has left."""


class TooMany(TelegramError):
    """Telegram wants to be left alone for some seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Telegram asks to wait for {seconds:g} s")
        self.seconds = seconds


class TelegramRequest(BaseRequest):
    """The library's way out, for one bot.

    The library knows neither the token nor an address, nor the parameters that are `hidden` by method, so
    that none of them stands in its logs and errors.
    """

    def __init__(
        self,
        base_url: str,
        token: str,
        limits: Limits,
        most_bytes: int,
        *,
        hidden: Mapping[str, Mapping[str, str]],
        connector: Connector | None = None,
    ) -> None:
        self._hidden = hidden
        self._base, self._token = base_url, token
        self._limits, self._most_bytes = limits, most_bytes
        self._connector = connector or (_secure if base_url.startswith("https:") else aiohttp.TCPConnector)
        self._session: aiohttp.ClientSession | None = None

    @property
    def read_timeout(self) -> float | None:
        """How long the library may count on waiting for an answer."""
        return self._limits.answer_seconds

    async def initialize(self) -> None:
        """Open the session."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._connector(),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=URL(self._base).host not in LOCAL,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            )

    async def shutdown(self) -> None:
        """Close the session."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def do_request(
        self, url: str, method: str, request_data: RequestData | None = None, *timeouts: Any, **named: Any
    ) -> tuple[int, bytes]:
        """Ask once; what was surely not sent raises NotConnected, and a 429 TooMany."""
        if self._session is None:
            raise NotConnected("the connection to Telegram is closed")
        asked = named.get("read_timeout")
        deadline = float(asked) if isinstance(asked, int | float) else self._limits.answer_seconds
        is_file = url.startswith(FILES)
        most = self._limits.most_file_bytes if is_file else self._most_bytes
        try:
            async with asyncio.timeout(deadline):
                status, body = await self._ask(self._session, method, url, request_data, most)
        except UNSENT as error:
            raise NotConnected(f"no connection to {URL(self._base).host}: {_reason(error)}") from None
        except TimeoutError:
            raise NetworkError(f"no answer within {deadline:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise NetworkError(f"the connection broke ({type(error).__name__})") from None
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            raise TooMany(_asked_wait(body))
        what = "the file" if is_file else url.rpartition("/")[2]
        if status == HTTPStatus.NOT_FOUND and what != "getMe":
            raise EndPointNotFound(f"{what}: not found")
        if 400 <= status < 500 and status not in KNOWN:  # 413, say: surely not done, which the library doubts
            raise BadRequest(f"{what}: HTTP {status}")
        return status, body

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """Read an answer; what is none goes into no log."""
        try:
            answer = read_json(payload)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise TelegramError("the answer is not what Telegram answers")
        return answer

    async def _ask(
        self, session: aiohttp.ClientSession, method: str, url: str, data: RequestData | None, most: int
    ) -> tuple[int, bytes]:
        body, headers = _body(data, self._hidden.get(url.rpartition("/")[2], {}))
        async with session.request(
            method, self._address(url), data=body, headers=headers, allow_redirects=False
        ) as answer:
            received = bytearray()
            async for piece in answer.content.iter_any():
                received += piece
                if len(received) > most:
                    raise NetworkError(f"the answer is larger than {most} bytes")
            return answer.status, bytes(received)

    def _address(self, url: str) -> URL:
        kind, _, rest = url.partition("/")
        folder = "file/bot" if kind == FILES else "bot"
        return URL(f"{self._base}/{folder}{self._token}/{quote(rest)}", encoded=True)


@contextmanager
def watched_as(what: str) -> Iterator[None]:
    """Have what is asked in the block pass the kill-points of that name."""
    token = watched.set(what)
    try:
        yield
    finally:
        watched.reset(token)


def _secure() -> aiohttp.BaseConnector:
    """Verify certificates by SSL_CERT_FILE where it is set, by the system's where not."""
    file = os.environ.get("SSL_CERT_FILE") or None
    try:
        return aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=file))
    except OSError as error:
        raise SettingError(f"SSL_CERT_FILE: no certificates in {file!r} ({error})") from error


def _body(data: RequestData | None, hidden: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    """Encode parameters as forms are; where the kill-points count, one is passed with the last byte."""
    if data is None:
        return None, {}
    if data.contains_files:
        form = aiohttp.FormData()
        for name, value in data.json_parameters.items():
            form.add_field(name, value)
        for name, (filename, content, kind) in data.multipart_data.items():
            form.add_field(name, content, filename=filename, content_type=kind)
        return form, {}
    encoded = urlencode({**data.json_parameters, **hidden}).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Content-Length": str(len(encoded))}
    return (_written(encoded, what) if (what := watched.get()) else encoded), headers


async def _written(body: bytes, what: str) -> AsyncIterator[bytes]:
    """Give the body; whoever asks for more has written it."""
    reached(f"{what}.pre_write")
    yield body
    reached(f"{what}.post_write")


def _asked_wait(body: bytes) -> float:
    """Read how long to wait; five seconds where no proper number is given."""
    try:
        seconds = float(json.loads(body)["parameters"]["retry_after"])
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return DEFAULT_WAIT
    return seconds if math.isfinite(seconds) and seconds > 0 else DEFAULT_WAIT


def _reason(error: aiohttp.ClientError) -> str:
    match error:
        case aiohttp.ConnectionTimeoutError():
            return "it takes too long"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy answers {error.status}"
        case aiohttp.ClientConnectorCertificateError():
            return "its certificate is not valid"
        case aiohttp.ClientConnectorDNSError():
            return "the name cannot be found"
        case aiohttp.ClientConnectorSSLError():
            return "TLS could not be agreed on"
        case aiohttp.ClientConnectorError() if error.errno:
            return os.strerror(error.errno) if error.errno > 0 else "the name cannot be found"
    return "refused"


UPDATES = (
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "callback_query",
    "message_reaction",
    "my_chat_member",
    "chat_member",
)
MOST_UPDATES = 100  # that Telegram gives at once


class Account(Bot):
    """The library's Bot, without the token: only what carries its requests knows that."""

    def __init__(
        self, settings: TelegramSettings, limits: Limits, connector: Connector | None = None
    ) -> None:
        assert settings.telegram_bot_token is not None, "a bot without a token is not opened"
        address, token = settings.telegram_api_base_url, settings.telegram_bot_token.get_secret_value()
        secret = settings.telegram_webhook_secret
        words = {"secret_token": secret.get_secret_value()} if secret is not None else {}
        request, updates = (
            TelegramRequest(address, token, limits, most, hidden={"setWebhook": words}, connector=connector)
            for most in (limits.most_bytes, limits.most_update_bytes)
        )
        super().__init__(
            f"{settings.account}:hidden",
            base_url=lambda token: METHODS,
            base_file_url=lambda token: FILES,
            request=request,
            get_updates_request=updates,
        )

        self._number = settings.account

    @property
    def number(self) -> str:
        """The bot's own id, which is no secret."""
        return self._number

    async def open(self) -> None:
        """Open the sessions; unlike the library's `initialize`, ask nothing."""
        for request in self._request:
            await request.initialize()

    async def close_sessions(self) -> None:
        """Close the sessions."""
        for request in self._request:
            await request.shutdown()

    async def updates(self, offset: int | None, wait: int, grace: float) -> list[Any]:
        """Ask for updates and give them as they came: one that cannot be read must not cost the others."""
        data = {"offset": offset, "timeout": wait, "limit": MOST_UPDATES, "allowed_updates": list(UPDATES)}
        found = await self._post("getUpdates", data, read_timeout=wait + grace)
        return found if isinstance(found, list) else []

    async def download(self, file_id: str) -> bytes:
        """Read a file that somebody has sent; raises TelegramError where it cannot be had."""
        found = await self._post("getFile", {"file_id": file_id})
        path = found.get("file_path") if isinstance(found, dict) else None
        if not isinstance(path, str):
            raise TelegramError("Telegram does not say where the file is")
        return await self._request[1].retrieve(f"{FILES}/{path}")
