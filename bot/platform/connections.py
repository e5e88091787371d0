"""What connects an agent to platforms: the agent's side of a door, and the description of an adapter."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from bot.bus import EventBus
from bot.domain.character import Character
from bot.domain.specs import Catalog
from bot.platform.adapter import Adapter
from bot.platform.changes import Changes
from bot.platform.inbox import Inbox
from bot.platform.records import Records
from bot.platform.routes import BoundRoute
from bot.platform.unsent import Unsent
from bot.settings import Settings, SettingsModel


@dataclass(frozen=True, slots=True)
class Door:
    """All an adapter gets of an agent: where to put messages and changes, and what it may show."""

    agent_id: UUID
    character: Character
    settings: Settings
    inbox: Inbox
    changes: Changes
    records: Records
    unsent: Unsent
    events: EventBus
    catalog: Catalog
    routes: tuple[BoundRoute, ...] = ()


@dataclass(frozen=True, slots=True)
class AdapterSpec:
    """An adapter that can be connected.

    It is off unless every variable in `needs` is set; `extra` names what to install for it.
    """

    name: str
    open: Callable[[Sequence[Door]], Adapter]
    settings: type[SettingsModel]
    needs: tuple[str, ...] = ()
    extra: str = ""
