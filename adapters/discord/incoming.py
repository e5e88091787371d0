"""Message → InboundMessage; its text and files; rules that forbid an answer."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

import discord

from adapters.discord.config import DiscordSettings
from adapters.discord.entities import PLATFORM, Places
from bot import Attachment, Content, Entity, MediaKind, Memory, MemoryKind, World, new_id
from bot.platform import Arrival, EventKey, MentionContext, Reaction, RoomRule
from bot.text import shorten

SAID = (
    discord.MessageType.default,
    discord.MessageType.reply,
    discord.MessageType.chat_input_command,
    discord.MessageType.context_menu_command,
)


def is_said(message: discord.Message) -> bool:
    """Tell whether somebody says something, rather than Discord itself that somebody joined or pinned."""
    return message.type in SAID


def is_own(message: discord.Message, places: Places, application_id: int | None) -> bool:
    """Tell whether our own account wrote a message, or a webhook of our own application: by their ids."""
    if message.author.id == places.own_id:
        return True
    return bool(message.webhook_id and application_id and message.application_id == application_id)


def message_received(
    message: discord.Message, places: Places, mention: MentionContext, *, is_backfill: bool = False
) -> Arrival:
    """Make the arrival of a message; `mention` has been weighed against the rules."""
    return _arrival(message, places, mention, f"MC:{message.id}", 0, is_backfill)


def message_edited(
    message: discord.Message, at: datetime, places: Places, mention: MentionContext
) -> Arrival:
    """Make the arrival of an edit: the same message, its revision the time at which it was edited."""
    revision = int(at.timestamp() * 1000)
    return _arrival(message, places, mention, f"MU:{message.id}:{revision}", revision, False)


def mention_of(message: discord.Message, own_id: int) -> MentionContext:
    """Read how a message addresses us from Discord's own entities: not a word of the text counts."""
    said = message.reference.resolved if message.reference is not None else None
    return MentionContext(
        is_mention=any(one.id == own_id for one in message.mentions)
        or any(_is_ours(role, own_id) for role in message.role_mentions),
        is_reply=isinstance(said, discord.Message) and said.author.id == own_id,
        is_thread=isinstance(message.channel, discord.Thread),
    )


def reacted(
    told: discord.RawReactionActionEvent,
    channel: object,
    guild: discord.Guild | None,
    places: Places,
    *,
    at: datetime,
) -> Reaction:
    """Make the reaction that somebody has put on a message."""
    member = told.member
    author = (
        places.person(member)
        if member is not None
        else Entity(places.person_id(told.user_id), PLATFORM, str(told.user_id))
    )
    room = places.room(channel, told.guild_id)
    world = places.world(guild, [member]) if guild is not None else _unknown(told, places)
    return Reaction(world, room, author, str(told.message_id), str(told.emoji), at)


def home_of(message: discord.Message) -> int | None:
    """Give the id of the server in which something was said; None in a conversation between two."""
    guild = message.guild or getattr(message.channel, "guild", None)
    known: int | None = guild.id if guild is not None else getattr(message.channel, "guild_id", None)
    return known


def _arrival(
    message: discord.Message,
    places: Places,
    mention: MentionContext,
    event_id: str,
    revision: int,
    is_backfill: bool,
) -> Arrival:
    room = places.room(message.channel, home_of(message))
    author = places.person(message.author, is_webhook=message.webhook_id is not None)
    said = Memory(
        id=new_id(),
        kind=MemoryKind.MESSAGE,
        entity_id=author.id,
        room_id=room.id,
        world_id=room.world_id,
        content=Content(
            text=words_of(message),
            attachments=files_of(message),
            source=PLATFORM,
            url=message.jump_url,
            mention=mention,
            metadata=_reference(message),
        ),
        created_at=message.created_at,
        external_id=str(message.id),
    )
    key = EventKey(PLATFORM, places.account, event_id, room.id, str(message.id), revision)
    world = _world(message, places, [message.author])
    return Arrival(key, world, room, author, said, is_backfill=is_backfill)


def _world(message: discord.Message, places: Places, people: Sequence[object]) -> World:
    home = home_of(message)
    if home is None:
        return places.direct_world(message.channel.id)
    if message.guild is None:  # a server that has not been told of yet
        return World(places.world_id(home), PLATFORM, str(home))
    return places.world(message.guild, people)


def _unknown(told: discord.RawReactionActionEvent, places: Places) -> World:
    if told.guild_id is None:
        return places.direct_world(told.channel_id)
    return World(places.world_id(told.guild_id), PLATFORM, str(told.guild_id))


def _reference(message: discord.Message) -> dict[str, str]:
    reference = message.reference
    return {"replies_to": str(reference.message_id)} if reference is not None and reference.message_id else {}


def _is_ours(role: discord.Role, own_id: int) -> bool:
    return role.tags is not None and role.tags.bot_id == own_id


LONGEST_QUOTE = 200


def words_of(message: discord.Message) -> str:
    """Write everything that a message says, a thing a line."""
    return "\n".join(line for line in _lines(message) if line.strip())


def files_of(message: discord.Message) -> tuple[Attachment, ...]:
    """List what came with a message, and with what it forwards."""
    sent = [*message.attachments, *(one for copy in message.message_snapshots for one in copy.attachments)]
    return tuple(_file(one) for one in sent)


def _lines(message: discord.Message) -> Iterator[str]:
    yield _quoted(message)
    yield message.clean_content
    for copy in message.message_snapshots:
        shown = "\n".join([f"[forwarded] {copy.content}", *map(_embed, copy.embeds)])
        yield "\n".join(f"> {line}" for line in shown.splitlines() if line.strip())  # nobody's own words
    if message.author.bot or message.webhook_id:  # a person's embeds are previews of the links they wrote
        for embed in message.embeds:
            yield _embed(embed)
    for sticker in message.stickers:
        yield f"[sticker: {sticker.name}]"
    if message.poll is not None:
        answers = " / ".join(answer.text for answer in message.poll.answers)
        yield f"[poll] {message.poll.question}: {answers}"


def _quoted(message: discord.Message) -> str:
    """Begin a reply with what it replies to."""
    said = message.reference.resolved if message.reference is not None else None
    if not isinstance(said, discord.Message):
        return ""
    return f"> {said.author.display_name}: {shorten(said.clean_content, LONGEST_QUOTE)}"


def _embed(embed: discord.Embed) -> str:
    parts = [
        embed.author.name,
        embed.title,
        embed.description,
        *(f"{field.name}: {field.value}" for field in embed.fields),
        embed.footer.text,
        embed.url,
    ]
    text = "\n".join(str(part) for part in parts if part)
    return f"[embed] {text}" if text else ""


def _file(sent: discord.Attachment) -> Attachment:
    return Attachment(
        id=str(sent.id),
        kind=_kind(sent),
        url=sent.url,
        content_type=sent.content_type or "",
        name=sent.filename,
        title=sent.title or sent.description or sent.filename,
    )


def _kind(sent: discord.Attachment) -> MediaKind:
    family = (sent.content_type or "").partition("/")[0].strip().lower()
    if sent.is_voice_message() or family == "audio":
        return MediaKind.AUDIO
    return MediaKind(family.upper()) if family in ("image", "video") else MediaKind.DOCUMENT


def denied(
    mention: MentionContext,
    lineage: Sequence[str],
    settings: DiscordSettings,
    room_rule: RoomRule,
    *,
    is_direct: bool,
) -> MentionContext:
    """Write into a mention the name of the first rule that forbids an answer, if one does.

    `lineage` names where it was said, the nearest first; a thread is under the rules of its channel.
    """
    rule = _direct_rule(settings) if is_direct else _rule(mention, lineage, settings)
    rule = rule or room_rule.denies(mention, is_direct=is_direct)
    return replace(mention, denied_by=rule) if rule else mention


def is_ignored(settings: DiscordSettings, *, is_bot: bool) -> bool:
    """Tell whether a message of such an author is not to be kept."""
    return is_bot and settings.discord_should_ignore_bot_messages


def _direct_rule(settings: DiscordSettings) -> str:
    return "DISCORD_SHOULD_IGNORE_DIRECT_MESSAGES" if settings.discord_should_ignore_direct_messages else ""


def _rule(mention: MentionContext, lineage: Sequence[str], settings: DiscordSettings) -> str:
    if settings.channel_ids and not set(lineage) & set(settings.channel_ids):
        return "CHANNEL_IDS"
    if set(lineage) & set(settings.discord_listen_channel_ids):
        return "DISCORD_LISTEN_CHANNEL_IDS"
    is_called = mention.is_mention or mention.is_reply
    if settings.discord_should_respond_only_to_mentions and not is_called:
        return "DISCORD_SHOULD_RESPOND_ONLY_TO_MENTIONS"
    return ""
