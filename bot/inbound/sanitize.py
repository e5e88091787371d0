"""Bounds and cleans everything that comes from a platform, before it is stored."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from bot.domain.content import Attachment, Content, Quotation
from bot.domain.edits import Reaction
from bot.domain.environment import Entity, Room, World
from bot.domain.inbound import MAX_ENTITIES, MAX_ROOMS, InboundMessage, MembershipUpdate
from bot.domain.ledger import EventKey
from bot.domain.memory import Memory
from bot.text import invisible_share, is_storable, sanitize_text

MAX_TEXT_LENGTH = 65_536
MAX_ATTACHMENTS = 10
MAX_NAME_LENGTH = 200
MAX_METADATA_DEPTH = 20
MAX_CLOCK_SKEW = timedelta(minutes=1)
MIN_TIMESTAMP = datetime(2000, 1, 1, tzinfo=UTC)  # no platform of ours is older: such a time is none
MAX_INVISIBLE_SHARE = 0.2
ORIGINAL_TIME_KEY = "said_at"  # the time that a platform gave, where it cannot be
P = TypeVar("P", World, Room)
T = TypeVar("T", World, Room, Entity, Memory, Content, EventKey)


def sanitize_message(inbound: InboundMessage, now: datetime) -> InboundMessage:
    """Return an event with storable text, few attachments, and a possible time.

    Ids and addresses are not cut, but lose characters that no database stores; so does metadata. The notes
    say what was changed in the message.
    """
    key, message = inbound.key, _sanitize_memory(inbound.message, now)
    return InboundMessage(
        key=_replace_changed(key, event_id=sanitize_id(key.event_id), message_id=sanitize_id(key.message_id)),
        world=sanitize_place(inbound.world),
        room=sanitize_place(inbound.room),
        author=sanitize_entity(inbound.author),
        message=message,
        is_backfill=inbound.is_backfill,
        notes=tuple(_build_notes(inbound.message, message)),
        is_regeneration=inbound.is_regeneration,
    )


def sanitize_place(place: P) -> P:
    """Return a world or room with bounded names and metadata."""
    return _replace_changed(
        place,
        external_id=sanitize_id(place.external_id),
        name=sanitize_text(place.name, MAX_NAME_LENGTH),
        metadata=_sanitize_metadata(place.metadata),
    )


def sanitize_entity(entity: Entity) -> Entity:
    """Return an entity with bounded names and metadata."""
    return _replace_changed(
        entity,
        external_id=sanitize_id(entity.external_id),
        names=tuple(sanitize_text(name, MAX_NAME_LENGTH) for name in entity.names),
        metadata=_sanitize_metadata(entity.metadata),
    )


def sanitize_membership(update: MembershipUpdate) -> MembershipUpdate:
    """Return an update with at most so many rooms and entities, each once."""
    rooms = {room.id: sanitize_place(room) for room in update.rooms[:MAX_ROOMS]}
    entities = {entity.id: sanitize_entity(entity) for entity in update.entities[:MAX_ENTITIES]}
    return replace(
        update,
        world=sanitize_place(update.world),
        rooms=tuple(rooms.values()),
        entities=tuple(entities.values()),
        event_id=sanitize_id(update.event_id),
    )


def sanitize_reaction(reaction: Reaction, now: datetime) -> Reaction:
    """Return a bounded reaction; its emoji is bounded as a name is."""
    return Reaction(
        world=sanitize_place(reaction.world),
        room=sanitize_place(reaction.room),
        author=sanitize_entity(reaction.author),
        message_id=sanitize_id(reaction.message_id),
        emoji=sanitize_emoji(reaction.emoji),
        created_at=_clamp_time(reaction.created_at, now),
    )


def sanitize_emoji(text: str) -> str:
    """Return a bounded reaction key."""
    return sanitize_text(text, MAX_NAME_LENGTH)


def sanitize_id(text: str) -> str:
    """Return an id without characters that no database stores."""
    return sanitize_text(text, len(text))


def _sanitize_memory(message: Memory, now: datetime) -> Memory:
    """Return a bounded message; where its time is impossible, the original time stays in the metadata."""
    created_at, metadata = _clamp_time(message.created_at, now), _sanitize_metadata(message.metadata)
    if created_at != message.created_at:
        metadata[ORIGINAL_TIME_KEY] = message.created_at.isoformat()
    return _replace_changed(
        message,
        external_id=sanitize_id(message.external_id),
        content=_sanitize_content(message.content),
        created_at=created_at,
        metadata=metadata,
    )


def _clamp_time(timestamp: datetime, now: datetime) -> datetime:
    return now if timestamp < MIN_TIMESTAMP else min(timestamp, now + MAX_CLOCK_SKEW)


def _build_notes(original: Memory, sanitized: Memory) -> Iterator[str]:
    """Yield what was changed in a message, and whether much of it is invisible."""
    text, attachments = original.content.text, original.content.attachments
    if not is_storable(text):
        yield "its text held what is no character; that was taken out"
    if len(text) > MAX_TEXT_LENGTH:
        yield f"its text of {len(text)} characters was cut to {MAX_TEXT_LENGTH}"
    if (share := invisible_share(sanitized.content.text)) > MAX_INVISIBLE_SHARE:
        yield f"{share:.0%} of its text cannot be seen"
    if len(attachments) > MAX_ATTACHMENTS:
        yield f"it came with {len(attachments)} attachments; the first {MAX_ATTACHMENTS} were kept"
    if original.created_at != sanitized.created_at:
        yield f"the time it came with cannot be: {original.created_at.isoformat()}"


def _sanitize_content(content: Content) -> Content:
    attachments = content.attachments[:MAX_ATTACHMENTS]
    quotation = content.quotation
    return _replace_changed(
        content,
        text=sanitize_text(content.text, MAX_TEXT_LENGTH),
        url=sanitize_id(content.url),
        source=sanitize_text(content.source, MAX_NAME_LENGTH),
        attachments=tuple(_sanitize_attachment(attachment) for attachment in attachments),
        metadata=_sanitize_metadata(content.metadata),
        quotation=None if quotation is None else _sanitize_quotation(quotation, MAX_ATTACHMENTS - len(attachments)),
    )


def _sanitize_quotation(quotation: Quotation, max_attachments: int) -> Quotation:
    return replace(
        quotation,
        text=sanitize_text(quotation.text, MAX_TEXT_LENGTH),
        author_name=sanitize_text(quotation.author_name, MAX_NAME_LENGTH),
        message_id=sanitize_id(quotation.message_id),
        attachments=tuple(map(_sanitize_attachment, quotation.attachments[:max_attachments])),
    )


def _sanitize_attachment(attachment: Attachment) -> Attachment:
    return replace(
        attachment,
        id=sanitize_id(attachment.id),
        url=sanitize_id(attachment.url),
        content_type=sanitize_text(attachment.content_type, MAX_NAME_LENGTH),
        name=sanitize_text(attachment.name, MAX_NAME_LENGTH),
        title=sanitize_text(attachment.title, MAX_NAME_LENGTH),
        text=sanitize_text(attachment.text),
        description=sanitize_text(attachment.description),
    )


def _replace_changed(value: T, **fields: Any) -> T:
    """Return the value with these fields; nearly always it has them already and is returned unchanged."""
    for name, field_value in fields.items():
        if getattr(value, name) != field_value:
            return replace(value, **fields)
    return value


def _sanitize_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {sanitize_id(name): _sanitize_value(value) for name, value in metadata.items()}


def _sanitize_value(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        return sanitize_text(value)
    if depth >= MAX_METADATA_DEPTH:
        return None
    if isinstance(value, Mapping):
        return {sanitize_id(str(name)): _sanitize_value(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_sanitize_value(item, depth + 1) for item in value]
    return value
