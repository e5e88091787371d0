"""What is done to an event before it is kept: nothing hostile goes further than here."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from bot.domain.arrival import Arrival
from bot.domain.changes import Reaction
from bot.domain.content import Attachment, Content
from bot.domain.news import MOST_PEOPLE, MOST_ROOMS, Notice
from bot.domain.people import Entity
from bot.domain.places import Room, World
from bot.text import tidy

MOST_ATTACHMENTS = 10
LONGEST_NAME = 200
MOST_NESTED = 20
FUTURE = timedelta(minutes=1)


def tidied(arrival: Arrival, now: datetime) -> Arrival:
    """Bound an event: text that every database takes, few attachments, a time that is not in the future.

    Ids and addresses are not cut, but lose what no database takes as well; metadata likewise.
    """
    key, message = arrival.key, arrival.message
    return Arrival(
        key=replace(key, event_id=tidied_id(key.event_id), message_id=tidied_id(key.message_id)),
        world=tidied_world(arrival.world),
        room=tidied_room(arrival.room),
        author=tidied_person(arrival.author),
        message=replace(
            message,
            external_id=tidied_id(message.external_id),
            content=_tidied(message.content),
            created_at=min(message.created_at, now + FUTURE),
            metadata=_storable(message.metadata),
        ),
        is_backfill=arrival.is_backfill,
    )


def tidied_world(world: World) -> World:
    """Bound what is said of a world."""
    return replace(
        world,
        external_id=tidied_id(world.external_id),
        name=tidy(world.name, LONGEST_NAME),
        metadata=_storable(world.metadata),
    )


def tidied_room(room: Room) -> Room:
    """Bound what is said of a room."""
    return replace(
        room,
        external_id=tidied_id(room.external_id),
        name=tidy(room.name, LONGEST_NAME),
        metadata=_storable(room.metadata),
    )


def tidied_person(person: Entity) -> Entity:
    """Bound what is said of somebody."""
    return replace(
        person,
        external_id=tidied_id(person.external_id),
        names=tuple(tidy(name, LONGEST_NAME) for name in person.names),
        metadata=_storable(person.metadata),
    )


def tidied_notice(notice: Notice) -> Notice:
    """Bound what is told of a world: so many rooms and people, the first of them, each of them once."""
    rooms = {room.id: tidied_room(room) for room in notice.rooms[:MOST_ROOMS]}
    people = {one.id: tidied_person(one) for one in notice.people[:MOST_PEOPLE]}
    return replace(
        notice,
        world=tidied_world(notice.world),
        rooms=tuple(rooms.values()),
        people=tuple(people.values()),
        event_id=tidied_id(notice.event_id),
    )


def tidied_reaction(reaction: Reaction, now: datetime) -> Reaction:
    """Bound a reaction likewise; its sign is a name."""
    return Reaction(
        world=tidied_world(reaction.world),
        room=tidied_room(reaction.room),
        author=tidied_person(reaction.author),
        message_id=tidied_id(reaction.message_id),
        sign=tidy(reaction.sign, LONGEST_NAME),
        created_at=min(reaction.created_at, now + FUTURE),
    )


def tidied_id(text: str) -> str:
    """Take out of an id what no database takes."""
    return tidy(text, len(text))


def _tidied(content: Content) -> Content:
    kept = content.attachments[:MOST_ATTACHMENTS]
    return replace(
        content,
        text=tidy(content.text),
        url=tidied_id(content.url),
        source=tidy(content.source, LONGEST_NAME),
        attachments=tuple(_named(attachment) for attachment in kept),
        metadata=_storable(content.metadata),
    )


def _named(attachment: Attachment) -> Attachment:
    return replace(
        attachment,
        id=tidied_id(attachment.id),
        url=tidied_id(attachment.url),
        content_type=tidy(attachment.content_type, LONGEST_NAME),
        name=tidy(attachment.name, LONGEST_NAME),
        title=tidy(attachment.title, LONGEST_NAME),
        text=tidy(attachment.text),
        description=tidy(attachment.description),
    )


def _storable(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {tidied_id(name): _storable_value(value) for name, value in metadata.items()}


def _storable_value(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        return tidy(value)
    if depth >= MOST_NESTED:
        return None
    if isinstance(value, Mapping):
        return {tidied_id(str(name)): _storable_value(one, depth + 1) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_storable_value(one, depth + 1) for one in value]
    return value
