"""What exists as long as the bot lives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from bot.bus import EventBus
from bot.domain.character import Character
from bot.domain.clock import Clock, system_clock
from bot.domain.content import Content
from bot.domain.ids import derived_id, new_id
from bot.domain.memory import Memory, MemoryKind
from bot.domain.places import Room
from bot.domain.specs import Catalog
from bot.fetch.fetched import Fetch
from bot.models.router import ModelRouter
from bot.platform.outbox import Outbox
from bot.platform.packing import Outgoing
from bot.services import Services
from bot.settings import Settings
from bot.store.protocols import Store


@dataclass(frozen=True, slots=True)
class Agent:
    """One character at work, and everything it works with.

    `id` is also its entity: its own messages carry it. `templates` are prompt templates by name,
    the character's over the plugins' over the defaults.
    """

    id: UUID
    character: Character
    settings: Settings
    models: ModelRouter
    store: Store
    events: EventBus
    outbox: Outbox
    services: Services
    catalog: Catalog
    fetcher: Fetch
    templates: Mapping[str, str] = field(default_factory=dict)
    clock: Clock = system_clock

    @property
    def name(self) -> str:
        """The character's name."""
        return self.character.name

    async def say(self, room: Room, content: str | Content) -> Memory | None:
        """Say something in a room unasked: a reminder, a greeting, news.

        Kept and on its way when this returns; None where nothing was left to say.
        """
        if isinstance(content, str):
            content = Content(text=content)
        turn_id = new_id()
        memory = Memory(
            id=derived_id(turn_id, "reply", "0"),
            kind=MemoryKind.MESSAGE,
            entity_id=self.id,
            room_id=room.id,
            world_id=room.world_id,
            content=content,
            created_at=self.clock(),
            turn_id=turn_id,
        )
        kept = await self.outbox.commit([Outgoing(memory, room)])
        return kept[0] if kept else None
