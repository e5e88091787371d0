"""The event queue during a store outage."""

from dataclasses import replace
from typing import Any

import pytest

from adapters.discord import gateway
from adapters.discord.sharding import WHOLE_ACCOUNT
from bot import Outcome
from bot.store import InMemoryStore, StoreUnavailable
from tests.adapters.discord.server import LIMITS, EmulatedServer, outcomes, receipts

ROOM = 5
FEW = replace(LIMITS, max_queued_events=ROOM, queue_full_timeout=0.05)


class Failing:
    """A store that fails while `is_down`."""

    def __init__(self) -> None:
        self.store = InMemoryStore()
        self.is_down = False
        self._receive = self.store.ledger.receive
        self.store.ledger.receive = self._failing  # type: ignore[method-assign]  # what a full disk would do

    async def _failing(self, *args: Any) -> Any:
        if self.is_down:
            raise StoreUnavailable("the disk is full", cause="disk_full")
        return await self._receive(*args)


@pytest.mark.long
@pytest.mark.failure("I-02")
async def test_during_a_store_outage_reading_stops_at_the_queue_limit_and_nothing_is_lost(
    server: EmulatedServer, caplog: pytest.LogCaptureFixture
) -> None:
    people, ledger, failing = server.emulator.people, server.emulator.recorder, Failing()
    listen = {"DISCORD_LISTEN_CHANNEL_IDS": server.lobby}
    async with server.run_bot(store=failing.store, settings=listen, limits=FEW) as (harness, adapter):
        [account] = adapter.accounts
        failing.is_down = True
        for number in range(60):
            await people.say(server.lobby, server.kim, f"number {number}")
        await ledger.wait_until(lambda: ledger.counts["closed:4000"] > 0)
        for number in range(60, 80):
            await people.say(server.lobby, server.kim, f"number {number}")
        assert len(account.shards[WHOLE_ACCOUNT].receivers[0].queue) <= ROOM
        assert ledger.counts["resume"] == 0
        failing.is_down = False
        await people.say(server.direct(server.kim), server.kim, "all there?")
        await ledger.wait_for_texts(1)
        all_receipts = await receipts(harness)
    room_id = all_receipts[0].room_id
    kept = await failing.store.memories.recent(room_id, 100)
    assert [memory.content.text for memory in kept] == [f"number {number}" for number in range(80)]
    assert len(all_receipts) == 81
    assert ledger.counts["identify"] == 1
    assert ledger.counts["resume"] > 0
    warnings_logged = [record.getMessage() for record in caplog.records if record.name == gateway.__name__]
    assert warnings_logged[0].endswith("cannot be stored: reading pauses until they are")
    assert warnings_logged[1] == "all queued Discord events are stored: reading continues"


@pytest.mark.failure("I-02")
async def test_if_the_session_is_lost_meanwhile_unread_messages_are_fetched(server: EmulatedServer) -> None:
    people, ledger, failing = server.emulator.people, server.emulator.recorder, Failing()
    listen = {"DISCORD_LISTEN_CHANNEL_IDS": server.lobby}
    async with server.run_bot(store=failing.store, settings=listen, limits=FEW) as (harness, _):
        direct = server.direct(server.kim)
        await people.say(direct, server.kim, "first")
        await ledger.wait_for_texts(1)
        failing.is_down = True
        for number in range(ROOM + 5):
            await people.say(server.lobby, server.kim, f"number {number}")
        await ledger.wait_until(lambda: ledger.counts["closed:4000"] > 0)
        server.emulator.gateway.sessions.clear()
        await people.say(direct, server.kim, "all there?", is_announced=False)
        failing.is_down = False
        await ledger.wait_for_texts(2)
        assert await outcomes(harness) == [Outcome.ANSWERED, *[Outcome.IGNORED] * (ROOM + 5), Outcome.ANSWERED]
    assert ledger.counts["identify"] == 2
