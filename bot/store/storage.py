"""Where stores are kept: opened by one process, looked at by another, and looked after by a person."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from uuid import UUID

from bot.errors import ConfigError
from bot.settings import Settings
from bot.store.protocols import Schemas, Store

NO_SCHEMAS: Schemas = MappingProxyType({})

OpenStore = Callable[[UUID, Settings], AbstractAsyncContextManager[Store]]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a storage was found to be: facts to be shown, and problems, each with what to do about it.

    `place` is what a person calls it; it holds no password.
    """

    location: str
    exists: bool = True
    facts: Mapping[str, str | int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UpgradeResult:
    """From which version of the schema to which; None where there was nothing yet."""

    location: str
    old_version: str | None
    new_version: str


class Storage(ABC):
    """What a plugin keeps stores in; `open` is all it must have.

    Raises ConfigError where its settings are wrong, or what it holds cannot be used.
    """

    @abstractmethod
    def open(
        self, agent_id: UUID, settings: Settings, schemas: Schemas = NO_SCHEMAS
    ) -> AbstractAsyncContextManager[Store]:
        """Open one agent's store, with the tables of all plugins in this process.

        Raises StoreRefused where another process has it.
        """

    def is_shared(self, settings: Settings) -> bool:
        """Tell whether several processes may have it open at once."""
        return False

    def open_read_only(self, agent_id: UUID, settings: Settings) -> AbstractAsyncContextManager[Store]:
        """Open one agent's store for reading alone, beside a process that has it open."""
        raise _unsupported("be looked at from beside")

    async def check(self, settings: Settings) -> CheckReport:
        """Look whether all is well; nothing is made and nothing is changed."""
        raise _unsupported("be checked")

    async def upgrade(self, settings: Settings, schemas: Schemas = NO_SCHEMAS) -> UpgradeResult:
        """Bring the schema up to date; nothing else may have it open."""
        raise _unsupported("be upgraded")

    async def backup(self, settings: Settings, file: Path | None = None) -> Path:
        """Copy everything as it is at one moment, also while it is in use; gives the copy's file."""
        raise _unsupported("be backed up")


class SimpleStorage(Storage):
    """A storage that can be opened, and no more."""

    def __init__(self, open_store: OpenStore) -> None:
        self._open_store = open_store

    def open(
        self, agent_id: UUID, settings: Settings, schemas: Schemas = NO_SCHEMAS
    ) -> AbstractAsyncContextManager[Store]:
        """Open one agent's store; what plugins' tables it has is its own affair."""
        return self._open_store(agent_id, settings)


def _unsupported(operation: str) -> ConfigError:
    return ConfigError(
        f"what keeps this character's store cannot {operation}: its plugin does not offer that"
    )
