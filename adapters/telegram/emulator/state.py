"""State of the emulated platform, and the record of what it has shown and received."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from bot import Clock
from bot.testing.emulator import MessageRecorder

UPDATE_TTL = timedelta(hours=24)
_ENTITY_PATTERN = re.compile(r"(?P<command>^/\w{1,64}(?:@\w+)?)|(?P<mention>(?<!\w)@\w{3,32})|(?P<url>https?://\S+)")
ENTITY_FIELDS = {"text": "entities", "caption": "caption_entities"}
Message = dict[str, Any]


@dataclass(slots=True)
class BotRecord:
    """A bot with its unconfirmed updates."""

    token: str
    user: dict[str, Any]
    next_update: int = 1
    queue: list[tuple[datetime, dict[str, Any]]] = field(default_factory=list)
    webhook: str = ""
    secret: str = ""
    allowed_updates: tuple[str, ...] = ()
    commands: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)  # by scope and language
    update_arrived: asyncio.Event = field(default_factory=asyncio.Event)
    active_poll: object | None = None  # the poll that waits

    @property
    def id(self) -> int:
        """The bot's user id."""
        return int(self.user["id"])

    def pending(self, now: datetime) -> list[dict[str, Any]]:
        """Return pending updates; those older than 24 hours are dropped."""
        self.queue = [(received_at, update) for received_at, update in self.queue if now - received_at < UPDATE_TTL]
        return [update for _, update in self.queue]

    def confirm(self, offset: int) -> None:
        """Drop updates below the offset; a negative offset keeps that many of the last."""
        if offset < 0:
            self.queue = self.queue[offset:]
        else:
            self.queue = [(received_at, update) for received_at, update in self.queue if update["update_id"] >= offset]


class PlatformState:
    """Bots, users, chats and messages; changes become updates for the bots that may see them."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.bots: dict[str, BotRecord] = {}
        self.chats: dict[int, dict[str, Any]] = {}
        self.members: dict[int, dict[int, str]] = {}  # status by chat and user
        self.users: dict[int, dict[str, Any]] = {}
        self.messages: dict[tuple[int, int], Message] = {}
        self.newest: dict[str, int] = {}  # id of the newest message by chat or topic
        self.migrated_chats: dict[int, int] = {}
        self.inline_messages: dict[str, tuple[int, int]] = {}  # chat and message of answers of guests
        self.guest_queries: dict[str, Message] = {}  # unanswered questions to guests
        self.inline_queries: dict[str, datetime] = {}  # unanswered, with their times
        self.topics: dict[tuple[int, int], str] = {}  # name by chat and topic
        self.deleted_topics: set[tuple[int, int]] = set()  # by chat and topic
        self.closed_topics: set[tuple[int, int | None]] = set()  # None is the topic General
        self.files: dict[str, tuple[str, bytes]] = {}
        self.reactions: dict[tuple[int, int], dict[int, str]] = {}  # one emoji of each user, as without Premium
        self.available_reactions: dict[int, tuple[str, ...]] = {}  # by chat; all where none are named
        self._next_id = 100
        self._last_message: dict[int, int] = {}

    def new_number(self) -> int:
        """Return an unused id."""
        self._next_id += 1
        return self._next_id

    def new_message_id(self, chat_id: int) -> int:
        """Return the id of the next message of a chat."""
        self._last_message[chat_id] = self._last_message.get(chat_id, 0) + 1
        return self._last_message[chat_id]

    def unix_time(self) -> int:
        """Return the time in Unix seconds."""
        return int(self.clock().timestamp())

    def store_message(self, message: Message) -> Message:
        """Store a message and return it."""
        self.messages[message["chat"]["id"], message["message_id"]] = message
        place = place_of(message)
        self.newest[place] = max(self.newest.get(place, 0), message["message_id"])
        return message

    def bots_in(self, chat_id: int) -> Iterable[BotRecord]:
        """Return the bots that are members of a chat."""
        statuses = self.members.get(chat_id, {})
        return [bot for bot in self.bots.values() if statuses.get(bot.id, "left") not in ("left", "kicked")]

    def notify(self, bot: BotRecord, kind: str, content: Mapping[str, Any]) -> None:
        """Queue an update for a bot if it requested that kind."""
        if bot.allowed_updates and kind not in bot.allowed_updates:
            return
        self.enqueue(bot, {"update_id": bot.next_update, kind: dict(content)})
        bot.next_update += 1

    def enqueue(self, bot: BotRecord, update: Any) -> None:
        """Queue a raw update for a bot, valid or not."""
        bot.queue.append((self.clock(), update))
        bot.update_arrived.set()

    def is_visible_to(self, bot: BotRecord, message: Mapping[str, Any]) -> bool:
        """Return whether a bot receives a message: in privacy mode only if addressed to it."""
        chat = message["chat"]
        if chat["type"] in ("private", "channel") or bot.user["can_read_all_group_messages"]:
            return True
        if self.members[chat["id"]].get(bot.id) == "administrator" or not {"text", "caption"} & message.keys():
            return True
        text = message.get("text", message.get("caption", ""))
        name = f"@{bot.user['username']}".lower()
        replied = message.get("reply_to_message", {}).get("from", {}).get("id")
        is_command = text.startswith("/") and ("@" not in text.split()[0] or name in text.split()[0].lower())
        return bool(is_command or name in text.lower() or replied == bot.id)

    def deliver_message(self, kind: str, message: Message) -> None:
        """Send a message to every bot in its chat except its author."""
        for bot in self.bots_in(message["chat"]["id"]):
            if message.get("from", {}).get("id") != bot.id and self.is_visible_to(bot, message):
                self.notify(bot, kind, message)


class Recorder(MessageRecorder):
    """Records the messages of bots and all API calls, and wakes waiting tests at every entry."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.inline_answers: dict[str, Mapping[str, Any]] = {}  # by query id
        self.alerts: dict[str, str] = {}  # answers to button presses by query id
        self.problems: list[str] = []  # deviations from the published description

    def calls_of(self, method: str) -> list[Mapping[str, Any]]:
        """Return the parameters of all calls of a method."""
        return [parameters for name, parameters in self.calls if name == method]


def without_reply(message: Message) -> Message:
    """Return a message as it appears in a reply to it, without the message that it replies to itself."""
    return {name: value for name, value in message.items() if name != "reply_to_message"}


def place_of(message: Mapping[str, Any]) -> str:
    """Return the chat of a message, or its topic as CHAT/TOPIC."""
    thread = message.get("message_thread_id") if message.get("is_topic_message") else None
    return f"{message['chat']['id']}/{thread}" if thread else str(message["chat"]["id"])


def find_entities(text: str) -> list[dict[str, Any]]:
    """Return the entities of commands, mentions and URLs, as Telegram finds them."""
    entities = []
    for match in _ENTITY_PATTERN.finditer(text):
        kind = {"command": "bot_command", "mention": "mention", "url": "url"}[str(match.lastgroup)]
        start = len(text[: match.start()].encode("utf-16-le")) // 2
        entities.append({"type": kind, "offset": start, "length": len(match[0].encode("utf-16-le")) // 2})
    return entities
