"""What is done to an event before it is kept: nothing hostile goes further than here."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from bot.domain.arrival import Arrival
from bot.domain.content import Attachment, Content
from bot.text import tidy

MOST_ATTACHMENTS = 10
LONGEST_NAME = 200
MOST_NESTED = 20
FUTURE = timedelta(minutes=1)


def tidied(arrival: Arrival, now: datetime) -> Arrival:
    """Bound an event: text that every database takes, few attachments, a time that is not in the future.

    Ids and addresses are not cut, but lose what no database takes as well; metadata likewise.
    """
    key, world, room, author, message = (
        arrival.key,
        arrival.world,
        arrival.room,
        arrival.author,
        arrival.message,
    )
    return Arrival(
        key=replace(key, event_id=_id(key.event_id), message_id=_id(key.message_id)),
        world=replace(
            world,
            external_id=_id(world.external_id),
            name=tidy(world.name, LONGEST_NAME),
            metadata=_storable(world.metadata),
        ),
        room=replace(
            room,
            external_id=_id(room.external_id),
            name=tidy(room.name, LONGEST_NAME),
            metadata=_storable(room.metadata),
        ),
        author=replace(
            author,
            external_id=_id(author.external_id),
            names=tuple(tidy(name, LONGEST_NAME) for name in author.names),
            metadata=_storable(author.metadata),
        ),
        message=replace(
            message,
            external_id=_id(message.external_id),
            content=_tidied(message.content),
            created_at=min(message.created_at, now + FUTURE),
            metadata=_storable(message.metadata),
        ),
    )


def _tidied(content: Content) -> Content:
    kept = content.attachments[:MOST_ATTACHMENTS]
    return replace(
        content,
        text=tidy(content.text),
        url=_id(content.url),
        source=tidy(content.source, LONGEST_NAME),
        attachments=tuple(_named(attachment) for attachment in kept),
        metadata=_storable(content.metadata),
    )


def _named(attachment: Attachment) -> Attachment:
    return replace(
        attachment,
        id=_id(attachment.id),
        url=_id(attachment.url),
        content_type=tidy(attachment.content_type, LONGEST_NAME),
        name=tidy(attachment.name, LONGEST_NAME),
        title=tidy(attachment.title, LONGEST_NAME),
        text=tidy(attachment.text),
        description=tidy(attachment.description),
    )


def _id(text: str) -> str:
    return tidy(text, len(text))


def _storable(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {_id(name): _storable_value(value) for name, value in metadata.items()}


def _storable_value(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        return tidy(value)
    if depth >= MOST_NESTED:
        return None
    if isinstance(value, Mapping):
        return {_id(str(name)): _storable_value(one, depth + 1) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_storable_value(one, depth + 1) for one in value]
    return value
