"""Stores on PostgreSQL, as the processes that share a database open them."""

from contextlib import AbstractAsyncContextManager
from uuid import UUID

from bot import derived_id
from bot.store.sql.postgres.connection import parse_address
from bot.store.sql.postgres.storage import OpenServers
from bot.store.sql.stores.store import SqlStore

ADA = derived_id("agent", "Ada")


def open_store(url: str, agent_id: UUID = ADA) -> AbstractAsyncContextManager[SqlStore]:
    """Open the store of an agent, as another process would."""
    return OpenServers().open_store(parse_address(url, "the url"), agent_id)
