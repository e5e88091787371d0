"""From Discord's messages and signs to arrivals and reactions; pure."""

from collections.abc import Sequence
from datetime import datetime

import discord

from adapters.discord.places import PLATFORM, Places
from adapters.discord.words import files_of, words_of
from bot import (
    Arrival,
    Content,
    Entity,
    EventKey,
    Memory,
    MemoryKind,
    MentionContext,
    Reaction,
    World,
    new_id,
)

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
