"""The connection status of an X account."""

import logging
from pathlib import Path

import pytest

from adapters.x.emulator import Emulator, Fault, FaultKind
from bot.platform import ConnectionSnapshot, ConnectionState, DisconnectCause, NotSent
from tests.adapters.x.conftest import RunX, XHarness

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
