"""A store that will never keep a message that says one thing."""

from collections.abc import Sequence
from datetime import datetime

from bot.domain.inbound import InboundMessage, StoredEvent, StreamCursor
from bot.store import InMemoryStore
from bot.store.sql.sqlite.memory import ALL_AGENTS
from bot.store.sql.stores.ledger import SqlLedger

REFUSED = "a word that no store takes"


class _FussyLedger(SqlLedger):
    async def receive(
        self, messages: Sequence[InboundMessage], now: datetime, cursor: StreamCursor | None = None
    ) -> list[StoredEvent]:
        if any(REFUSED in message.message.content.text for message in messages):
            raise ValueError(REFUSED)
        return await super().receive(messages, now, cursor)


def fussy_store() -> InMemoryStore:
    """Make one."""
    store = InMemoryStore()
    store.ledger = _FussyLedger(store.database, ALL_AGENTS)
    return store
