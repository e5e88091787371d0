"""`BotClient` and its HTTP transport, which keep the token out of logs and errors.

Telegram's limits per chat and per bot; the typing indicator uses spare capacity only.

Mapping of Telegram's errors to delivery errors.

What is left out of a raw update, by types and depth, to read the rest; pure.
"""

import asyncio
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
import telegram
from telegram.request import BaseRequest, RequestData
from yarl import URL

import bot.platform as bp
from adapters.telegram.config import Limits, TelegramSettings
from bot.text import shorten

T = TypeVar("T")
MAX_CHATS = 10_000
# Messages, and the seconds of any period in which there are at most so many; a little longer than Telegram's, because
# requests take unequally long.
BOT_LIMIT, GROUP_LIMIT = (30, 1.05), (20, 60.5)
PRIVATE_BURST, PRIVATE_INTERVAL = 5, 1.0  # in a private chat Telegram allows short bursts above one message a second


@dataclass(slots=True)
class BurstLimit:
    """Allows one message per `interval` seconds, and `burst` at once after a pause, which ends at `next_at`."""

    burst: int
    interval: float
    next_at: float = 0.0
    blocked_until: float = 0.0

    def find_time(self, earliest: float) -> float:
        """Return the first time from `earliest` on at which one more message may be sent."""
        return max(earliest, self.blocked_until, self.next_at - (self.burst - 1) * self.interval)

    def count_spare(self, now: float) -> int:
        """Return how many messages could be sent at once."""
        return self.burst - math.ceil(max(0.0, self.next_at - now) / self.interval)

    def reserve(self, time: float, now: float) -> None:
        """Count a message that is sent at a time."""
        self.next_at = max(self.next_at, time) + self.interval

    def block(self, until: float) -> None:
        """Allow nothing before a time; an earlier block that ends later stays."""
        self.blocked_until = max(self.blocked_until, until)


class RateLimiter:
    """Telegram's limits of one bot: 30 messages a second in all, 1 in a private chat, 20 a minute in a group."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._bot_window = bp.SlidingWindow(*BOT_LIMIT)
        self._chats: bp.BoundedDict[int, bp.SlidingWindow | BurstLimit] = bp.BoundedDict(MAX_CHATS)

    def acquire(self, chat_id: int, max_wait: float) -> float:
        """Reserve a message and return the seconds to wait; nothing is reserved beyond `max_wait`."""
        wait, now = self.wait_seconds(chat_id), self._monotonic()
        if wait <= max_wait:
            self._bot_window.reserve(now + wait, now)
            self._limit_of(chat_id).reserve(now + wait, now)
        return wait

    def try_acquire(self, chat_id: int) -> bool:
        """Return whether an optional request may be sent, and count it; leaves room for messages."""
        now, bot_window = self._monotonic(), self._bot_window
        is_available = (
            not self.wait_seconds(chat_id)
            and bot_window.count_spare(now) >= bot_window.limit / 3
            and self._limit_of(chat_id).count_spare(now) >= 2
        )
        if is_available:
            bot_window.reserve(now, now)
        return is_available

    def wait_seconds(self, chat_id: int) -> float:
        """Return the seconds that a message to a chat has to wait."""
        now = time = self._monotonic()
        limits = (self._bot_window, self._limit_of(chat_id))
        while (later := max(limit.find_time(time) for limit in limits)) > time:
            time = later
        return time - now

    def block(self, chat_id: int, seconds: float) -> None:
        """Block a chat for `seconds`, as requested by Telegram."""
        self._limit_of(chat_id).block(self._monotonic() + seconds)

    def _limit_of(self, chat_id: int) -> bp.SlidingWindow | BurstLimit:
        if chat_id not in self._chats:
            is_group = chat_id < 0
            self._chats[chat_id] = (
                bp.SlidingWindow(*GROUP_LIMIT) if is_group else BurstLimit(PRIVATE_BURST, PRIVATE_INTERVAL)
            )
        return self._chats[chat_id]


MAX_INTEGER = 1 << 53  # Telegram guarantees 52 significant bits
MAX_UPDATE_DEPTH = 24
MAX_JSON_DEPTH = 100
_BRACKET_PATTERN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')

_MENTION_PATTERN = re.compile(r"(?<![\w@./])@[A-Za-z0-9_]{4,32}(?!\w)")
_NUMBER_PATTERN = re.compile(r"-?\d{1,16}", re.ASCII)


def field_names(text: str) -> frozenset[str]:
    """Return the names in a text separated by spaces."""
    return frozenset(text.split())


STRING_FIELDS = field_names(
    "text caption title first_name last_name username language_code type status data media_group_id name "
    "file_id file_unique_id file_name mime_type emoji question address phone_number custom_emoji_id url "
    "sender_user_name author_signature chat_instance"
)
INTEGER_FIELDS = field_names(
    "update_id message_id message_thread_id date edit_date migrate_to_chat_id migrate_from_chat_id offset "
    "length width height duration value until_date"
)
BOOLEAN_FIELDS = field_names("is_bot is_topic_message is_automatic_forward")
LIST_FIELDS = field_names(
    "entities caption_entities photo new_chat_members options old_reaction new_reaction new_chat_photo"
)
OBJECT_FIELDS = field_names(
    "message edited_message channel_post edited_channel_post callback_query message_reaction my_chat_member "
    "chat_member chat from user sender_chat actor_chat reply_to_message forward_origin via_bot sender_user "
    "old_chat_member new_chat_member left_chat_member animation audio document sticker video video_note "
    "voice contact dice location poll venue forum_topic_created forum_topic_edited quote"
)
FIELDS_WITH_ID = field_names(
    "chat from user sender_chat actor_chat via_bot sender_user left_chat_member new_chat_members"
)
# These are not repaired: fields in them are named like others and have other types.
UNREAD_FIELDS = field_names("rich_message passport_data chat_background_set inline_query chosen_inline_result")
# Without these the library reads no message, button, reaction or change of a member.
REQUIRED_FIELDS = field_names(
    "message_id date chat from text caption id chat_instance old_reaction new_reaction old_chat_member new_chat_member"
)
WORDS = field_names("text caption")  # what a person said is never left out
UPDATES = field_names("message edited_message channel_post edited_channel_post guest_message")
EVENTS = field_names("callback_query message_reaction my_chat_member chat_member inline_query chosen_inline_result")
MESSAGES = UPDATES | field_names("reply_to_message pinned_message")
USERS = field_names(
    "from user via_bot sender_user left_chat_member new_chat_members sender_business_bot guest_bot_caller_user"
)
CHATS = field_names("chat sender_chat actor_chat guest_bot_caller_chat")
ENTITIES = field_names("entities caption_entities")
IDENTITY = field_names("id type title username first_name last_name is_bot is_forum language_code")
# Whose words they are is never left out either: these stand for an author who cannot be read.
UNKNOWN_AUTHORS: Mapping[str, Any] = {
    "forward_origin": {"type": "hidden_user", "date": 0, "sender_user_name": ""},
    "via_bot": {"id": 0, "is_bot": True, "first_name": ""},
}
MAX_VERSIONS = 50  # of one field, in which another part of it is left out


def read_partly(raw: Any, read: Callable[[Any], T], now: datetime) -> tuple[T, list[str]]:
    """Return what `read` makes of an update without what cannot be read of it, and the names of what was left out.

    A required field without which nothing could be read, such as the date, gets a value that stands for it: the time
    `now`, a blank name (which deleted accounts have too), the type of chat that the chat's id tells. Raises the error
    of `read`, or ValueError, where words would be lost.
    """
    if (update_id := update_id_of(raw)) is None:
        raise ValueError("the update has no id")
    left_out = list[str]()
    known = {name: value for name, value in raw.items() if name in UPDATES | EVENTS | {"update_id"}}
    update = _Repair(-update_id, int(now.timestamp()), left_out).repair(known)
    try:
        return read(update), left_out
    except Exception:  # the library does not check types, so it may raise anything
        version = _find_readable(update, read, left_out)
        if version is None:
            raise
    return read(version), left_out


def _find_readable(update: Mapping[str, Any], read: Callable[[Any], object], left_out: list[str]) -> Any:
    """Return the largest version of an update that can be read, and add to `left_out`; None if words would be lost."""

    def is_readable(version: Any) -> bool:
        try:
            read(version)
        except Exception:  # as above
            return False
        return True

    kind = next((name for name, value in update.items() if isinstance(value, Mapping)), "")
    content, kept = update.get(kind, {}), dict[str, Any]()
    required = {name: value for name, value in content.items() if name in REQUIRED_FIELDS}
    for part in (required, *({name: value} for name, value in content.items() if name not in REQUIRED_FIELDS)):
        name = "" if part is required else next(iter(part))
        versions = [("", part)]
        if name in UNKNOWN_AUTHORS:
            versions.append((name, {name: UNKNOWN_AUTHORS[name]}))
        else:
            versions += [*islice(_versions_without_part(part), MAX_VERSIONS), *([(name, {})] if name else [])]
        if part is required:
            versions.append(("details of chat and author", {key: _identity_of(item) for key, item in part.items()}))
        for missing, version in versions:
            if missing not in WORDS and is_readable({**update, kind: {**kept, **version}}):
                kept |= version
                left_out += [missing] if missing else []
                break
        else:
            return None
    return {**update, kind: kept}


def update_id_of(raw: Any) -> int | None:
    """Return the id of an update; None if it is missing or invalid."""
    update_id = raw.get("update_id") if isinstance(raw, dict) else None
    return update_id if isinstance(update_id, int) and not isinstance(update_id, bool) else None


def _identity_of(value: Any) -> Any:
    """Return a chat or a user without all that does not identify them."""
    if not isinstance(value, Mapping) or "id" not in value:
        return value
    return {name: item for name, item in value.items() if name in IDENTITY}


@dataclass(frozen=True, slots=True)
class _Repair:
    """Removes what is of another type than the library expects, and adds required fields; `left_out` names both."""

    message_id: int
    date: int
    left_out: list[str]

    def repair(self, value: Any, name: str = "", depth: int = 0) -> Any:
        """Return a value with all required fields, each of its type; what is nested too deeply becomes None."""
        if depth > MAX_UPDATE_DEPTH:
            return None
        if isinstance(value, list):
            items = [self.repair(item, name, depth + 1) for item in value]
            kept = [item for item in items if name not in LIST_FIELDS or _is_item(name, item)]
            self.left_out.extend([f"an item of {name}"] if len(kept) < len(items) else [])
            return kept
        if not isinstance(value, Mapping) or name in UNREAD_FIELDS:
            return value
        repaired = {
            key: self.repair(_as_integer(name, key, item), key, depth + 1)
            for key, item in value.items()
            if item is not None
        }
        has_words = any(isinstance(repaired.get(key), str) for key in WORDS)
        for key in [key for key, item in repaired.items() if not _is_usable(key, item)]:
            if key in WORDS and not has_words and name in UPDATES:
                raise ValueError(f"{key} is {type(repaired[key]).__name__}")
            self.left_out.append(f"{name}.{key}" if depth > 1 else key)
            del repaired[key]
            if key in UNKNOWN_AUTHORS:
                repaired[key] = UNKNOWN_AUTHORS[key]
        for key, words in (("entities", "text"), ("caption_entities", "caption")):
            if key in value and repaired.get(key) != value[key] and isinstance(value.get(words), str):
                repaired[key] = [item for item in repaired.get(key, ()) if item.get("type") != "mention"]
                repaired[key] += find_mentions(value[words])
        chat = value.get("chat")
        if (
            "chat" not in repaired
            and "from" in repaired
            and isinstance(chat, Mapping)
            and chat.get("type") == "private"
        ):
            repaired["chat"] = {"id": repaired["from"]["id"], "type": "private"}  # which have the same id
        return {**self._stand_ins(name, repaired), **repaired}

    def _stand_ins(self, name: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return values for the required fields of an object."""
        if name in USERS:
            return {"is_bot": False, "first_name": ""}
        if name in CHATS:
            number = value.get("id")
            return {"type": "private" if isinstance(number, int) and number > 0 else "supergroup"}
        if name in MESSAGES:
            return {"message_id": self.message_id, "date": self.date}
        return {"date": self.date} if name in EVENTS else {}


def _as_integer(parent: str, name: str, value: Any) -> Any:
    """Return the number that a text or a fraction stands for, where a number is expected."""
    if name in INTEGER_FIELDS or (name == "id" and parent in FIELDS_WITH_ID):
        if isinstance(value, str) and _NUMBER_PATTERN.fullmatch(value):
            return int(value)
        if isinstance(value, float) and value.is_integer():
            return int(value)
    return value


def _is_usable(name: str, value: Any) -> bool:
    if name in FIELDS_WITH_ID and isinstance(value, Mapping) and not _is_integer(value.get("id")):
        return False
    return _has_right_type(name, value)


def _is_item(name: str, value: Any) -> bool:
    if name in ENTITIES:
        return isinstance(value, Mapping) and {"type", "offset", "length"} <= value.keys()
    has_id = name not in FIELDS_WITH_ID or (isinstance(value, Mapping) and _is_integer(value.get("id")))
    return isinstance(value, Mapping | list) and has_id


def find_mentions(text: str) -> list[dict[str, Any]]:
    """Return an entity for each @name in a text, as Telegram does."""
    return [
        {
            "type": "mention",
            "offset": len(text[: match.start()].encode("utf-16-le", "replace")) // 2,
            "length": len(match[0]),
        }
        for match in _MENTION_PATTERN.finditer(text)
    ]


def _versions_without_part(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name of each part of a value and the value without it, parts of a part first."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            for inner, version in _versions_without_part(item, f"{path}{name}."):
                yield inner, {**value, name: version}
            yield f"{path}{name}", {other: value[other] for other in value if other != name}
    elif isinstance(value, list):
        for index, item in enumerate(value):
            for inner, version in _versions_without_part(item, f"{path}{index}."):
                yield inner, [*value[:index], version, *value[index + 1 :]]
            yield f"{path}{index}", [*value[:index], *value[index + 1 :]]


def _has_right_type(name: str, value: Any) -> bool:
    if name in STRING_FIELDS:
        return isinstance(value, str)
    if name in INTEGER_FIELDS:
        return _is_integer(value)
    if name in BOOLEAN_FIELDS:
        return isinstance(value, bool)
    if name in LIST_FIELDS:
        return isinstance(value, list)
    return name not in OBJECT_FIELDS or isinstance(value, Mapping)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -MAX_INTEGER < value < MAX_INTEGER


def read_bounded_json(payload: bytes) -> Any:
    """Parse JSON; values nested too deeply become null. Raises ValueError for invalid JSON."""
    try:
        return json.loads(payload.decode("utf-8", "replace"))
    except RecursionError:
        return json.loads(_drop_deep_values(payload).decode("utf-8", "replace"))


def _drop_deep_values(payload: bytes) -> bytes:
    parts, depth, start = [], 0, 0
    for match in _BRACKET_PATTERN.finditer(payload):
        if match[0] in (b"[", b"{"):
            depth += 1
            if depth == MAX_JSON_DEPTH + 1:
                parts += [payload[start : match.start()], b"null"]
                start = len(payload)
        elif match[0] in (b"]", b"}"):
            if depth == MAX_JSON_DEPTH + 1:
                start = match.end()
            depth -= 1
    return b"".join([*parts, payload[start:]])


METHODS_PREFIX, FILES_PREFIX = "methods", "files"  # stand for both base URLs towards the library
CONNECT_TIMEOUT = 10.0
LIBRARY_STATUSES = frozenset(
    {400, 401, 403, 404, 408, 409}
)  # the library maps these to its own errors, or the outcome is unknown
PROXY_STATUSES = frozenset({401, 403, 404, 407, 409})  # with a page instead of JSON they say nothing about the bot
DEFAULT_RETRY_AFTER = 5.0  # if Telegram reports a limit without a number of seconds
crash_point_label: ContextVar[str] = ContextVar("watched", default="")  # crash points of the running request
INLINE_KINDS = ("inline_query", "chosen_inline_result")
UPDATE_KINDS: Mapping[
    str, type[telegram.TelegramObject]
] = {  # those that may be requested: the library would look for 25
    "message": telegram.Message,
    "edited_message": telegram.Message,
    "channel_post": telegram.Message,
    "edited_channel_post": telegram.Message,
    "guest_message": telegram.Message,
    "callback_query": telegram.CallbackQuery,
    "message_reaction": telegram.MessageReactionUpdated,
    "my_chat_member": telegram.ChatMemberUpdated,
    "chat_member": telegram.ChatMemberUpdated,
    "inline_query": telegram.InlineQuery,
    "chosen_inline_result": telegram.ChosenInlineResult,
}
MAX_UPDATES = 100  # per getUpdates call


class NotConnected(telegram.error.NetworkError):
    """No byte of the request was sent."""


class TooManyRequests(telegram.error.TelegramError):
    """Telegram asks to wait for `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Telegram asks to wait for {seconds:g} s")
        self.seconds = seconds


class ResponseTooLarge(telegram.error.NetworkError):
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
        network: bp.PlatformNetwork,
    ) -> None:
        self._hidden_parameters = hidden_parameters
        self._base_url, self._token = base_url, token
        self._limits, self._max_bytes = limits, max_bytes
        self._network = network
        self._session: aiohttp.ClientSession | None = None

    @property
    def read_timeout(self) -> float | None:
        """The default timeout of a response in seconds."""
        return self._limits.response_timeout

    async def initialize(self) -> None:
        """Open the HTTP session."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT)
            self._session = self._network.open_session(cookie_jar=aiohttp.DummyCookieJar(), timeout=timeout)

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
        except bp.NOT_SENT_ERRORS as error:
            cause = bp.describe_client_error(error)
            raise NotConnected(f"{URL(self._base_url).host} cannot be reached: {cause}") from None
        except TimeoutError:
            raise telegram.error.NetworkError(f"no response within {timeout:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise telegram.error.NetworkError(f"the connection broke ({type(error).__name__})") from None
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            raise TooManyRequests(_parse_retry_after(body))
        if status in PROXY_STATUSES and not is_file and not body.lstrip().startswith(b"{"):
            raise NotConnected(f"what answered with status {status} is not Telegram: a proxy, perhaps")
        label = "the file" if is_file else url.rpartition("/")[2]
        if status == HTTPStatus.NOT_FOUND and label != "getMe":
            raise telegram.error.EndPointNotFound(f"{label}: not found")
        if 400 <= status < 500 and status not in LIBRARY_STATUSES:  # such as 413: certainly not executed
            raise telegram.error.BadRequest(f"{label}: HTTP {status}")
        return status, body

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """Parse a response. Raises TelegramError, without its text, if it is not a JSON object."""
        try:
            answer = read_bounded_json(payload)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise telegram.error.TelegramError("the response is not one of Telegram")
        return answer

    async def _send(
        self, session: aiohttp.ClientSession, method: str, url: str, data: RequestData | None, max_bytes: int
    ) -> tuple[int, bytes]:
        body, headers = _encode_body(data, self._hidden_parameters.get(url.rpartition("/")[2], {}))
        async with session.request(
            method, self._build_url(url), data=body, headers=headers, allow_redirects=False
        ) as response:
            if (received := await bp.read_bounded(response, max_bytes)) is None:
                raise ResponseTooLarge(f"the response is larger than {max_bytes} bytes")
            return response.status, received

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


def _encode_body(data: RequestData | None, hidden_parameters: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    """Return parameters as JSON, with files as a form, and the headers of the request."""
    if data is None:
        return None, {}
    if not data.contains_files:
        parameters = {**data.parameters, **hidden_parameters}
        body = json.dumps(parameters, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        label = crash_point_label.get()
        return bp.write_body(body, label) if label else body, headers
    form = aiohttp.FormData()
    for name, value in data.json_parameters.items():
        form.add_field(name, value)
    for name, (filename, content, content_type) in data.multipart_data.items():
        form.add_field(name, content, filename=filename, content_type=content_type)
    return form, {}


def _parse_retry_after(body: bytes) -> float:
    """Return the seconds to wait, five if the response contains no valid number."""
    try:
        seconds = float(json.loads(body)["parameters"]["retry_after"])
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return DEFAULT_RETRY_AFTER
    return seconds if math.isfinite(seconds) and seconds > 0 else DEFAULT_RETRY_AFTER


class BotClient(telegram.Bot):
    """API client of one bot. Only its transport knows the token."""

    def __init__(
        self, settings: TelegramSettings, limits: Limits, environment: Mapping[str, str] | None = None
    ) -> None:
        assert settings.telegram_bot_token is not None, "a client needs a token"
        address, token = settings.telegram_api_base_url, settings.telegram_bot_token.get_secret_value()
        secret = settings.telegram_webhook_secret
        webhook_parameters = {"secret_token": secret.get_secret_value()} if secret is not None else {}
        network = bp.find_network(address, environment)
        transports = [
            TelegramRequest(
                address, token, limits, max_bytes, hidden_parameters={"setWebhook": webhook_parameters}, network=network
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
        switches = {"guest_message": settings.telegram_guest, **dict.fromkeys(INLINE_KINDS, settings.telegram_inline)}
        self._update_kinds = {name: kind for name, kind in UPDATE_KINDS.items() if switches.get(name, True)}

    @property
    def update_kinds(self) -> Mapping[str, type[telegram.TelegramObject]]:
        """The kinds of updates that are requested and read."""
        return self._update_kinds

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
        data = {"offset": offset, "timeout": poll_seconds, "limit": limit, "allowed_updates": list(self.update_kinds)}
        result = await self._post("getUpdates", data, read_timeout=poll_seconds + grace_seconds)
        return result if isinstance(result, list) else []

    async def download(self, file_id: str) -> bytes:
        """Return a file that a user sent. Raises TelegramError if it is not available."""
        result = await self._post("getFile", {"file_id": file_id})
        path = result.get("file_path") if isinstance(result, dict) else None
        if not isinstance(path, str):
            raise telegram.error.TelegramError("Telegram did not return the path of the file")
        return await self.request.retrieve(f"{FILES_PREFIX}/{path}")


TOKEN_REFUSED = "Telegram rejects the bot's token: set TELEGRAM_BOT_TOKEN to the one from BotFather"
PARSE_ERRORS = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


class ChatUnavailable(bp.Undeliverable):
    """The bot was blocked or removed: nothing can be sent to the chat until a user writes there."""


class TokenRefused(bp.NotSent):
    """Telegram refused a call for its token, or nothing is sent because it refuses the token."""

    def __init__(self, retry_after: float | None = None) -> None:
        super().__init__(TOKEN_REFUSED, retry_after=retry_after)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise delivery errors for the errors of a request; ChatMigrated is passed on."""
    try:
        yield
    except telegram.error.ChatMigrated:
        raise
    except TooManyRequests as error:
        raise bp.NotSent(str(error), retry_after=error.seconds) from None
    except telegram.error.RetryAfter as error:  # reported without status 429
        raise bp.NotSent(error_text(error), retry_after=DEFAULT_RETRY_AFTER) from None
    except NotConnected as error:
        raise bp.NotSent(error.message) from None
    except telegram.error.InvalidToken:
        raise TokenRefused from None
    except telegram.error.Forbidden as error:
        raise ChatUnavailable(f"Telegram does not allow it: {error_text(error)}") from None
    except (telegram.error.BadRequest, telegram.error.EndPointNotFound) as error:
        raise bp.Undeliverable(f"Telegram rejects it: {error_text(error)}") from None
    except telegram.error.TelegramError as error:
        raise bp.DeliveryUnknown(error_text(error)) from None
    except PARSE_ERRORS as error:  # a message that the library cannot parse
        raise bp.DeliveryUnknown(f"the response cannot be parsed ({type(error).__name__})") from None


def disconnect_cause_of(error: Exception) -> bp.DisconnectCause:
    """Return why Telegram could not be reached."""
    match error:
        case TooManyRequests():
            return bp.DisconnectCause.LIMITED
        case telegram.error.Conflict():
            return bp.DisconnectCause.CONTESTED
        case telegram.error.TelegramError():
            return bp.disconnect_cause(error)
    return bp.DisconnectCause.PLATFORM


def error_text(error: Exception) -> str:
    """Return Telegram's error text as one short line."""
    if isinstance(error, telegram.error.TelegramError):
        return shorten(error.message, 200)
    return f"the response is invalid ({type(error).__name__})"


def is_about_markup(error: telegram.error.BadRequest) -> bool:
    """Return whether the entities were rejected."""
    text = error.message.lower()
    return "entit" in text or "parse" in text


def is_too_long(error: telegram.error.BadRequest) -> bool:
    """Return whether the text was rejected for its length."""
    text = error.message.lower()
    return "too long" in text or "too_long" in text


def is_topic_unavailable(error: telegram.error.BadRequest) -> bool:
    """Return whether the topic was deleted or is closed."""
    text = error.message.lower()
    return "thread not found" in text or "topic_closed" in text or "topic_deleted" in text or "topic closed" in text


def is_already_done(error: telegram.error.BadRequest) -> bool:
    """Return whether the edit or deletion had already been made."""
    text = error.message.lower()
    return "not modified" in text or "message to delete not found" in text


def is_reaction_refused(error: telegram.error.BadRequest) -> bool:
    """Return whether a chat does not allow a reaction."""
    return "reaction_invalid" in error.message.lower()


def is_message_gone(error: telegram.error.BadRequest) -> bool:
    """Return whether the message to edit, or to react to, no longer exists."""
    text = error.message.lower()
    return any(
        cause in text for cause in ("message to edit not found", "message to react not found", "message_id_invalid")
    )


def has_no_text(error: telegram.error.BadRequest) -> bool:
    """Return whether the message to edit is a file, whose text is its caption."""
    return "no text in the message" in error.message.lower()
