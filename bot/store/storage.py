"""Storages: where stores are; opening, inspecting, checking, upgrading and backing them up."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from uuid import UUID

from bot.errors import ConfigError
from bot.settings import Settings
from bot.store.protocols import Schemas, Store

NO_SCHEMAS: Schemas = MappingProxyType({})

OpenStore = Callable[[UUID, Settings], AbstractAsyncContextManager[Store]]
# Called with a step, what is done of it and the total, in any unit (0: unknown). It may raise to end the work.
ProgressListener = Callable[[str, int, int], None]
_progress_listener: ContextVar[ProgressListener | None] = ContextVar("progress_listener", default=None)


def report_progress(step: str, done: int = 0, total: int = 0) -> None:
    """Report how far the long work of a storage is, to the listener of this context."""
    if (listener := _progress_listener.get()) is not None:
        listener(step, done, total)


@contextmanager
def listen_to_progress(listener: ProgressListener) -> Iterator[None]:
    """Call `listener` with the progress of the storage's work within the block; threads may call it."""
    token = _progress_listener.set(listener)
    try:
        yield
    finally:
        _progress_listener.reset(token)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of checking a storage or an account: facts to print, and problems, each with its remedy.

    With `warnings` it works, though something should be changed.

    `location` is the name an operator knows it by; it contains no password.
    """

    location: str
    exists: bool = True
    facts: Mapping[str, str | int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UpgradeResult:
    """The schema versions before and after an upgrade; `old_version` is None for a new storage.

    With `is_newer` the schema is that of newer code with which this code can work, and was left as it is.
    """

    location: str
    old_version: str | None
    new_version: str
    is_newer: bool = False


class Storage(ABC):
    """Where a plugin stores data; only `open` is required.

    Raises ConfigError if its settings are wrong, or its data cannot be used.
    """

    @abstractmethod
    def open(
        self, agent_id: UUID, settings: Settings, schemas: Schemas = NO_SCHEMAS
    ) -> AbstractAsyncContextManager[Store]:
        """Open the store of one agent, with the tables of all plugins in this process.

        Raises StoreInaccessible if another process uses it.
        """

    def is_shared(self, settings: Settings) -> bool:
        """Return whether several processes may open it at the same time."""
        return False

    def open_read_only(self, agent_id: UUID, settings: Settings) -> AbstractAsyncContextManager[Store]:
        """Open the store of one agent for reading, while another process may have it open."""
        raise _unsupported("be read while another process uses it")

    async def check(self, settings: Settings) -> CheckReport:
        """Check the storage without creating or changing anything."""
        raise _unsupported("be checked")

    async def upgrade(self, settings: Settings, schemas: Schemas = NO_SCHEMAS) -> UpgradeResult:
        """Upgrade the schema; nothing else may have the storage open."""
        raise _unsupported("be upgraded")

    async def backup(self, settings: Settings, file: Path | None = None) -> Path:
        """Copy a consistent snapshot, also while the storage is in use; return the file of the copy."""
        raise _unsupported("be backed up")

    def backup_name(self, settings: Settings) -> str:
        """Return the file name of scheduled copies, without their time; empty where `backup` is not supported."""
        return ""

    async def restore(self, settings: Settings, file: Path) -> Path | None:
        """Replace the storage, which nothing may have open, by a copy that is verified first.

        Return where the previous data is kept; None if there was none.
        """
        raise _unsupported("be restored")

    async def repair(self, settings: Settings, schemas: Schemas = NO_SCHEMAS) -> tuple[Path, Mapping[str, int]]:
        """Copy what can be read of a damaged storage; return the copy and the number of lost rows by table."""
        raise _unsupported("be repaired")


class SimpleStorage(Storage):
    """A storage made of a function that opens stores; it supports nothing else."""

    def __init__(self, open_store: OpenStore) -> None:
        self._open_store = open_store

    def open(
        self, agent_id: UUID, settings: Settings, schemas: Schemas = NO_SCHEMAS
    ) -> AbstractAsyncContextManager[Store]:
        """Open the store of one agent; `schemas` are ignored."""
        return self._open_store(agent_id, settings)


def _unsupported(operation: str) -> ConfigError:
    return ConfigError(f"the storage of this character cannot {operation}: its plugin does not support that")
