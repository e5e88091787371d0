"""X refuses a signature: one call, the keys, or the clock of this machine."""

import json
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from adapters.x.emulator import Emulator, Fault
from bot.platform import ConnectionState, DeliveryState, DisconnectCause, NotSent
from bot.store import InMemoryStore
from bot.testing import ManualClock
from tests.adapters.x.conftest import RunX
from tests.adapters.x.test_checks import poll
from tests.adapters.x.test_health import MENTIONS, logged_warnings, state_of
from tests.adapters.x.test_identity import ME
from tests.adapters.x.test_sending import POST, QUIET, part_of

HOUR = 3600.0


@pytest.mark.parametrize("endpoint", [MENTIONS, POST])
async def test_a_single_refused_call_does_not_stop_an_account_whose_keys_are_valid(
    endpoint: str, run_x: RunX, emulator: Emulator, clock: ManualClock
) -> None:
    async with run_x() as harness:
        emulator.add_faults(Fault(endpoint, status=401, body='{"title": "Unauthorized", "status": 401}'))
        emulator.say("bob", "@greenroom_bot are you there?")
        await harness.poll()
        clock.advance(60.0)
        await harness.wait_idle()
        assert emulator.bot_texts == ["Noted."]
        assert state_of(harness).state is ConnectionState.CONNECTED
        assert [call.endpoint for call in emulator.calls].count(ME) == 1


async def test_an_account_whose_keys_are_accepted_again_reads_and_answers_what_it_missed(
    run_x: RunX, emulator: Emulator, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_x() as harness:
        emulator.is_revoked = True
        emulator.say("bob", "@greenroom_bot are you there?")
        await harness.poll()
        assert (state_of(harness).state, state_of(harness).cause) == (ConnectionState.OFF, DisconnectCause.REFUSED)
        emulator.is_revoked = False
        while not emulator.bot_texts:
            await harness.poll()
        assert emulator.bot_texts == ["Noted."]
        assert state_of(harness).state is ConnectionState.CONNECTED
    assert [line.partition(":")[0].partition(",")[0] for line in logged_warnings(caplog)] == [
        "Ada is off x",
        "Ada is on x again",
    ]


async def test_refused_keys_are_checked_with_growing_pauses_and_nothing_else_is_called(
    run_x: RunX, emulator: Emulator, clock: ManualClock
) -> None:
    async with run_x(**QUIET) as harness:
        emulator.is_revoked = True
        with pytest.raises(NotSent, match="refuses the keys"):
            await harness.adapter.deliver(part_of(harness))
        checked_at = []
        for _ in range(9):
            clock.advance(await clock.wait_for_sleepers())
            await emulator.wait_until(lambda: len(emulator.calls) == len(checked_at) + 3)
            checked_at.append(emulator.calls[-1].received_at)
        assert [call.endpoint for call in emulator.calls[1:]] == [ME] * 10
        pauses = [(later - earlier).total_seconds() for earlier, later in pairwise(checked_at)]
        assert pauses == [120, 240, 480, 960, 1920, HOUR, HOUR, HOUR]


@pytest.mark.parametrize(("minutes", "direction"), [(20, "behind"), (-20, "ahead of")])
async def test_a_wrong_clock_is_named_and_nothing_is_lost(
    minutes: int, direction: str, run_x: RunX, emulator: Emulator, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_x() as harness:
        emulator.clock_offset = timedelta(minutes=minutes)
        emulator.say("bob", "@greenroom_bot are you there?")
        await harness.poll()
        assert (state_of(harness).state, state_of(harness).cause) == (ConnectionState.DEGRADED, DisconnectCause.CLOCK)
        assert f"this machine's clock is 20 minutes {direction} X's" in caplog.text
        assert "keys" not in caplog.text
        emulator.clock_offset = timedelta()
        await harness.poll()
        assert emulator.bot_texts == ["Noted."]
        assert state_of(harness).state is ConnectionState.CONNECTED


async def test_the_doctor_names_a_wrong_clock(emulator: Emulator, tmp_path: Path) -> None:
    emulator.clock_offset = timedelta(minutes=20)
    [problem] = (await poll(emulator, tmp_path)).problems
    assert "clock is 20 minutes behind X's" in problem
    assert "X_API_KEY" not in problem


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (402, {"title": "CreditsDepleted", "detail": "Your account has no credits.", "type": "about:blank"}),
        (429, {"title": "UsageCapExceeded", "type": "https://api.twitter.com/2/problems/usage-capped"}),
        (403, {"detail": "No access.", "type": "https://api.twitter.com/2/problems/client-forbidden"}),
        (403, {"detail": "May only read.", "type": "https://api.twitter.com/2/problems/oauth1-permissions"}),
    ],
)
@pytest.mark.parametrize("endpoint", [POST, MENTIONS])
async def test_what_the_plan_does_not_allow_is_done_once_it_does(
    status: int, problem: dict[str, str], endpoint: str, run_x: RunX, emulator: Emulator, clock: ManualClock
) -> None:
    store = InMemoryStore(clock.now)
    async with run_x(store=store) as harness:
        emulator.add_faults(Fault(endpoint, status=status, body=json.dumps({**problem, "status": status})))
        emulator.say("bob", "@greenroom_bot are you there?")
        await harness.poll()
        assert emulator.bot_texts == []
        if endpoint == MENTIONS:
            assert state_of(harness).cause is DisconnectCause.FORBIDDEN
            assert await clock.wait_for_sleepers() == HOUR
        else:
            [part] = await harness.unsent()
            assert part.state is DeliveryState.PENDING
            assert part.cause.startswith(f"X says {status}")
    clock.advance(HOUR)
    async with run_x(store=store) as harness:
        await harness.wait_idle()
        assert emulator.bot_texts == ["Noted."]
