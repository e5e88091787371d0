"""Giving commands on a stage, as an adapter would."""

from typing import Any

from bot.domain.environment import ChannelType, Role
from bot.domain.ids import new_id
from bot.domain.inbound import Asked, Pressed, Shown
from bot.testing import Stage, make_arrival


async def give(
    stage: Stage,
    name: str,
    *,
    author: str = "Alice",
    kind: ChannelType = ChannelType.GROUP,
    role: Role = Role.MEMBER,
    event_id: str = "",
    **details: Any,
) -> Shown:
    """Give a command; every call is another event unless it is named."""
    place = make_arrival("", at=stage.agent.clock(), author=author, kind=kind, role=role)
    asked = Asked(
        name,
        place.world,
        place.room,
        place.author,
        event_id or new_id().hex,
        stage.agent.clock(),
        **details,
    )
    return await stage.resident.door.command(asked)


async def press(
    stage: Stage, value: str, *, author: str = "Alice", role: Role = Role.MEMBER, room: str = "lobby"
) -> Shown:
    """Press a button in a group."""
    now = stage.agent.clock()
    place = make_arrival("", at=now, author=author, kind=ChannelType.GROUP, role=role, room=room)
    pressed = Pressed(place.world, place.room, place.author, value, new_id().hex, now)
    return await stage.resident.door.chosen(pressed)
