"""First messages of people and rooms on PostgreSQL: one statement, whichever process receives them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from uuid import UUID

import asyncpg  # type: ignore[import-untyped]  # it brings no types
import pytest

from benchmarks.server import StatementCounter
from bot import Outcome, system_clock
from bot.platform import InboundMessage
from bot.store import Store
from bot.testing import make_message
from tests.store.sql.postgres.stores import open_store

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


def written(author: str, room: str) -> InboundMessage:
    return make_message("Hello", sent_at=system_clock(), author=author, room=room)


@pytest.fixture
def counter() -> Iterator[StatementCounter]:
    """Yield a counter of the statements on all connections."""
    with StatementCounter() as counter:
        yield counter


@pytest.fixture
async def stores(postgres_url: str, counter: StatementCounter) -> AsyncIterator[tuple[Store, Store]]:
    """Yield the stores of two processes that share the work, in which Kim has written."""
    async with open_store(postgres_url) as first, open_store(postgres_url) as other:
        for store in (first, other):
            assert store.sharing is not None
            await store.sharing.join()
        await first.ledger.receive([written("Kim", "lobby")], system_clock())
        yield first, other
        for store in (first, other):
            assert store.sharing is not None
            await store.sharing.leave()


@pytest.mark.long
async def test_the_first_message_of_a_person_in_a_new_room_takes_a_single_statement(
    stores: tuple[Store, Store], counter: StatementCounter
) -> None:
    store, _ = stores
    first = written("Robin", "garden")
    counter.reset()
    [event] = await store.ledger.receive([first], system_clock())
    assert counter.statements == 1
    assert event.is_new
    assert event.is_room_owned
    assert event.receipt.outcome is Outcome.CLAIMED
    assert event.inbound is not None
    assert (event.inbound.author, event.inbound.room) == (first.author, first.room)
    assert await store.entities.entities([first.author.id]) == {first.author.id: first.author}
    assert (await store.worlds.rooms())[0] == first.room
    assert await store.entities.participants(first.room.id) == [first.author]


@pytest.mark.long
async def test_first_messages_that_two_processes_receive_at_once_are_stored_with_a_single_person_and_room(
    stores: tuple[Store, Store],
) -> None:
    people = [f"person {number}" for number in range(20)]
    received = await asyncio.gather(
        *(store.ledger.receive([written(name, "garden")], system_clock()) for store in stores for name in people)
    )
    assert all(event.is_new for [event] in received)
    owners = {store for store in stores if store.sharing is not None and store.sharing.owns_room(_room("garden"))}
    assert len(owners) == 1
    found = await stores[0].entities.participants(_room("garden"))
    assert sorted(entity.external_id for entity in found) == sorted(people)
    assert [room.external_id for room in await stores[1].worlds.rooms()] == ["garden", "lobby"]


async def test_messages_do_not_wait_for_a_transaction_that_holds_their_unchanged_world(
    stores: tuple[Store, Store], postgres_url: str
) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        async with connection.transaction(), asyncio.timeout(20):
            await connection.execute("SELECT FROM worlds FOR NO KEY UPDATE")
            together = [written("Robin", "garden"), written("Alex", "kitchen")]
            events = await stores[0].ledger.receive(together, system_clock())
    finally:
        await connection.close()
    assert [event.is_new for event in events] == [True, True]


@pytest.mark.parametrize("table", ["entities", "rooms"])
async def test_a_message_is_stored_while_its_author_or_room_is_erased(
    stores: tuple[Store, Store], postgres_url: str, table: str
) -> None:
    erasing, watching = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
    try:
        async with asyncio.timeout(20):
            async with erasing.transaction():
                message = written("Kim", "lobby")
                erased = message.author.id if table == "entities" else message.room.id
                await erasing.execute(f"DELETE FROM {table} WHERE id = $1", erased.bytes)
                receiving = asyncio.create_task(stores[0].ledger.receive([message], system_clock()))
                while not await watching.fetchval(WAITING):
                    pass  # it has found the row, and waits for the transaction
            [event] = await receiving
    finally:
        await erasing.close()
        await watching.close()
    assert event.is_new
    assert await stores[1].ledger.receipt(event.receipt.id) == event.receipt
    assert await stores[1].entities.participants(message.room.id) == [message.author]


def _room(name: str) -> UUID:
    return written("Kim", name).room.id
