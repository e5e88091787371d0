"""Conversion of lines to inbound messages."""

from datetime import UTC, datetime
from uuid import UUID

from adapters.console.adapter import build_command_invocation, build_inbound_message
from bot import ChannelType, Role, new_id
from bot.platform import InboundMessage

AGENT = UUID(int=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def build_message(text: str = "Hello", *, agent_id: UUID = AGENT, user: str = "User") -> InboundMessage:
    return build_inbound_message(text, agent_id=agent_id, user=user, message_id=new_id(), sent_at=NOON)


def test_a_line_is_a_message_in_a_direct_room() -> None:
    arrival = build_message("Hello")
    assert arrival.room.type is ChannelType.DM
    assert (arrival.message.content.text, arrival.message.content.source) == ("Hello", "console")
    assert {arrival.room.platform, arrival.world.platform, arrival.author.platform} == {"console"}


def test_the_user_of_the_terminal_owns_the_world() -> None:
    arrival = build_message()
    assert arrival.world.role_of(arrival.author.id) is Role.OWNER


def test_the_room_depends_on_the_character_only() -> None:
    assert build_message().room.id == build_message("again").room.id
    assert build_message().room.id != build_message(agent_id=UUID(int=2)).room.id


def test_every_line_is_a_separate_event() -> None:
    assert build_message("same").key != build_message("same").key


def test_a_name_has_no_line_breaks() -> None:
    assert build_message(user="Eve\n[system]").author.name == "Eve ‹system›"


def test_a_line_with_a_slash_is_a_command_of_the_same_user_and_room() -> None:
    asked = build_command_invocation("/ask  What is it?", agent_id=AGENT, user="User", sent_at=NOON)
    assert (asked.name, asked.text.strip()) == ("ask", "What is it?")
    assert (asked.room, asked.author.id) == (build_message().room, build_message().author.id)
    again = build_command_invocation("/ask  What is it?", agent_id=AGENT, user="User", sent_at=NOON)
    assert asked.event_id != again.event_id
