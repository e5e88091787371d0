"""Repeated, late and changed events of X: FAILURES B and C."""

import asyncio

import pytest

from adapters.x import connection
from adapters.x.emulator import Emulator
from adapters.x.rate_limits import AccountState
from adapters.x.receiving import POSITION_KEY
from bot.platform import DeliveryUnknown, NotSent
from bot.store import InMemoryStore
from bot.testing import ManualClock
from tests.adapters.x.conftest import RunX
from tests.adapters.x.test_sending import QUIET, part_of


@pytest.mark.failure("B-02")
async def test_a_mention_read_again_after_29_days_is_recognised(
    run_x: RunX, emulator: Emulator, clock: ManualClock
) -> None:
    store = InMemoryStore(clock.now)
    async with run_x(store=store) as harness:
        emulator.say("bob", "@greenroom_bot hello")
        await harness.poll()
    clock.advance(29 * 86_400)
    async with run_x(store=store, **QUIET) as harness:
        notes = AccountState(harness.agent_runtime.handle.cursor, emulator.user_id, harness.agent_runtime.handle)
        await notes.write(POSITION_KEY, "0")  # as if nothing had been read
        await harness.account.receiver.poll()
        assert len(await harness.receipts()) == 1
    assert emulator.bot_texts == ["Noted."]


@pytest.mark.failure("B-04")
async def test_mentions_returned_newest_first_are_stored_in_order(run_x: RunX, emulator: Emulator) -> None:
    async with run_x() as harness:
        first = emulator.say("bob", "@greenroom_bot one")
        second = emulator.say("carol", "@greenroom_bot two", reply_to_id=first)
        await harness.poll()
        [room] = {receipt.room_id for receipt in (await harness.receipts()).values()}
        kept = await harness.agent.store.memories.recent(room, 10)
        assert [memory.external_id for memory in kept if memory.entity_id != harness.agent.id] == [first, second]


@pytest.mark.failure("B-14")
async def test_a_user_with_a_new_handle_is_the_same_entity(run_x: RunX, emulator: Emulator) -> None:
    async with run_x() as harness:
        emulator.say("bob", "@greenroom_bot hello")
        await harness.poll()
        bob = emulator.state.user_id_of("bob")
        emulator.state.usernames[bob] = "bobby"
        emulator.state.create_post(bob, "@greenroom_bot it is me")
        await harness.poll()
        [author] = {receipt.author_id for receipt in (await harness.receipts()).values()}
        known = await harness.agent.store.entities.entities([author])
        assert "bobby" in known[author].names


@pytest.mark.failure("C-07")
async def test_a_request_without_response_times_out(run_x: RunX, silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_TIMEOUT", 0.2)
    async with run_x(**QUIET, X_API_BASE_URL=silent) as harness:
        with pytest.raises(DeliveryUnknown):
            await harness.adapter.deliver(part_of(harness))


@pytest.mark.failure("C-13")
async def test_an_unreachable_proxy_means_not_sent(
    run_x: RunX, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = await asyncio.start_server(lambda *_: None, "127.0.0.1")
    port = closed.sockets[0].getsockname()[1]
    closed.close()
    await closed.wait_closed()
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
    for name in ("NO_PROXY", "no_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with run_x(**QUIET, X_API_BASE_URL="https://platform.example") as harness:
        with pytest.raises(NotSent, match="no connection"):
            await harness.adapter.deliver(part_of(harness))


@pytest.mark.failure("C-15")
async def test_an_account_that_is_cut_off_does_not_affect_others(run_x: RunX, emulator: Emulator, silent: str) -> None:
    async with run_x(**QUIET, X_API_BASE_URL=silent) as wedged, run_x() as harness:
        waiting = asyncio.get_running_loop().create_task(wedged.adapter.deliver(part_of(wedged)))
        emulator.say("bob", "@greenroom_bot hello")
        await harness.poll()
        assert emulator.bot_texts == ["Noted."]
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])
