"""Read the messages of a room from an export of DiscordChatExporter (JSON) or Telegram Desktop (`result.json`).

The formats are those of DiscordChatExporter's `JsonMessageWriter.cs` (github.com/Tyrrrz/DiscordChatExporter) and of
Telegram's "Data Export Schema" (core.telegram.org/import-export). Everything in a file is data of strangers: what has
another form is left out and counted, and no file or address that it names is opened.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from pydantic.alias_generators import to_camel

from bot.domain.content import Attachment, Content, MediaKind, MentionContext, Quotation
from bot.domain.environment import ChannelType, Entity, ParticipantState, Room, World
from bot.domain.ids import derived_id
from bot.domain.inbound import InboundMessage
from bot.domain.ledger import Outcome
from bot.errors import ConfigError
from bot.text import is_blank, sanitize_text, shorten

MAX_FILE_BYTES = 200 * 2**20
MAX_MESSAGES = 20_000  # the last ones of a file
MAX_TEXT_LENGTH = 4_096  # what both platforms allow in one message
MAX_NAME_LENGTH = 100
YEARS = range(2000, 2101)
MAX_ATTACHMENTS = 10  # of one message
DISCORD, TELEGRAM = "discord", "telegram"
UNREADABLE, EVENTS, CUT, EDITED, OLDER = (
    "in a form that could not be read",
    "events such as joins and pins",
    "texts that were cut",
    "edited messages, with their last text",
    "older messages than the last that are read",
)
CHANNEL_TYPES = {
    "DirectTextChat": ChannelType.DM,
    "personal_chat": ChannelType.DM,
    "bot_chat": ChannelType.DM,
    "saved_messages": ChannelType.SELF,
    "private_channel": ChannelType.FEED,
    "public_channel": ChannelType.FEED,
    "GuildNewsThread": ChannelType.THREAD,
    "GuildPublicThread": ChannelType.THREAD,
    "GuildPrivateThread": ChannelType.THREAD,
}
DISCORD_MESSAGES = frozenset({"Default", "Reply", "20", "23"})  # 20 and 23: what apps answered to commands
MEDIA_KINDS = {
    "voice_message": MediaKind.AUDIO,
    "audio_file": MediaKind.AUDIO,
    "video_message": MediaKind.VIDEO,
    "video_file": MediaKind.VIDEO,
    "animation": MediaKind.VIDEO,
    "sticker": MediaKind.IMAGE,
}
IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp"})
AUDIO_SUFFIXES = frozenset({".ogg", ".mp3", ".wav", ".m4a", ".flac"})


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """A message of a recorded room, and what became of it then: its outcome, the rule, and the replies.

    `outcome` is None where there is no receipt of it, as in an export; with `is_complete` no reply means silence.
    """

    inbound: InboundMessage
    replies: tuple[str, ...] = ()
    outcome: Outcome | None = None
    rule: str = ""
    reason: str = ""
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class Recording:
    """The messages of a room, oldest first, without the agent's own; `omitted` counts what they lack, by what it is."""

    room: Room
    messages: tuple[RecordedMessage, ...]
    omitted: Mapping[str, int] = field(default_factory=dict)
    participant_state: ParticipantState = ParticipantState.DEFAULT


def _to_text(value: object) -> object:
    """Return an id or a name as text, also where it is written as a number or missing."""
    return "" if value is None else str(value) if isinstance(value, int) else value


def _to_list(value: object) -> object:
    return value if isinstance(value, list) else []


def _name(value: Any) -> str:
    """Return a name or an id of an export as one short line; blank for anything else."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return shorten(" ".join(sanitize_text(text[: 4 * MAX_NAME_LENGTH]).split()), MAX_NAME_LENGTH)


Text = Annotated[str, BeforeValidator(_to_text)]
Name = Annotated[str, BeforeValidator(_name)]
Items = Annotated[list[Any], BeforeValidator(_to_list)]


class _Item(BaseModel, alias_generator=to_camel, validate_by_name=True):
    """Base of the parts of an export: names in camelCase, other fields ignored."""


class _DiscordUser(_Item):
    id: Name = Field(min_length=1)
    name: Name = ""
    nickname: Name = ""
    is_bot: bool = False


class _DiscordReference(_Item):
    message_id: Name = ""
    type: Text = "Default"


class _DiscordMessage(_Item):
    id: Name = Field(min_length=1)
    type: Text = "Default"
    timestamp: datetime
    timestamp_edited: datetime | None = None
    content: Text = ""
    author: _DiscordUser
    attachments: Items = []
    stickers: Items = []
    mentions: Items = []
    reference: _DiscordReference | None = None


class _TelegramMessage(BaseModel):
    id: Name = Field(min_length=1)
    type: Text = "message"
    date: datetime
    date_unixtime: Text = ""
    edited_unixtime: Text = ""
    sender: Name = Field("", alias="from")
    from_id: Name = ""
    text: str | list[Any] = ""
    text_entities: Items = []
    reply_to_message_id: Name = ""
    forwarded_from: Name = ""
    media_type: Name = ""
    photo: Text = ""
    file: Text = ""
    file_name: Text = ""
    sticker_emoji: Name = ""


@dataclass(frozen=True, slots=True)
class _Line:
    """One message of either format. `mentioned` has the ids and names of each of the people that it mentions."""

    id: str
    at: datetime
    author_id: str
    author: str
    text: str
    names: tuple[str, ...] = ()
    is_bot: bool = False
    is_edited: bool = False
    reply_to: str = ""
    mentioned: tuple[frozenset[str], ...] = ()
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class _Chat:
    """The room of an export: `world_id` and `world` are its server's, blank where it has none."""

    platform: str
    id: str
    name: str
    type: ChannelType
    world_id: str
    world: str
    messages: Sequence[Any]
    read_line: Callable[[Any], "_Line | None"]


def read_export(path: Path, agent_id: UUID, agent_names: Collection[str], room: str = "") -> Recording:
    """Return the messages of an export; those of an author called as the agent are the replies that were given.

    `room` is the name or id of a chat, where a file has several. Raises ConfigError for a file that cannot be read, is
    larger than 200 MB or is neither format.
    """
    chat = _find_chat(path, _read_json(path), room)
    omitted: Counter[str] = Counter()
    lines = []
    for item in chat.messages[-MAX_MESSAGES:]:
        try:
            line = chat.read_line(item)
            if line is not None and line.at.year not in YEARS:
                raise ValueError("its time cannot be")
        except (ValidationError, ValueError, OverflowError, OSError):  # times out of range raise the last two
            omitted[UNREADABLE] += 1
            continue
        if line is None:
            omitted[EVENTS] += 1
            continue
        omitted[CUT] += len(line.text) > MAX_TEXT_LENGTH
        omitted[EDITED] += line.is_edited
        lines.append(replace(line, text=sanitize_text(line.text[:MAX_TEXT_LENGTH])))
    omitted[OLDER] += max(0, len(chat.messages) - MAX_MESSAGES)
    lines.sort(key=lambda line: line.at)
    return _build_recording(chat, lines, agent_id, {name.casefold() for name in agent_names if name}, +omitted)


def _read_json(path: Path) -> Any:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{path} is larger than {MAX_FILE_BYTES // 2**20} MB: export a shorter time")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is no JSON: {shorten(str(error), 200)}") from None


def _find_chat(path: Path, document: Any, room: str) -> _Chat:
    body = document if isinstance(document, dict) else {}
    if isinstance(body.get("channel"), dict) and isinstance(body.get("messages"), list):
        guild = body["guild"] if isinstance(body.get("guild"), dict) else {}
        channel = body["channel"]
        kind = CHANNEL_TYPES.get(str(channel.get("type")), ChannelType.GROUP)
        number, name, guild_id = _name(channel.get("id")), _name(channel.get("name")), _name(guild.get("id"))
        return _Chat(DISCORD, number, name, kind, guild_id, _name(guild.get("name")), body["messages"], _discord)
    chats = body["chats"].get("list") if isinstance(body.get("chats"), dict) else [body]
    found = [chat for chat in _dicts(chats) if isinstance(chat.get("messages"), list) and "type" in chat]
    if not found:
        raise ConfigError(
            f"{path} is no export that can be read: export the channel with DiscordChatExporter as JSON, or the chat "
            "with Telegram Desktop (⋮, Export chat history) as JSON"
        )
    chosen = [chat for chat in found if room in (_name(chat.get("id")), _name(chat.get("name")))] if room else found
    if len(chosen) != 1:
        listed = ", ".join(sorted({_name(chat.get("name")) or _name(chat.get("id")) for chat in found})[:20])
        raise ConfigError(f"{path} has {len(found)} chats: choose one with --room, by name or id: {listed}")
    chat = chosen[0]
    kind = CHANNEL_TYPES.get(str(chat["type"]), ChannelType.GROUP)
    number, name = _name(chat.get("id")), _name(chat.get("name"))
    return _Chat(TELEGRAM, number, name, kind, number, name, chat["messages"], _telegram)


def _discord(item: Any) -> _Line | None:
    message = _DiscordMessage.model_validate(item)
    if message.type not in DISCORD_MESSAGES:
        return None
    author = message.author
    is_reply = message.reference is not None and message.reference.type != "Forward"
    names = tuple(name for name in (author.nickname, author.name) if name)
    files = [file.get("fileName") for file in _dicts(message.attachments)]
    stickers = [f"{_name(sticker.get('name'))}.png" for sticker in _dicts(message.stickers)]
    return _Line(
        message.id,
        _aware(message.timestamp),
        author.id,
        names[0] if names else "",
        message.content,
        names,
        author.is_bot,
        message.timestamp_edited is not None,
        message.reference.message_id if is_reply and message.reference else "",
        tuple(
            frozenset(_name(user.get(key)) for key in ("id", "name", "nickname")) for user in _dicts(message.mentions)
        ),
        _attachments(message.id, [*files, *stickers]),
    )


def _telegram(item: Any) -> _Line | None:
    message = _TelegramMessage.model_validate(item)
    if message.type != "message":
        return None
    at = message.date_unixtime
    parts = message.text if isinstance(message.text, list) else [message.text]
    text = "".join(part if isinstance(part, str) else _plain(part) for part in parts)
    entities = _dicts([*message.text_entities, *(part for part in parts if isinstance(part, dict))])
    mentions = [entity for entity in entities if entity.get("type") in ("mention", "mention_name")]
    mentioned = {frozenset((_plain(entity).lstrip("@"), f"user{_name(entity.get('user_id'))}")) for entity in mentions}
    file = message.file_name or message.file or message.photo
    kind = MediaKind.IMAGE if message.photo else MEDIA_KINDS.get(message.media_type)
    name = message.sticker_emoji or ("" if file.startswith("(File") else PurePosixPath(file).name)
    if message.forwarded_from and text:
        text = "\n".join(f"> {line}" for line in f"{message.forwarded_from}: {text}".splitlines())
    return _Line(
        message.id,
        datetime.fromtimestamp(int(at), UTC) if at else _aware(message.date),
        message.from_id or message.sender or "deleted",
        message.sender or "Deleted Account",
        text,
        (message.sender,) if message.sender else (),
        is_edited=bool(message.edited_unixtime),
        reply_to=message.reply_to_message_id,
        mentioned=tuple(mentioned),
        attachments=_attachments(message.id, [name or message.media_type or "file"], kind) if file or kind else (),
    )


def _build_recording(
    chat: _Chat, lines: Sequence[_Line], agent_id: UUID, agent_names: Collection[str], omitted: Mapping[str, int]
) -> Recording:
    def is_own(line: _Line) -> bool:
        return any(name.casefold() in agent_names for name in line.names)

    own_ids = {line.author_id for line in lines if is_own(line)}

    def is_agent(mentioned: Collection[str]) -> bool:
        return any(name in own_ids or name.casefold() in agent_names for name in mentioned)

    world = World(derived_id(chat.platform, "world", chat.world_id), chat.platform, chat.world_id, chat.world)
    room_id = derived_id(chat.platform, "room", chat.id)
    room = Room(room_id, world.id, chat.type, chat.platform, chat.id, "export", chat.name)
    known = {line.id: line for line in lines}
    replies: dict[str, list[str]] = {}
    others: list[_Line] = []
    for line in lines:
        if line.author_id in own_ids:
            answered = line.reply_to if line.reply_to in replies else next(iter(others[-1:]), line).id
            replies.setdefault(answered, []).append(line.text)
        else:
            replies.setdefault(line.id, [])
            others.append(line)
    messages = []
    for line in others:
        replied = known.get(line.reply_to)
        mention = MentionContext(
            is_mention=any(map(is_agent, line.mentioned)),
            is_reply=replied is not None and replied.author_id in own_ids,
            replies_to=_person(chat, replied, own_ids, agent_id) if replied else None,
            mentions_others=not all(map(is_agent, line.mentioned)),
        )
        quotation = None
        if replied is not None:
            author_id = _person(chat, replied, own_ids, agent_id)
            quotation = Quotation(replied.text, replied.author, author_id, replied.id, replied.attachments)
        content = Content(
            line.text, attachments=line.attachments, source=chat.platform, mention=mention, quotation=quotation
        )
        names = tuple(dict.fromkeys(line.names))
        author = Entity(_person(chat, line, (), agent_id), chat.platform, line.author_id, names, line.is_bot)
        inbound = InboundMessage.build(
            world, room, author, content, created_at=line.at, message_id=line.id, event_id=line.id
        )
        given = tuple(text for text in replies[line.id] if not is_blank(text))
        messages.append(RecordedMessage(inbound, given, is_complete=bool(own_ids)))
    return Recording(room, tuple(messages), omitted)


def _person(chat: _Chat, line: _Line, own_ids: Collection[str], agent_id: UUID) -> UUID:
    return agent_id if line.author_id in own_ids else derived_id(chat.platform, "entity", line.author_id)


def _attachments(message_id: str, names: Iterable[Any], kind: MediaKind | None = None) -> tuple[Attachment, ...]:
    """Return attachments that have a name only."""
    found = []
    for index, name in enumerate(map(_name, list(names)[:MAX_ATTACHMENTS])):
        suffix = PurePosixPath(name).suffix.lower()
        guessed = MediaKind.IMAGE if suffix in IMAGE_SUFFIXES else MediaKind.DOCUMENT
        guessed = MediaKind.AUDIO if suffix in AUDIO_SUFFIXES else guessed
        found.append(Attachment(f"{message_id}-{index}", kind or guessed, name=name))
    return tuple(found)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _plain(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else ""
    return text if isinstance(text, str) else ""


def _aware(at: datetime) -> datetime:
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
