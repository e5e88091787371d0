"""What is done to an event before it is kept: nothing hostile goes further than here."""

from dataclasses import replace
from datetime import datetime, timedelta

from bot.domain.arrival import Arrival
from bot.domain.content import Attachment, Content
from bot.text import tidy

MOST_ATTACHMENTS = 10
LONGEST_NAME = 200
FUTURE = timedelta(minutes=1)


def tidied(arrival: Arrival, now: datetime) -> Arrival:
    """Bound an event: text that every database takes, few attachments, a time that is not in the future."""
    message = arrival.message
    at = min(message.created_at, now + FUTURE)
    return replace(
        arrival,
        world=replace(arrival.world, name=tidy(arrival.world.name, LONGEST_NAME)),
        room=replace(arrival.room, name=tidy(arrival.room.name, LONGEST_NAME)),
        author=replace(
            arrival.author, names=tuple(tidy(name, LONGEST_NAME) for name in arrival.author.names)
        ),
        message=replace(message, content=_tidied(message.content), created_at=at),
    )


def _tidied(content: Content) -> Content:
    kept = content.attachments[:MOST_ATTACHMENTS]
    return replace(
        content,
        text=tidy(content.text),
        attachments=tuple(_named(attachment) for attachment in kept),
    )


def _named(attachment: Attachment) -> Attachment:
    return replace(
        attachment,
        name=tidy(attachment.name, LONGEST_NAME),
        title=tidy(attachment.title, LONGEST_NAME),
        text=tidy(attachment.text),
        description=tidy(attachment.description),
    )
