"""`BotClient` and its HTTP transport, which keep the token out of logs and errors."""

import asyncio
import json
import math
import os
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any
from urllib.parse import quote
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from telegram import (
    Bot,
    CallbackQuery,
    ChatMemberUpdated,
    InlineKeyboardMarkup,
    Message,
    MessageEntity,
    MessageReactionUpdated,
    TelegramObject,
)
from telegram.error import BadRequest, EndPointNotFound, NetworkError, TelegramError
from telegram.request import BaseRequest, RequestData
from yarl import URL

from adapters.telegram.config import Limits, TelegramSettings
from adapters.telegram.validation import read_bounded_json
from bot import SettingError, crash_point

METHODS_PREFIX, FILES_PREFIX = "methods", "files"  # stand for both base URLs towards the library
CONNECT_TIMEOUT = 10.0
NOT_SENT_ERRORS = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.ConnectionTimeoutError)
LIBRARY_STATUSES = frozenset(
    {400, 401, 403, 404, 408, 409}
)  # the library maps these to its own errors, or the outcome is unknown
PROXY_STATUSES = frozenset({401, 403, 404, 407, 409})  # with a page instead of JSON they say nothing about the bot
DEFAULT_RETRY_AFTER = 5.0  # if Telegram reports a limit without a number of seconds
LOCAL_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})
crash_point_label: ContextVar[str] = ContextVar("watched", default="")  # crash points of the running request
Connector = Callable[[], aiohttp.BaseConnector]
UPDATE_KINDS: Mapping[str, type[TelegramObject]] = {  # those that are requested: the library would look for 25
    "message": Message,
    "edited_message": Message,
    "channel_post": Message,
    "edited_channel_post": Message,
    "guest_message": Message,
    "callback_query": CallbackQuery,
    "message_reaction": MessageReactionUpdated,
    "my_chat_member": ChatMemberUpdated,
    "chat_member": ChatMemberUpdated,
}
MAX_UPDATES = 100  # per getUpdates call


class NotConnected(NetworkError):
    """No byte of the request was sent."""


class TooManyRequests(TelegramError):
    """Telegram asks to wait for `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Telegram asks to wait for {seconds:g} s")
        self.seconds = seconds


class ResponseTooLarge(NetworkError):
    """The response is larger than its limit; a request may have been executed."""


class TelegramRequest(BaseRequest):
    """HTTP transport of one bot.

    The library knows neither the token nor the base URL nor the parameters hidden by method, so its logs and
    errors contain none of them.
    """

    def __init__(
        self,
        base_url: str,
        token: str,
        limits: Limits,
        max_bytes: int,
        *,
        hidden_parameters: Mapping[str, Mapping[str, str]],
        connector: Connector | None = None,
    ) -> None:
        self._hidden_parameters = hidden_parameters
        self._base_url, self._token = base_url, token
        self._limits, self._max_bytes = limits, max_bytes
        self._connector = connector or (
            _create_tls_connector if base_url.startswith("https:") else aiohttp.TCPConnector
        )
        self._session: aiohttp.ClientSession | None = None

    @property
    def read_timeout(self) -> float | None:
        """The default timeout of a response in seconds."""
        return self._limits.response_timeout

    async def initialize(self) -> None:
        """Open the HTTP session."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._connector(),
                cookie_jar=aiohttp.DummyCookieJar(),
                proxy=_find_proxy(URL(self._base_url)),  # with trust_env, two threads would look for it at each request
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
            )

    async def shutdown(self) -> None:
        """Close the HTTP session."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def do_request(
        self, url: str, method: str, request_data: RequestData | None = None, *timeouts: Any, **keywords: Any
    ) -> tuple[int, bytes]:
        """Send one request. Raises NotConnected if nothing was sent, and TooManyRequests for status 429."""
        if self._session is None:
            raise NotConnected("the connection to Telegram is closed")
        seconds = keywords.get("read_timeout")
        timeout = float(seconds) if isinstance(seconds, int | float) else self._limits.response_timeout
        is_file = url.startswith(FILES_PREFIX)
        max_bytes = self._limits.max_file_bytes if is_file else self._max_bytes
        try:
            async with asyncio.timeout(timeout):
                status, body = await self._send(self._session, method, url, request_data, max_bytes)
        except NOT_SENT_ERRORS as error:
            cause = _connection_error_text(error)
            raise NotConnected(f"no connection to {URL(self._base_url).host}: {cause}") from None
        except TimeoutError:
            raise NetworkError(f"no response within {timeout:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise NetworkError(f"the connection broke ({type(error).__name__})") from None
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            raise TooManyRequests(_parse_retry_after(body))
        if status in PROXY_STATUSES and not is_file and not body.lstrip().startswith(b"{"):
            raise NotConnected(f"what answered with status {status} is not Telegram: a proxy, perhaps")
        label = "the file" if is_file else url.rpartition("/")[2]
        if status == HTTPStatus.NOT_FOUND and label != "getMe":
            raise EndPointNotFound(f"{label}: not found")
        if 400 <= status < 500 and status not in LIBRARY_STATUSES:  # such as 413: certainly not executed
            raise BadRequest(f"{label}: HTTP {status}")
        return status, body

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """Parse a response. Raises TelegramError, without its text, if it is not a JSON object."""
        try:
            answer = read_bounded_json(payload)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise TelegramError("the response is not one of Telegram")
        return answer

    async def _send(
        self, session: aiohttp.ClientSession, method: str, url: str, data: RequestData | None, max_bytes: int
    ) -> tuple[int, bytes]:
        body = _encode_body(data, self._hidden_parameters.get(url.rpartition("/")[2], {}))
        async with session.request(method, self._build_url(url), data=body, allow_redirects=False) as response:
            received = bytearray()
            async for chunk in response.content.iter_any():
                received += chunk
                if len(received) > max_bytes:
                    raise ResponseTooLarge(f"the response is larger than {max_bytes} bytes")
            return response.status, bytes(received)

    def _build_url(self, url: str) -> URL:
        prefix, _, path = url.partition("/")
        url_prefix = "file/bot" if prefix == FILES_PREFIX else "bot"
        return URL(f"{self._base_url}/{url_prefix}{self._token}/{quote(path)}", encoded=True)


@contextmanager
def label_crash_points(label: str) -> Iterator[None]:
    """Make the requests in the block pass the crash points of that name."""
    token = crash_point_label.set(label)
    try:
        yield
    finally:
        crash_point_label.reset(token)


def _find_proxy(url: URL) -> str | None:
    """Return the proxy that the environment names for a server, if any."""
    host = url.host or ""
    return None if host in LOCAL_HOSTS or proxy_bypass(host) else getproxies().get(url.scheme)


def _create_tls_connector() -> aiohttp.BaseConnector:
    """Return a connector that verifies with SSL_CERT_FILE, or with the certificates of the system."""
    ca_file = os.environ.get("SSL_CERT_FILE") or None
    try:
        return aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=ca_file))
    except OSError as error:
        raise SettingError(f"SSL_CERT_FILE: no certificates in {ca_file!r} ({error})") from error


class JsonBody(aiohttp.BytesPayload):
    """The parameters of a request as JSON; writing it passes the crash points of `label`, if there is one."""

    def __init__(self, parameters: Mapping[str, Any], label: str) -> None:
        encoded = json.dumps(parameters, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        super().__init__(encoded, content_type="application/json")
        self._label = label

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write the whole body, as aiohttp asks for it."""
        if self._label:
            crash_point(f"{self._label}.pre_write")
        await super().write_with_length(writer, content_length)
        if self._label:
            crash_point(f"{self._label}.post_write")


def _encode_body(data: RequestData | None, hidden_parameters: Mapping[str, str]) -> Any:
    """Encode parameters as JSON, with files as a form."""
    if data is None:
        return None
    if not data.contains_files:
        return JsonBody({**data.parameters, **hidden_parameters}, crash_point_label.get())
    form = aiohttp.FormData()
    for name, value in data.json_parameters.items():
        form.add_field(name, value)
    for name, (filename, content, content_type) in data.multipart_data.items():
        form.add_field(name, content, filename=filename, content_type=content_type)
    return form


def _parse_retry_after(body: bytes) -> float:
    """Return the seconds to wait, five if the response contains no valid number."""
    try:
        seconds = float(json.loads(body)["parameters"]["retry_after"])
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return DEFAULT_RETRY_AFTER
    return seconds if math.isfinite(seconds) and seconds > 0 else DEFAULT_RETRY_AFTER


def _connection_error_text(error: aiohttp.ClientError) -> str:
    match error:
        case aiohttp.ConnectionTimeoutError():
            return "timed out"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy returned status {error.status}"
        case aiohttp.ClientConnectorCertificateError():
            return "its certificate is not valid"
        case aiohttp.ClientConnectorDNSError():
            return "the host name cannot be resolved"
        case aiohttp.ClientConnectorSSLError():
            return "the TLS handshake failed"
        case aiohttp.ClientConnectorError() if error.errno:
            return os.strerror(error.errno) if error.errno > 0 else "the host name cannot be resolved"
    return "refused"


class BotClient(Bot):
    """API client of one bot. Only its transport knows the token."""

    def __init__(self, settings: TelegramSettings, limits: Limits, connector: Connector | None = None) -> None:
        assert settings.telegram_bot_token is not None, "a client needs a token"
        address, token = settings.telegram_api_base_url, settings.telegram_bot_token.get_secret_value()
        secret = settings.telegram_webhook_secret
        webhook_parameters = {"secret_token": secret.get_secret_value()} if secret is not None else {}
        transports = [
            TelegramRequest(
                address,
                token,
                limits,
                max_bytes,
                hidden_parameters={"setWebhook": webhook_parameters},
                connector=connector,
            )
            for max_bytes in (limits.max_response_bytes, limits.max_update_bytes)
        ]
        super().__init__(
            f"{settings.account}:hidden",
            base_url=lambda token: METHODS_PREFIX,
            base_file_url=lambda token: FILES_PREFIX,
            request=transports[0],
            get_updates_request=transports[1],
        )
        self._transports = transports
        self._account = settings.account

    @property
    def account(self) -> str:
        """The bot's id, which is not secret."""
        return self._account

    async def open(self) -> None:
        """Open the sessions; unlike the library's `initialize`, send no request."""
        for transport in self._transports:
            await transport.initialize()

    async def close_sessions(self) -> None:
        """Close the HTTP sessions."""
        for transport in self._transports:
            await transport.shutdown()

    async def fetch_updates(
        self, offset: int | None, poll_seconds: int, grace_seconds: float, limit: int = MAX_UPDATES
    ) -> list[Any]:
        """Return at most `limit` raw updates: the library would lose all of them if it could not parse one.

        Raises ResponseTooLarge if they do not fit into `max_update_bytes`.
        """
        data = {"offset": offset, "timeout": poll_seconds, "limit": limit, "allowed_updates": list(UPDATE_KINDS)}
        result = await self._post("getUpdates", data, read_timeout=poll_seconds + grace_seconds)
        return result if isinstance(result, list) else []

    async def send_text(
        self,
        chat_id: int,
        text: str,
        *,
        entities: Sequence[MessageEntity] = (),
        message_thread_id: int | None = None,
        direct_messages_topic_id: int | None = None,
        reply_to: int | None = None,
        reply_markup: InlineKeyboardMarkup | None = None,
    ) -> object:
        """Send a text without previews, and return the id of the message as Telegram names it.

        `send_message` of the library would build an object of a hundred attributes from the response, and another of
        the message that is replied to, which is sent even if that one was deleted.
        """
        reply = {"message_id": reply_to, "allow_sending_without_reply": True} if reply_to is not None else None
        data = {
            "chat_id": chat_id,
            "text": text,
            "entities": entities or None,
            "message_thread_id": message_thread_id,
            "direct_messages_topic_id": direct_messages_topic_id,
            "reply_parameters": reply,
            "reply_markup": reply_markup,
            "link_preview_options": {"is_disabled": True},  # a preview would open the link
        }
        result = await self._post("sendMessage", data)
        return result.get("message_id") if isinstance(result, dict) else None

    async def download(self, file_id: str) -> bytes:
        """Return a file that a user sent. Raises TelegramError if it is not available."""
        result = await self._post("getFile", {"file_id": file_id})
        path = result.get("file_path") if isinstance(result, dict) else None
        if not isinstance(path, str):
            raise TelegramError("Telegram did not return the path of the file")
        return await self.request.retrieve(f"{FILES_PREFIX}/{path}")
