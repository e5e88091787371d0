"""Mentions, replies, commands and forwards of a message, by Telegram's entities; pure."""

import re
from dataclasses import dataclass
from uuid import UUID

from telegram import Message, MessageEntity, MessageOrigin

from adapters.telegram.entities import (
    BotIdentity,
    ChatTarget,
    author_of,
    build_chat_entity,
    build_entity,
    name_of,
    thread_id_of,
)

COMMAND_PATTERN = re.compile(r"/([\w-]+)(?:@(\w+))?")  # Telegram's own entity ends at a hyphen
UNKNOWN_USER = "an unknown user"
PERSON_ENTITIES: list[str | None] = [MessageEntity.MENTION, MessageEntity.TEXT_MENTION]


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    """A command at the start of a message; `bot` is the addressed bot, blank if none is named."""

    name: str
    bot: str
    text: str


def find_command(message: Message) -> ParsedCommand | None:
    """Return the command that a message begins with; None in forwarded and inline-bot text."""
    if describe_origin(message):
        return None
    for entity in message.entities:
        if entity.type == MessageEntity.BOT_COMMAND and entity.offset == 0 and message.text:
            match = COMMAND_PATTERN.match(message.text)
            if match is not None:
                name, bot = match[1].lower().replace("-", "_"), match[2] or ""
                return ParsedCommand(name, bot.lower(), message.text[match.end() :].strip())
    return None


def is_mention(message: Message, identity: BotIdentity) -> bool:
    """Return whether a message mentions the bot by @name, linked name or addressed command."""
    if message.forward_origin is not None:  # forwarded text addresses the other members
        return False
    entities = [*message.parse_entities().items(), *message.parse_caption_entities().items()]
    return any(_names_bot(entity, text, identity) for entity, text in entities)


def mentions_others(message: Message, identity: BotIdentity) -> bool:
    """Return whether the sender mentions others than the bot, by @name or linked name."""
    if message.forward_origin is not None:
        return False
    entities = [
        *message.parse_entities(PERSON_ENTITIES).items(),
        *message.parse_caption_entities(PERSON_ENTITIES).items(),
    ]
    return any(not _names_bot(entity, text, identity) for entity, text in entities)


def find_replied_author(message: Message, identity: BotIdentity) -> UUID | None:
    """Return the author of the message that it replies to.

    What only stands in a topic or below a channel's post is no reply.
    """
    replied = message.reply_to_message
    if replied is None or replied.forum_topic_created is not None or replied.is_automatic_forward:
        return None
    if thread_id_of(message) is not None and replied.message_id == message.message_thread_id:
        return None
    author, _ = author_of(replied, identity)
    return author.id


def build_metadata(message: Message) -> dict[str, object]:
    """Return metadata: ids of the message, its chat and the replied message, and its origin."""
    metadata: dict[str, object] = {"message_id": message.message_id, "chat": str(message.chat.id)}
    if (replied := message.reply_to_message) is not None:
        metadata["reply_to"] = str(replied.message_id)
    if message.via_bot is not None:
        metadata["via_bot"] = message.via_bot.username or str(message.via_bot.id)
    return metadata


def chat_names(target: ChatTarget, username: str | None) -> tuple[str, ...]:
    """Return the names of a chat in settings, the most specific first."""
    names = (str(target), str(target.chat_id), f"@{username}" if username else "", username or "")
    return tuple(dict.fromkeys(filter(None, names)))


def _names_bot(entity: MessageEntity, text: str, identity: BotIdentity) -> bool:
    own_mention = f"@{identity.username}".lower()
    if entity.type == MessageEntity.MENTION:
        return bool(identity.username) and text.lower() == own_mention
    if entity.type == MessageEntity.TEXT_MENTION:
        return entity.user is not None and entity.user.id == identity.id
    if entity.type == MessageEntity.BOT_COMMAND:
        return bool(identity.username) and text.lower().endswith(own_mention)
    return False


def describe_origin(message: Message) -> str:
    """Return how the text of another author came into a message; empty if the sender wrote it."""
    if message.forward_origin is not None:
        return f"forwarded from {original_author(message.forward_origin)}"
    if message.via_bot is not None:  # the sender of an inline result sees little more than its title
        return f"written by the bot @{message.via_bot.username or message.via_bot.id}"
    return ""


def forwarded_author(origin: MessageOrigin, identity: BotIdentity) -> UUID | None:
    """Return the entity id of who wrote a message that was forwarded; None if Telegram does not tell."""
    user, chat = getattr(origin, "sender_user", None), getattr(origin, "sender_chat", None)
    if user is not None:
        return build_entity(user, identity).id
    return build_chat_entity(chat).id if chat is not None else None


def original_author(origin: MessageOrigin) -> str:
    """Return the name of the original author of a message that was forwarded, or is in another chat."""
    user, chat = getattr(origin, "sender_user", None), getattr(origin, "sender_chat", None)
    chat = chat or getattr(origin, "chat", None)
    if user is not None:
        return name_of(user) or UNKNOWN_USER
    if chat is not None:
        return str(chat.title or chat.username or chat.id)
    return str(getattr(origin, "sender_user_name", "") or UNKNOWN_USER)
