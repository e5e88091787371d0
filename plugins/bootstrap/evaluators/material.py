"""What there is to reflect upon: the last messages of a room, from where on they are new."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from math import ceil
from uuid import UUID

from bot import Entity, Line, Memory, Turn, is_blank, render_history, short_id
from plugins.bootstrap.evaluators.notes import Place, seen_until

PAUSE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Material:
    """The last messages of a room, of which the first `seen` were looked at before; numbers count from 1."""

    messages: tuple[Memory, ...]
    seen: int
    agent_id: UUID

    @property
    def new(self) -> tuple[Memory, ...]:
        """The messages that nobody has looked at."""
        return self.messages[self.seen :]

    @property
    def said(self) -> list[Memory]:
        """What others have said in the new messages."""
        return [one for one in self.new if one.entity_id != self.agent_id and not is_blank(one.content.text)]

    @property
    def end(self) -> Place:
        """How far the room is looked at with these."""
        return Place.of(self.messages[-1])

    def newest_half(self) -> "Material":
        """Leave out the older half of the messages."""
        half = len(self.messages) // 2
        return replace(self, messages=self.messages[half:], seen=max(0, self.seen - half))

    def numbered(self, number: int | None) -> Memory | None:
        """Find, by its number, a new message of somebody else."""
        if number is None or not 0 < number <= len(self.messages):
            return None
        message = self.messages[number - 1]
        return message if message in self.said else None

    def is_due(self, length: int) -> bool:
        """Tell whether it is time: a quarter of a conversation is new, or a talk went on after a pause."""
        said = self.said
        if len(said) >= enough(length):
            return True
        return len(said) > 1 and said[-1].created_at - said[-2].created_at >= PAUSE

    def shown(self, people: Mapping[UUID, Entity], agent_name: str) -> str:
        """Write the messages for a prompt, each with its number, in lines that nobody can forge."""
        lines = (self._line(message, people, agent_name) for message in self.messages)
        return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))

    def _line(self, message: Memory, people: Mapping[UUID, Entity], agent_name: str) -> str:
        is_agent = message.entity_id == self.agent_id
        known = people.get(message.entity_id)
        name = agent_name if is_agent else known.name if known is not None else ""
        line = Line(message.created_at, name, short_id(message.entity_id), message.content.text, is_agent)
        return render_history([line]).splitlines()[-1]


def enough(length: int) -> int:
    """Tell how many new messages are worth a look: a quarter of a conversation."""
    return ceil(length / 4)


def conversation_length(turn: Turn) -> int:
    """Tell how many of a room's last messages the model is shown."""
    return int(turn.setting("CONVERSATION_LENGTH") or 20)


async def gathered(turn: Turn) -> Material:
    """Collect what the turn's room has to reflect upon."""
    messages = await turn.agent.store.memories.recent(turn.room.id, conversation_length(turn))
    until = await seen_until(turn)
    seen = sum(1 for one in messages if until is not None and Place.of(one) <= until)
    return Material(tuple(messages), seen, turn.agent.id)
