"""Which messages are new to reflection; daily limits; counters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil
from typing import Any, Self
from uuid import UUID

from bot import Content, Entity, Memory, MemoryKind, Turn, derived_id, short_id
from bot.prompts import HistoryLine, render_history
from bot.text import is_blank


@dataclass(frozen=True, slots=True, order=True)
class MessagePosition:
    """A place in a room's order of messages."""

    sent_at: datetime
    id: UUID

    @classmethod
    def of_message(cls, message: Memory) -> Self:
        """Give the place of a message."""
        return cls(message.created_at, message.id)

    @classmethod
    def parse(cls, text: Any) -> Self | None:
        """Read what `written` gave; None where there is nothing."""
        if not text:
            return None
        sent_at, component_id = text
        return cls(datetime.fromisoformat(sent_at), UUID(component_id))

    @property
    def to_text(self) -> list[str]:
        """Give it as JSON."""
        return [self.sent_at.isoformat(), str(self.id)]


async def seen_until(turn: Turn) -> MessagePosition | None:
    """Tell how far the turn's room has been looked at."""
    component_id = _marker_id(turn.room.id)
    component = await turn.agent.store.memories.memories([component_id])
    return (
        MessagePosition.parse(component[component_id].metadata.get("until"))
        if component_id in component
        else None
    )


def set_progress_marker(turn: Turn, position: MessagePosition) -> Memory:
    """Make the memory that tells how far the turn's room has been looked at."""
    return _build_component(turn, _marker_id(turn.room.id), turn.agent.id, {"until": position.to_text})


async def daily_fact_counts(turn: Turn, authors: set[UUID], day: str) -> dict[UUID, int]:
    """Count the facts that were learnt from people on a day, wherever they said them."""
    ids = {_count_id(author): author for author in authors}
    components = await turn.agent.store.memories.memories(ids)
    counts = {ids[component_id]: component.metadata for component_id, component in components.items()}
    return {
        author: int(author_id["count"]) for author, author_id in counts.items() if author_id.get("day") == day
    }


def count_facts(turn: Turn, author: UUID, day: str, count: int) -> Memory:
    """Make the memory that counts what was learnt from somebody on a day."""
    return _build_component(turn, _count_id(author), author, {"day": day, "count": count})


def _marker_id(room_id: UUID) -> UUID:
    return derived_id("reflection", room_id)


def _count_id(author: UUID) -> UUID:
    return derived_id("facts of a day", author)


def _build_component(turn: Turn, component_id: UUID, entity_id: UUID, metadata: Mapping[str, Any]) -> Memory:
    now = turn.agent.clock()
    source = (turn.room.id, turn.world.id)
    return Memory(component_id, MemoryKind.CUSTOM, entity_id, *source, Content(), now, metadata=metadata)


TALK_PAUSE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ReflectionInput:
    """The last messages of a room, of which the first `seen` were looked at before; numbers count from 1."""

    messages: tuple[Memory, ...]
    evaluated: int
    agent_id: UUID

    @property
    def new_messages(self) -> tuple[Memory, ...]:
        """The messages that nobody has looked at."""
        return self.messages[self.evaluated :]

    @property
    def user_messages(self) -> list[Memory]:
        """What others have said in the new messages."""
        return [
            message
            for message in self.new_messages
            if message.entity_id != self.agent_id and not is_blank(message.content.text)
        ]

    @property
    def last_position(self) -> MessagePosition:
        """How far the room is looked at with these."""
        return MessagePosition.of_message(self.messages[-1])

    def without_oldest_half(self) -> "ReflectionInput":
        """Leave out the older half of the messages."""
        half = len(self.messages) // 2
        return replace(self, messages=self.messages[half:], evaluated=max(0, self.evaluated - half))

    def by_number(self, number: int | None) -> Memory | None:
        """Find, by its number, a new message of somebody else."""
        if number is None or not 0 < number <= len(self.messages):
            return None
        message = self.messages[number - 1]
        return message if message in self.user_messages else None

    def is_due(self, length: int) -> bool:
        """Tell whether it is time: a quarter of a conversation is new, or a talk went on after a pause."""
        count = self.user_messages
        if len(count) >= is_enough(length):
            return True
        return len(count) > 1 and count[-1].created_at - count[-2].created_at >= TALK_PAUSE

    def to_text(self, people: Mapping[UUID, Entity], agent_name: str) -> str:
        """Write the messages for a prompt, each with its number, in lines that nobody can forge."""
        lines = (self._line(message, people, agent_name) for message in self.messages)
        return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))

    def _line(self, message: Memory, people: Mapping[UUID, Entity], agent_name: str) -> str:
        is_agent = message.entity_id == self.agent_id
        name_known = people.get(message.entity_id)
        name = agent_name if is_agent else name_known.name if name_known is not None else ""
        line = HistoryLine(
            message.created_at, name, short_id(message.entity_id), message.content.text, is_agent
        )
        return render_history([line]).splitlines()[-1]


def is_enough(length: int) -> int:
    """Tell how many new messages are worth a look: a quarter of a conversation."""
    return ceil(length / 4)


def get_conversation_length(turn: Turn) -> int:
    """Tell how many of a room's last messages the model is shown."""
    return int(turn.find_setting("CONVERSATION_LENGTH") or 20)


async def gather_input(turn: Turn) -> ReflectionInput:
    """Collect what the turn's room has to reflect upon."""
    messages = await turn.agent.store.memories.recent(turn.room.id, get_conversation_length(turn))
    position = await seen_until(turn)
    evaluated = sum(
        1 for message in messages if position is not None and MessagePosition.of_message(message) <= position
    )
    return ReflectionInput(tuple(messages), evaluated, turn.agent.id)


MAX_TRACKED_ROOMS = 10_000


@dataclass(slots=True)
class _Conversation:
    message_count: int
    last_at: datetime
    is_after_pause: bool = False


class MessageCounter:
    """Counts what others say, room by room, from the first time the books were asked about a room."""

    def __init__(self) -> None:
        self._conversations: dict[UUID, _Conversation] = {}

    def count(self, room_id: UUID, message_count: Sequence[Memory]) -> None:
        """Note what the books have found new in a room."""
        if message_count:
            self._store(room_id, _Conversation(len(message_count), message_count[-1].created_at))
        else:
            self._conversations.pop(room_id, None)

    def mark_evaluated(self, room_id: UUID, evaluated_count: Sequence[Memory]) -> None:
        """Note that these were looked at: new is what has been said since."""
        conversation = self._conversations.get(room_id)
        remaining = (
            max(0, conversation.message_count - len(evaluated_count)) if conversation is not None else 0
        )
        self._store(
            room_id,
            _Conversation(
                remaining,
                conversation.last_at if conversation is not None else evaluated_count[-1].created_at,
            ),
        )

    def add(self, message: Memory) -> None:
        """Count one more."""
        conversation = self._conversations.get(message.room_id)
        if conversation is not None:
            conversation.message_count += 1
            conversation.is_after_pause = (
                conversation.is_after_pause or message.created_at - conversation.last_at >= TALK_PAUSE
            )
            conversation.last_at = message.created_at

    def _store(self, room_id: UUID, conversation: _Conversation) -> None:
        if len(self._conversations) >= MAX_TRACKED_ROOMS:
            self._conversations.clear()
        self._conversations[room_id] = conversation

    def is_enough(self, room_id: UUID, length: int) -> bool | None:
        """Tell whether so much is new that it is worth a look; None where the books must be asked."""
        conversation = self._conversations.get(room_id)
        if conversation is None or (
            conversation.is_after_pause and conversation.message_count < is_enough(length)
        ):
            return None
        return conversation.message_count >= is_enough(length)
