"""Track which messages reflection has evaluated, and how many facts were stored per day."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Any, Self
from uuid import UUID

from bot import Content, Entity, Memory, MemoryKind, Turn, derived_id, short_id
from bot.prompts import ANYBODY, AUTHORS_KEY, HistoryLine, is_all_own, render_history
from bot.text import is_blank


@dataclass(frozen=True, slots=True, order=True)
class MessagePosition:
    """A position in a room's order of messages."""

    sent_at: datetime
    id: UUID

    @classmethod
    def of_message(cls, message: Memory) -> Self:
        """Return the position of a message."""
        return cls(message.created_at, message.id)

    @classmethod
    def parse(cls, text: Any) -> Self | None:
        """Parse what `to_json` returned; None for an empty value."""
        if not text:
            return None
        sent_at, message_id = text
        return cls(datetime.fromisoformat(sent_at), UUID(message_id))

    @property
    def to_json(self) -> list[str]:
        """The position as JSON values."""
        return [self.sent_at.isoformat(), str(self.id)]


def count_until(messages: Sequence[Memory], position: MessagePosition | None) -> int:
    """Return how many of a room's last messages had arrived at a position.

    If its message is not among them, it was deleted or is older than all of them: then their times tell.
    """
    if position is None:
        return 0
    ids = [message.id for message in messages]
    if position.id in ids:
        return ids.index(position.id) + 1
    return sum(MessagePosition.of_message(message) <= position for message in messages)


async def seen_until(turn: Turn) -> MessagePosition | None:
    """Return the position up to which the room has been evaluated; None if it was not."""
    marker_id = _marker_id(turn.room.id)
    marker = (await turn.agent.store.memories.memories([marker_id])).get(marker_id)
    return MessagePosition.parse(marker.metadata.get("until")) if marker is not None else None


def build_progress_marker(turn: Turn, position: MessagePosition) -> Memory:
    """Return the memory that stores up to which position the room has been evaluated."""
    return _build_memory(turn, _marker_id(turn.room.id), turn.agent.id, {"until": position.to_json})


async def daily_fact_counts(turn: Turn, authors: set[UUID], day: str) -> dict[UUID, int]:
    """Return how many facts of these authors were stored on a day, over all rooms."""
    ids = {_count_id(author): author for author in authors}
    memories = await turn.agent.store.memories.memories(ids)
    return {
        ids[memory_id]: int(memory.metadata["count"])
        for memory_id, memory in memories.items()
        if memory.metadata.get("day") == day
    }


def build_daily_count(turn: Turn, author: UUID, day: str, count: int) -> Memory:
    """Return the memory that stores the number of an author's facts on a day."""
    return _build_memory(turn, _count_id(author), author, {"day": day, "count": count})


def _marker_id(room_id: UUID) -> UUID:
    return derived_id("reflection", room_id)


def _count_id(author: UUID) -> UUID:
    return derived_id("facts of a day", author)


def _build_memory(turn: Turn, memory_id: UUID, entity_id: UUID, metadata: Mapping[str, Any]) -> Memory:
    now, place = turn.agent.clock(), (turn.room.id, turn.world.id)
    return Memory(memory_id, MemoryKind.CUSTOM, entity_id, *place, Content(), now, metadata=metadata)


@dataclass(frozen=True, slots=True)
class ReflectionInput:
    """The last messages of a room, of which the first `evaluated` are not new; numbers count from 1."""

    messages: tuple[Memory, ...]
    evaluated: int
    agent_id: UUID

    @property
    def new_messages(self) -> tuple[Memory, ...]:
        """The messages that have not been evaluated."""
        return self.messages[self.evaluated :]

    @property
    def user_messages(self) -> list[Memory]:
        """The new messages of users that have a text."""
        return [
            message
            for message in self.new_messages
            if message.entity_id != self.agent_id and not is_blank(message.content.text)
        ]

    @property
    def authors(self) -> list[UUID]:
        """Who wrote the messages, the agent apart; ANYBODY among them where parts are by others, or it spoke itself."""
        authors = {message.entity_id for message in self.messages} - {self.agent_id}
        has_unknown = any(_has_unknown_author(message, self.agent_id) for message in self.messages)
        return [*sorted(authors), *([ANYBODY] if has_unknown else [])]

    @property
    def last_position(self) -> MessagePosition:
        """The position of the last message."""
        return MessagePosition.of_message(self.messages[-1])

    def without_oldest_half(self) -> "ReflectionInput":
        """Return the input with the newer half of the messages."""
        half = len(self.messages) // 2
        return replace(self, messages=self.messages[half:], evaluated=max(0, self.evaluated - half))

    def by_number(self, number: int | None) -> Memory | None:
        """Return the new user message with this number; None if there is none."""
        if number is None or not 0 < number <= len(self.messages):
            return None
        message = self.messages[number - 1]
        return message if message in self.user_messages else None

    def to_text(self, people: Mapping[UUID, Entity], agent_name: str, zone: tzinfo) -> str:
        """Return the numbered messages for a prompt, escaped so that no message can imitate a line."""
        lines = (self._line(message, people, agent_name, zone) for message in self.messages)
        return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))

    def _line(self, message: Memory, people: Mapping[UUID, Entity], agent_name: str, zone: tzinfo) -> str:
        is_agent = message.entity_id == self.agent_id
        author = people.get(message.entity_id)
        name = agent_name if is_agent else author.name if author is not None else ""
        line = HistoryLine(message.created_at, name, short_id(message.entity_id), message.content.text, is_agent)
        return render_history([line], zone).splitlines()[-1]


def _has_unknown_author(message: Memory, agent_id: UUID) -> bool:
    if message.entity_id == agent_id:
        return AUTHORS_KEY in message.metadata or message.content.in_reply_to is None
    return not is_all_own(message.content)


async def gather_input(turn: Turn) -> ReflectionInput:
    """Return the room's last messages and how many of them were evaluated."""
    messages = await turn.agent.store.memories.recent(turn.room.id, turn.conversation_length)
    evaluated = count_until(messages, await seen_until(turn))
    return ReflectionInput(tuple(messages), evaluated, turn.agent.id)
