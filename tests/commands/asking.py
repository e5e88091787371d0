"""Gives commands to a harness, as an adapter would."""

from typing import Any

from bot.domain.environment import ChannelType, Role
from bot.domain.ids import new_id
from bot.domain.inbound import ChoiceSelection, CommandInvocation, CommandResponse
from bot.testing import AgentHarness, make_message


async def give(
    harness: AgentHarness,
    name: str,
    *,
    author: str = "Alice",
    kind: ChannelType = ChannelType.GROUP,
    role: Role = Role.MEMBER,
    event_id: str = "",
    **details: Any,
) -> CommandResponse:
    """Submit a command; every call is another event unless `event_id` is given."""
    place = make_message("", sent_at=harness.agent.clock(), author=author, kind=kind, role=role)
    asked = CommandInvocation(
        name, place.world, place.room, place.author, event_id or new_id().hex, harness.agent.clock(), **details
    )
    return await harness.agent_runtime.handle.run_command(asked)


async def press(
    harness: AgentHarness, value: str, *, author: str = "Alice", role: Role = Role.MEMBER, room: str = "lobby"
) -> CommandResponse:
    """Press a button in a group."""
    now = harness.agent.clock()
    place = make_message("", sent_at=now, author=author, kind=ChannelType.GROUP, role=role, room=room)
    pressed = ChoiceSelection(place.world, place.room, place.author, value, new_id().hex, now)
    return await harness.agent_runtime.handle.select_choice(pressed)
