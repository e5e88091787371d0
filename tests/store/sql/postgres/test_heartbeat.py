"""The agents of a process are kept alive together; what a dead process held is taken over for each of them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg  # type: ignore[import-untyped]  # it brings no types
import pytest

from bot import derived_id, system_clock
from bot.store import Duty
from bot.store.sql.postgres import heartbeat
from bot.store.sql.postgres.connection import parse_address
from bot.store.sql.postgres.storage import OpenServers
from bot.testing import make_message

AGENTS = [derived_id("agent", name) for name in ("Ada", "Bea", "Cyd")]
DECLARE_DEAD = "UPDATE workers SET alive_until = 0 WHERE position = ANY($1)"


@pytest.fixture(autouse=True)
def renews_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "MIN_INTERVAL_SECONDS", 0.0)


@asynccontextmanager
async def process(url: str, agents: list[UUID]) -> AsyncIterator[list[Any]]:
    """Open the stores of several agents, as one process does, and join for each."""
    servers = OpenServers()
    async with AsyncExitStack() as stack:
        stores: list[Any] = [
            await stack.enter_async_context(servers.open_store(parse_address(url, "the url"), agent))
            for agent in agents
        ]
        for store in stores:
            await store.sharing.join()
        yield stores


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


def numbers_of(stores: list[Any]) -> list[int]:
    return [store.sharing.worker for store in stores]


async def test_a_single_connection_holds_the_locks_of_all_agents_of_a_process(
    postgres_url: str, connection: Any
) -> None:
    async with process(postgres_url, AGENTS) as stores:
        rows = await connection.fetch(
            "SELECT pid, count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = $1 GROUP BY pid",
            heartbeat.LOCK_CLASS,
        )
        assert [row["count"] for row in rows] == [len(AGENTS)]
        assert {store.sharing.agent_count for store in stores} == {len(AGENTS)}
        await stores[0].sharing.leave()
        assert await stores[1].sharing.heartbeat()
        assert stores[1].sharing.agent_count == len(AGENTS) - 1


@pytest.mark.long
async def test_the_rooms_of_each_agent_of_a_dead_process_are_taken_over(postgres_url: str, connection: Any) -> None:
    async with process(postgres_url, AGENTS) as dead, process(postgres_url, AGENTS) as alive:
        messages = [make_message("Hello", sent_at=system_clock(), room=f"room {n}") for n in range(2)]
        for store, message in zip(dead, messages, strict=False):  # the third has no room
            await store.ledger.receive([message], system_clock())
        await connection.execute(DECLARE_DEAD, numbers_of(dead))
        assert await alive[2].sharing.heartbeat()
        for store, message in zip(alive, messages, strict=False):
            assert store.sharing.owns_room(message.room.id)
            assert store.sharing.unsettled_rooms == {message.room.id}
        assert [await store.sharing.heartbeat() for store in dead] == [False] * len(AGENTS)


async def test_a_lease_that_was_locked_while_its_dead_owner_was_removed_can_be_taken(
    postgres_url: str, connection: Any
) -> None:
    async with process(postgres_url, AGENTS[:1]) as [dead], process(postgres_url, AGENTS[:1]) as [alive]:
        assert await dead.sharing.hold_lease(Duty.BACKUPS)
        await dead.sharing.share_leases("parts", 2)
        async with connection.transaction():
            await connection.execute("SELECT FROM room_leases FOR UPDATE")
            observer = await asyncpg.connect(postgres_url)
            await observer.execute(DECLARE_DEAD, numbers_of([dead]))
            assert await alive.sharing.heartbeat()
            assert await observer.fetchval("SELECT count(*) FROM workers") == 1
            await observer.close()
        assert await alive.sharing.hold_lease(Duty.BACKUPS)
        assert await alive.sharing.share_leases("parts", 2) == {0, 1}


async def test_a_lease_of_a_living_process_is_not_taken(postgres_url: str) -> None:
    async with process(postgres_url, AGENTS[:1]) as [first], process(postgres_url, AGENTS[:1]) as [second]:
        assert await second.sharing.hold_lease(Duty.BACKUPS)
        assert not await first.sharing.hold_lease(Duty.BACKUPS)
