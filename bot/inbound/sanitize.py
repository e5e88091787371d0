"""What is done to an event before it is kept: nothing hostile goes further than here."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from bot.domain.content import Attachment, Content
from bot.domain.edits import Reaction
from bot.domain.environment import Entity, Room, World
from bot.domain.inbound import MOST_PEOPLE, MOST_ROOMS, Arrival, Notice
from bot.domain.ledger import EventKey
from bot.domain.memory import Memory
from bot.text import is_storable, tidy, unseen_share

LONGEST_TEXT = 65_536
MOST_ATTACHMENTS = 10
LONGEST_NAME = 200
MOST_NESTED = 20
FUTURE = timedelta(minutes=1)
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)  # no platform of ours is older: such a time is none
MOST_UNSEEN = 0.2
SAID_AT = "said_at"  # the time that a platform gave, where it cannot be
T = TypeVar("T", World, Room, Entity, Memory, Content, EventKey)


def tidied(arrival: Arrival, now: datetime) -> Arrival:
    """Bound an event: text that every database takes, few attachments, a time that there can have been.

    Ids and addresses are not cut, but lose what no database takes as well; metadata likewise. Its notes say
    what that has changed of the message.
    """
    key, message = arrival.key, _tidied_message(arrival.message, now)
    return Arrival(
        key=_with(key, event_id=tidied_id(key.event_id), message_id=tidied_id(key.message_id)),
        world=tidied_world(arrival.world),
        room=tidied_room(arrival.room),
        author=tidied_person(arrival.author),
        message=message,
        is_backfill=arrival.is_backfill,
        notes=tuple(_notes(arrival.message, message)),
    )


def tidied_world(world: World) -> World:
    """Bound what is said of a world."""
    return _with(
        world,
        external_id=tidied_id(world.external_id),
        name=tidy(world.name, LONGEST_NAME),
        metadata=_storable(world.metadata),
    )


def tidied_room(room: Room) -> Room:
    """Bound what is said of a room."""
    return _with(
        room,
        external_id=tidied_id(room.external_id),
        name=tidy(room.name, LONGEST_NAME),
        metadata=_storable(room.metadata),
    )


def tidied_person(person: Entity) -> Entity:
    """Bound what is said of somebody."""
    return _with(
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
        sign=tidied_sign(reaction.sign),
        created_at=_possible(reaction.created_at, now),
    )


def tidied_sign(text: str) -> str:
    """Bound what somebody has put on a message."""
    return tidy(text, LONGEST_NAME)


def tidied_id(text: str) -> str:
    """Take out of an id what no database takes."""
    return tidy(text, len(text))


def _tidied_message(message: Memory, now: datetime) -> Memory:
    """Bound a message, and put it where it belongs in its room; the platform's own time stays beside it."""
    at, metadata = _possible(message.created_at, now), _storable(message.metadata)
    if at != message.created_at:
        metadata[SAID_AT] = message.created_at.isoformat()
    return _with(
        message,
        external_id=tidied_id(message.external_id),
        content=_tidied(message.content),
        created_at=at,
        metadata=metadata,
    )


def _possible(at: datetime, now: datetime) -> datetime:
    return now if at < EARLIEST else min(at, now + FUTURE)


def _notes(given: Memory, kept: Memory) -> Iterator[str]:
    """Say what of a message could not stay as it was, and what of it nobody can see."""
    text, attachments = given.content.text, given.content.attachments
    if not is_storable(text):
        yield "its text held what is no character; that was taken out"
    if len(text) > LONGEST_TEXT:
        yield f"its text of {len(text)} characters was cut to {LONGEST_TEXT}"
    if (share := unseen_share(kept.content.text)) > MOST_UNSEEN:
        yield f"{share:.0%} of its text cannot be seen"
    if len(attachments) > MOST_ATTACHMENTS:
        yield f"it came with {len(attachments)} attachments; the first {MOST_ATTACHMENTS} were kept"
    if given.created_at != kept.created_at:
        yield f"the time it came with cannot be: {given.created_at.isoformat()}"


def _tidied(content: Content) -> Content:
    kept = content.attachments[:MOST_ATTACHMENTS]
    return _with(
        content,
        text=tidy(content.text, LONGEST_TEXT),
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


def _with(one: T, **bounded: Any) -> T:
    """Give it these values; nearly always it has them already, and is left as it is."""
    is_so = all(getattr(one, name) == value for name, value in bounded.items())
    return one if is_so else replace(one, **bounded)


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
