"""What exists as long as the bot lives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from bot.bus import EventBus
from bot.domain.character import Character
from bot.domain.clock import Clock, system_clock
from bot.domain.specs import Catalog
from bot.fetch.fetched import Fetch
from bot.models.router import ModelRouter
from bot.platform.outbox import Outbox
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
