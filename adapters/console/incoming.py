"""Conversion of a line of input to an inbound message; pure."""

from datetime import datetime
from uuid import UUID

from bot import ChannelType, Content, Entity, Role, Room, World, derived_id, new_id
from bot.platform import CommandInvocation, InboundMessage
from bot.text import sanitize_name

PLATFORM = "console"


def build_inbound_message(
    text: str, *, agent_id: UUID, user: str, message_id: UUID, sent_at: datetime
) -> InboundMessage:
    """Return the inbound message for one line.

    The user of the terminal is the operator and so owns the world. The room has a fixed id, so that a stored
    conversation continues at the next start.
    """
    account = str(agent_id)
    name = sanitize_name(user)
    author = Entity(derived_id(PLATFORM, "entity", user), PLATFORM, user, (name,))
    world = World(derived_id(PLATFORM, "world", account), PLATFORM, account, "Terminal", {author.id: Role.OWNER})
    room = Room(
        id=derived_id(PLATFORM, "room", account, user),
        world_id=world.id,
        type=ChannelType.DM,
        platform=PLATFORM,
        external_id=user,
        account=account,
        name=f"Terminal of {name}",
        is_age_restricted=True,  # it is the operator's
    )
    content = Content(text=text, source=PLATFORM)
    return InboundMessage.build(
        world, room, author, content, created_at=sent_at, message_id=str(message_id), memory_id=message_id
    )


def build_command_invocation(line: str, *, agent_id: UUID, user: str, sent_at: datetime) -> CommandInvocation:
    """Return the command for one line that begins with a slash."""
    name, _, text = line[1:].partition(" ")
    context = build_inbound_message("", agent_id=agent_id, user=user, message_id=new_id(), sent_at=sent_at)
    return CommandInvocation(
        name, context.world, context.room, context.author, context.key.event_id, sent_at, text=text
    )
