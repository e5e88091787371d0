"""Calls of several callers that share a round trip: each gets its own result, and only failing ones fail."""

import asyncio
import random
import string
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from benchmarks.exchange import close_receipt, make_exchanges, mark_attempting, mark_sent
from benchmarks.server import StatementCounter
from bot import Outcome, derived_id, system_clock
from bot.platform import TaskSet
from bot.store import LeaseLost, StoreUnavailable, TurnCommit
from bot.store.sql.core.mapping import Row
from bot.store.sql.postgres.ledger_statements import CallBatcher
from bot.testing import make_message
from tests.store.sql.postgres.stores import open_store

AGENT = derived_id("agent", "Ada")
ROOMS = [f"room {number}" for number in range(20)]


class Doubling:
    """Doubles numbers; a batch with an unlucky number fails as a whole."""

    def __init__(self, unlucky: int = -1, error: Exception | None = None) -> None:
        self.batches: list[list[Any]] = []
        self._unlucky = unlucky
        self._error = error or ValueError("unlucky")
        self._tasks = TaskSet("doubling", logs_failures=False)
        self.batcher = CallBatcher[int](lambda call: call(None), self._execute, self._tasks)

    async def _execute(self, _: None, calls: Sequence[Row]) -> list[int]:
        numbers = [number for [number] in calls]
        self.batches.append(numbers)
        await asyncio.sleep(0)
        if self._unlucky in numbers:
            raise self._error
        return [2 * number for number in numbers]

    async def double(self, *numbers: int) -> list[Any]:
        calls = (self.batcher.call([number]) for number in numbers)
        return await asyncio.gather(*calls, return_exceptions=True)


async def test_calls_that_come_together_share_a_batch_and_each_gets_its_result() -> None:
    doubling = Doubling()
    assert await doubling.double(1, 2, 3) == [2, 4, 6]
    assert doubling.batches == [[1, 2, 3]]


async def test_only_failing_calls_of_a_batch_fail() -> None:
    doubling = Doubling(unlucky=2)
    first, second, third = await doubling.double(1, 2, 3)
    assert (first, third) == (2, 6)
    assert isinstance(second, ValueError)
    assert await doubling.double(4) == [8]


async def test_messages_keep_their_order_next_to_a_message_that_cannot_be_stored(postgres_url: str) -> None:
    async with open_store(postgres_url, AGENT) as store:
        ledger, now = store.ledger, system_clock()
        await ledger.receive([make_message("first", sent_at=now)], now)
        names = [str(number) for number in range(20)]
        refused = "".join(random.Random(1).choices(string.ascii_letters, k=20_000))  # too long for an index
        messages = [make_message("Hello", sent_at=now, message_id=name) for name in ("0", refused, *names[1:])]
        results = await asyncio.gather(*(ledger.receive([item], now) for item in messages), return_exceptions=True)
        assert [type(result) for result in results].count(list) == len(names)
        assert [receipt.key.message_id for receipt in reversed(await ledger.receipts(limit=len(names)))] == names


async def test_calls_are_not_repeated_singly_where_the_database_cannot_be_reached() -> None:
    doubling = Doubling(unlucky=2, error=StoreUnavailable("gone", cause="db_unreachable"))
    assert all(isinstance(result, StoreUnavailable) for result in await doubling.double(1, 2))
    assert doubling.batches == [[1, 2]]


async def test_a_cancelled_call_does_not_affect_the_others_of_its_batch() -> None:
    doubling = Doubling()
    cancelled = asyncio.ensure_future(doubling.batcher.call([1]))
    other = asyncio.ensure_future(doubling.batcher.call([2]))
    await asyncio.sleep(0)
    cancelled.cancel()
    assert await other == 4
    assert doubling.batches == [[2]]


@pytest.mark.long
async def test_messages_of_many_rooms_at_once_take_few_round_trips_and_none_gets_the_rows_of_another(
    postgres_url: str,
) -> None:
    with StatementCounter() as counter:
        async with open_store(postgres_url, AGENT) as store:
            ledger, now = store.ledger, system_clock()
            await ledger.receive([make_message("first", sent_at=now, room=room, author=room) for room in ROOMS], now)
            exchanges = make_exchanges(ROOMS, len(ROOMS))
            await asyncio.gather(*(ledger.receive([exchange.inbound], now) for exchange in exchanges))  # new people
            exchanges = make_exchanges(ROOMS, len(ROOMS))
            counter.reset()
            events = await asyncio.gather(*(ledger.receive([exchange.inbound], now) for exchange in exchanges))
            assert [event.receipt.key for [event] in events] == [exchange.inbound.key for exchange in exchanges]
            assert all(event.is_new for [event] in events)

            writes = counter.statements
            rooms = [exchange.inbound.room.id for exchange in exchanges]
            found = await asyncio.gather(*(store.memories.recent(room, 2) for room in rooms))
            assert [[memory.room_id for memory in recent] for recent in found] == [[room, room] for room in rooms]
            assert [recent[-1].id for recent in found] == [exchange.inbound.message.id for exchange in exchanges]

            counter.reset()
            await asyncio.gather(*(ledger.save_step(exchange.step) for exchange in exchanges))
            commits = [
                TurnCommit((exchange.reply,), (exchange.delivery,), (close_receipt(event.receipt, exchange),))
                for exchange, [event] in zip(exchanges, events, strict=True)
            ]
            stored = await asyncio.gather(*(ledger.commit(commit) for commit in commits))
            assert [delivery.id for [delivery] in stored] == [exchange.delivery.id for exchange in exchanges]
            saves = [
                ledger.save_delivery(mark_sent(mark_attempting(delivery, exchange)))
                for exchange, [delivery] in zip(exchanges, stored, strict=True)
            ]
            await asyncio.gather(*saves)
            assert writes + counter.statements < 4 * len(ROOMS) / 2
            receipts = await asyncio.gather(*(ledger.receipt(event.receipt.id) for [event] in events))
            assert {receipt.outcome for receipt in receipts if receipt is not None} == {Outcome.ANSWERED}
            assert await ledger.deliveries(is_open=True) == []


async def test_a_lost_lease_fails_only_the_commit_of_its_room(postgres_url: str) -> None:
    async with open_store(postgres_url, AGENT) as store:
        assert store.sharing is not None
        await store.sharing.join()
        first, second = make_exchanges(ROOMS[:2], 2)
        events = await store.ledger.receive([first.inbound, second.inbound], first.at)
        connection = await asyncpg.connect(postgres_url)
        await connection.execute("UPDATE room_leases SET owner = -1 WHERE room_id = $1", first.inbound.room.id.bytes)
        await connection.close()
        commits = [
            TurnCommit((exchange.reply,), (exchange.delivery,), (close_receipt(event.receipt, exchange),))
            for exchange, event in zip((first, second), events, strict=True)
        ]
        lost, stored = await asyncio.gather(*map(store.ledger.commit, commits), return_exceptions=True)
        assert isinstance(lost, LeaseLost)
        assert isinstance(stored, list)
        [unsent] = await store.ledger.deliveries()
        assert [unsent] == stored
        await store.sharing.leave()
