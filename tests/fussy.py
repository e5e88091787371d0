"""A store that will never keep a message that says one thing."""

from collections.abc import Sequence
from datetime import datetime

from bot.domain.inbound import Arrival, Cursor, Received
from bot.store.inmemory.ledger import InMemoryLedger
from bot.store.inmemory.store import InMemoryStore

REFUSED = "a word that no store takes"


class _FussyLedger(InMemoryLedger):
    async def receive(
        self, arrivals: Sequence[Arrival], at: datetime, cursor: Cursor | None = None
    ) -> list[Received]:
        if any(REFUSED in one.message.content.text for one in arrivals):
            raise ValueError(REFUSED)
        return await super().receive(arrivals, at, cursor)


def fussy_store() -> InMemoryStore:
    """Make one."""
    store = InMemoryStore()
    store.ledger = _FussyLedger(store.worlds, store.entities, store.memories)
    return store
