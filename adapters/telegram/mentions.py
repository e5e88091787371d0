"""Whom a message speaks to, by Telegram's own entities; pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from telegram import Message, MessageEntity

from adapters.telegram.entities import Me, Target, thread_of
from bot import Attachment, MediaKind

COMMAND = re.compile(r"/([\w-]+)(?:@(\w+))?")  # to Telegram itself a command ends at a hyphen


@dataclass(frozen=True, slots=True)
class Command:
    """A command at the beginning of a message; `bot` is whom it is for, blank where it names nobody."""

    name: str
    bot: str
    text: str


def command_of(message: Message) -> Command | None:
    """Read the command that a message begins with; one in words of others is not meant for us."""
    if whose(message):
        return None
    for entity in message.entities:
        if entity.type == MessageEntity.BOT_COMMAND and entity.offset == 0 and message.text:
            found = COMMAND.match(message.text)
            if found is not None:
                name, bot = found[1].lower().replace("-", "_"), found[2] or ""
                return Command(name, bot.lower(), message.text[found.end() :].strip())
    return None


def is_mention(message: Message, me: Me) -> bool:
    """Tell whether a message names us: @us, our linked name, or a command that is ours by name."""
    if message.forward_origin is not None:  # whoever forwards it speaks to the others
        return False
    return any(_names(one, said, me) for one, said in _entities(message))


def is_reply(message: Message, me: Me) -> bool:
    """Tell whether it replies to us; that a topic was begun by us makes no message a reply."""
    replied = message.reply_to_message
    if replied is None or replied.from_user is None or replied.forum_topic_created is not None:
        return False
    begins_topic = thread_of(message) is not None and replied.message_id == message.message_thread_id
    return replied.from_user.id == me.id and not begins_topic


def context_of(message: Message) -> dict[str, object]:
    """Tell what a message answers and where it was taken from, for whoever looks at it later."""
    found: dict[str, object] = {"message_id": message.message_id, "chat": str(message.chat.id)}
    if (replied := message.reply_to_message) is not None:
        found["reply_to"] = str(replied.message_id)
    if message.forward_origin is not None:
        found["forwarded_from"] = origin_of(message)
    if message.via_bot is not None:
        found["via_bot"] = message.via_bot.username or str(message.via_bot.id)
    return found


def quoted(message: Message, me: Me) -> Attachment | None:
    """Give what a message answers, if somebody else said it: in privacy mode the bot may not have seen it."""
    replied = message.reply_to_message
    is_ours = replied is not None and replied.from_user is not None and replied.from_user.id == me.id
    begins_topic = replied is not None and replied.message_id == thread_of(message)
    if is_ours or begins_topic:
        return None
    text = message.quote.text if message.quote is not None else ""
    if replied is not None:
        text = text or replied.text or replied.caption or ""
    if not text.strip():
        return None
    by = replied.from_user.full_name if replied is not None and replied.from_user is not None else "somebody"
    number = replied.message_id if replied is not None else message.message_id
    title = f"message of {by} that this replies to"
    return Attachment(f"quoted-{number}", MediaKind.DOCUMENT, title=title, text=text)


def chat_words(target: Target, username: str | None) -> tuple[str, ...]:
    """List the names by which settings may speak of a chat, the most exact first."""
    words = (str(target), str(target.chat), f"@{username}" if username else "", username or "")
    return tuple(dict.fromkeys(filter(None, words)))


def _entities(message: Message) -> Iterator[tuple[MessageEntity, str]]:
    yield from message.parse_entities().items()
    yield from message.parse_caption_entities().items()


def _names(entity: MessageEntity, said: str, me: Me) -> bool:
    ours = f"@{me.username}".lower()
    if entity.type == MessageEntity.MENTION:
        return bool(me.username) and said.lower() == ours
    if entity.type == MessageEntity.TEXT_MENTION:
        return entity.user is not None and entity.user.id == me.id
    if entity.type == MessageEntity.BOT_COMMAND:
        return bool(me.username) and said.lower().endswith(ours)
    return False


def whose(message: Message) -> str:
    """Say how a message's words came from somebody else; empty where whoever sends it has written them."""
    if message.forward_origin is not None:
        return f"forwarded from {origin_of(message)}"
    if (
        message.via_bot is not None
    ):  # an inline bot: whoever chooses what it offers sees little more than a title
        return f"written by the bot @{message.via_bot.username or message.via_bot.id}"
    return ""


def origin_of(message: Message) -> str:
    """Name whose words a forwarded message holds."""
    origin = message.forward_origin
    user, chat = getattr(origin, "sender_user", None), getattr(origin, "sender_chat", None)
    chat = chat or getattr(origin, "chat", None)
    if user is not None:
        return str(user.full_name)
    if chat is not None:
        return str(chat.title or chat.username or chat.id)
    return str(getattr(origin, "sender_user_name", "") or "somebody")
