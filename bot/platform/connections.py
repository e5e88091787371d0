"""What connects an agent to platforms: the agent's side of a door, and the description of an adapter."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from uuid import UUID

from bot.bus import EventBus
from bot.domain.character import Character
from bot.domain.component_specs import Catalog, CommandSpec
from bot.domain.inbound import Asked, Pressed, Shown
from bot.platform.adapter import Adapter
from bot.platform.changes import Changes
from bot.platform.inbox import Inbox
from bot.platform.link import Link
from bot.platform.news import News
from bot.platform.records import Records
from bot.platform.routes import BoundRoute
from bot.platform.rules import RoomRules
from bot.platform.unsent import Unsent
from bot.settings import Settings, SettingsModel
from bot.store.storage import Checkup

ReadCursor = Callable[[str, str, str], Awaitable[str | None]]
Check = Callable[[Settings, ReadCursor], Awaitable[Checkup]]


@dataclass(frozen=True, slots=True)
class Door:
    """All an adapter gets of an agent: where to put messages and whatever else happens, and what to show.

    `command` answers one of `commands`, what somebody asks of the bot itself; `chosen` a choice that was
    pressed. Both raise as the inbox does, and never for what a person did wrong. `links` gives how every
    account of the process stands with its platform, also those of other agents and adapters.
    """

    agent_id: UUID
    character: Character
    settings: Settings
    inbox: Inbox
    changes: Changes
    news: News
    records: Records
    unsent: Unsent
    events: EventBus
    catalog: Catalog
    rules: RoomRules
    commands: tuple[CommandSpec, ...]
    command: Callable[[Asked], Awaitable[Shown]]
    chosen: Callable[[Pressed], Awaitable[Shown]]
    routes: tuple[BoundRoute, ...] = ()
    links: Callable[[], Sequence[Link]] = tuple


@dataclass(frozen=True, slots=True)
class Trial:
    """A platform that is emulated on this machine: its page, and the variables of each character by name.

    They take the place of the character's own; a blank one only takes its own away.
    """

    url: str
    settings: Mapping[str, Mapping[str, str]]


Emulate = Callable[[Sequence[str]], AbstractAsyncContextManager[Trial]]


@dataclass(frozen=True, slots=True)
class AdapterSpec:
    """An adapter that can be connected.

    It is off unless every variable in `needs` is set; `extra` names what to install for it, which brings the
    modules `libraries`. `check` looks at the account behind an agent's settings, without a word to anybody;
    it is given what reads a cursor. Both it and `open` may be `Deferred`: then the libraries are loaded only
    where the platform is on. `emulator` is the module whose `emulated`, given the names of characters, puts
    the platform up on this machine; it is imported for `bot run --emulate` alone.
    """

    name: str
    open: Callable[[Sequence[Door]], Adapter]
    settings: type[SettingsModel]
    needs: tuple[str, ...] = ()
    extra: str = ""
    libraries: tuple[str, ...] = ()
    check: Check | None = None
    emulator: str = ""
