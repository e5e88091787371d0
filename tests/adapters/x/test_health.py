"""The connection status of an X account."""

import json
import logging
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from adapters.x.emulator import Emulator, Fault, FaultKind
from bot.platform import ConnectionSnapshot, ConnectionState, DeliveryState, DisconnectCause, NotSent
from bot.store import InMemoryStore
from bot.testing import ManualClock
from tests.adapters.x.conftest import RunX, XHarness
from tests.adapters.x.test_config import ME, poll
from tests.adapters.x.test_sending import POST, QUIET, part_of

MENTIONS = "GET /2/users/:id/mentions"


def state_of(harness: XHarness) -> ConnectionSnapshot:
    [link] = harness.adapter.connections
    return link.snapshot


def logged_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record for record in caplog.records if record.levelno >= logging.WARNING]
    return [record.getMessage() for record in found if record.name == "bot.adapter.adapter"]


@pytest.mark.failure("C-15")
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (Fault(MENTIONS, status=503), DisconnectCause.PLATFORM),
        (Fault(MENTIONS, FaultKind.LOST), DisconnectCause.UNREACHABLE),
        (Fault(MENTIONS, FaultKind.BROKEN), DisconnectCause.PLATFORM),
        (Fault(MENTIONS, status=403), DisconnectCause.FORBIDDEN),
    ],
)
async def test_an_account_with_unreadable_mentions_is_degraded_until_they_are_read(
    run_x: RunX, emulator: Emulator, fault: Fault, cause: DisconnectCause, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_x() as harness:
        assert state_of(harness).state is ConnectionState.CONNECTED
        emulator.add_faults(fault)
        await harness.poll()
        assert (state_of(harness).state, state_of(harness).cause) == (ConnectionState.DEGRADED, cause)
        await harness.poll()
        assert state_of(harness).state is ConnectionState.CONNECTED
    assert [line.partition(" (")[0].partition(" again")[0] for line in logged_warnings(caplog)] == [
        "Ada is cut off from x",
        "Ada is on x",
    ]


@pytest.mark.failure("C-13")
async def test_an_unresolvable_host_is_named(run_x: RunX) -> None:
    async with run_x(X_API_BASE_URL="http://nowhere.invalid") as harness:
        assert (state_of(harness).state, state_of(harness).cause) == (ConnectionState.DEGRADED, DisconnectCause.DNS)


async def test_an_account_whose_keys_are_refused_is_off(
    run_x: RunX, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_x(X_REPLY_ENABLE="false") as harness:
        assert state_of(harness).state is ConnectionState.CONNECTING
        emulator.is_revoked = True
        with pytest.raises(NotSent, match="refuses the keys"):
            await harness.account.connection.read_own_user()
        assert (state_of(harness).state, state_of(harness).cause) == (ConnectionState.OFF, DisconnectCause.REFUSED)
    assert len(logged_warnings(caplog)) == 1


async def test_the_off_switch_and_its_removal_are_logged(run_x: RunX, emulator: Emulator, tmp_path: Path) -> None:
    async with run_x() as harness:
        (tmp_path / "x.off").touch()
        await harness.poll()
        assert state_of(harness).cause is DisconnectCause.SWITCHED_OFF
        (tmp_path / "x.off").unlink()
        await harness.poll()
        assert state_of(harness).state is ConnectionState.CONNECTED


async def test_an_exhausted_limit_is_no_outage(run_x: RunX, emulator: Emulator) -> None:
    async with run_x() as harness:
        emulator.add_faults(Fault(MENTIONS, status=429))
        await harness.poll()
        assert state_of(harness).state is ConnectionState.CONNECTED


@pytest.mark.failure("C-01")
async def test_a_lost_read_is_not_repeated_with_the_same_signature(run_x: RunX, emulator: Emulator) -> None:
    async with run_x() as harness:
        emulator.add_faults(Fault(MENTIONS, FaultKind.LOST))
        asked = len(emulator.calls)
        await harness.poll()
        assert [call.status for call in emulator.calls[asked:]] == [200]
        assert not harness.account.connection.stop_reason


async def test_an_account_without_permission_to_read_mentions_is_refused_until_it_has_it(
    run_x: RunX, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_x() as harness:
        for _ in range(3):
            emulator.add_faults(Fault(MENTIONS, status=403))
            await harness.poll()
            assert state_of(harness).cause is DisconnectCause.FORBIDDEN
        await harness.poll()
        assert state_of(harness).state is ConnectionState.CONNECTED
    assert [line.partition(" (")[0].partition(" again")[0] for line in logged_warnings(caplog)] == [
        "Ada is cut off from x",
        "Ada is on x",
    ]


# X refuses a signature: one call, the keys, or the clock of this machine.

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
