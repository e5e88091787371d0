"""Discord fails several times in a row: the reply arrives once."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from adapters.discord.emulator import Fault
from bot import system_clock
from bot.outbound import sender
from bot.platform import DeliveryState
from bot.store import InMemoryStore
from tests.adapters.discord.server import LIMITS, EmulatedServer

SAY, HISTORY, EDIT = r"POST .*/messages$", r"GET .*/messages$", r"PATCH .*/messages/"
FAILURES = 4
FAULTS: dict[str, dict[str, Any]] = {
    "502 before": {"status": 502},
    "502 after": {"status": 502, "is_late": True},
    "cut before": {},
    "cut after": {"is_late": True},
    "hanging": {"is_hanging": True},
}


@pytest.fixture(autouse=True)
def skip_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the next attempt at once."""
    monkeypatch.setattr(sender, "FIRST_DELAY_SECONDS", 0.0)


class SlowClock:
    """A clock that is `minutes` ahead from the moment it is set."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> Any:
        return system_clock() + self.ahead


@pytest.mark.parametrize("details", FAULTS.values(), ids=FAULTS)
async def test_a_reply_that_failed_four_times_arrives_once(server: EmulatedServer, details: dict[str, Any]) -> None:
    fault = Fault(SAY, times=FAILURES, **details)
    async with server.run_bot(limits=replace(LIMITS, request_timeout=0.3)) as (harness, _):
        server.emulator.faults.append(fault)
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await server.emulator.recorder.wait_until(lambda: not fault.times)
        await server.emulator.recorder.wait_for_texts(1)
        await harness.agent.outbox.drain(10)
        [part] = await harness.agent.store.ledger.deliveries()
    assert (part.state, part.external_id) == (DeliveryState.SENT, server.emulator.recorder.messages[0].id)
    assert server.emulator.recorder.texts() == ["Aye."]


@pytest.mark.parametrize("is_late", [True, False])
async def test_after_the_nonce_has_expired_the_history_is_read_until_it_can_be(
    server: EmulatedServer, is_late: bool
) -> None:
    clock = SlowClock()
    lost = Fault(SAY, 502, is_late=is_late)
    unreadable = Fault(HISTORY, 503, times=FAILURES)

    async def fail_long() -> None:
        await server.emulator.recorder.wait_until(lambda: not lost.times)
        clock.ahead = timedelta(minutes=3)

    async with server.run_bot(clock=clock) as (harness, _):
        server.emulator.faults += [lost, unreadable]
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await fail_long()
        await server.emulator.recorder.wait_until(lambda: not unreadable.times)
        await server.emulator.recorder.wait_for_texts(1)
        await harness.agent.outbox.drain(10)
        [part] = await harness.agent.store.ledger.deliveries()
    assert part.state is DeliveryState.SENT
    assert server.emulator.recorder.texts() == ["Aye."]


async def test_a_part_of_unknown_outcome_is_resolved_at_the_next_start(
    server: EmulatedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = InMemoryStore()
    monkeypatch.setattr(sender, "FIRST_DELAY_SECONDS", 3600.0)
    async with server.run_bot(store=store) as (harness, _):
        fault = Fault(SAY, 502, is_late=True)
        server.emulator.faults.append(fault)
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await server.emulator.recorder.wait_until(lambda: not fault.times)
        await harness.agent.outbox.close(1)
    async with server.run_bot(store=store) as (harness, _):
        await server.emulator.recorder.wait_until(lambda: server.emulator.recorder.counts["same nonce"])
        await harness.agent.outbox.drain(10)
        [part] = await store.ledger.deliveries()
    assert (part.state, part.attempts) == (DeliveryState.SENT, 2)
    assert server.emulator.recorder.texts() == ["Aye."]


@pytest.mark.long
async def test_an_edit_is_repeated_until_discord_confirms_it(server: EmulatedServer) -> None:
    fault = Fault(EDIT, 502, times=FAILURES)
    async with server.run_bot(settings={"ON_EDIT": "rerun"}) as (harness, _):
        asked = await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await server.emulator.recorder.wait_for_texts(1)
        await harness.agent.outbox.drain(10)
        server.emulator.faults.append(fault)
        await server.emulator.people.edit(server.lobby, asked, f"{server.call} ahoy!")
        await server.emulator.recorder.wait_until(lambda: not fault.times)
        await harness.agent.outbox.drain(10)
        assert {part.state for part in await harness.agent.store.ledger.deliveries()} == {DeliveryState.SENT}
    assert server.emulator.recorder.texts() == ["Aye."]
