"""From a frame to what is asked of the bot itself, by a command or a choice that was pressed; pure."""

from datetime import datetime
from uuid import UUID

from adapters.web.frames import Give, Hello, Press
from adapters.web.incoming import PAGE, Said, message_received
from bot import Arrival, Asked, ChannelType, Pressed, new_id


def command_given(hello: Hello, frame: Give, *, agent_id: UUID, at: datetime) -> Asked:
    """Take a command from the line in which it was written."""
    place = _place(hello, frame, agent_id, at)
    name, *rest = frame.text.removeprefix("/").split(None, 1) or [""]
    return Asked(
        name, place.world, place.room, place.author, place.key.event_id, at, text="".join(rest).strip()
    )


def choice_pressed(hello: Hello, frame: Press, *, agent_id: UUID, at: datetime) -> Pressed:
    """Take the value of a button."""
    place = _place(hello, frame, agent_id, at)
    return Pressed(place.world, place.room, place.author, frame.value, place.key.event_id, at)


def _place(hello: Hello, frame: Give | Press, agent_id: UUID, at: datetime) -> Arrival:
    """Find who asks, and where; what another person's client calls by the same name is another event."""
    key = f"{frame.client_id}:{hello.user}"
    said = Said("", hello.room, hello.user, ChannelType.DM, PAGE, key)
    return message_received(said, agent_id=agent_id, message_id=new_id(), at=at)
