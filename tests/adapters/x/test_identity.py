"""O-09: nothing is written with the keys of another account."""

from pathlib import Path

import pytest

from adapters.x.emulator import Emulator, Fault
from bot.platform import NotSent
from bot.store import InMemoryStore
from tests.adapters.x.conftest import RunX
from tests.adapters.x.test_checks import poll
from tests.adapters.x.test_sending import QUIET, part_of

ME = "GET /2/users/me"


@pytest.mark.failure("O-09")
async def test_keys_of_another_account_write_nothing_and_are_logged_once(
    run_x: RunX, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_x(X_USERNAME="@somebody_else", **QUIET) as harness:
        for _ in range(3):
            with pytest.raises(NotSent, match=r"X_USERNAME is somebody_else.*@greenroom_bot") as refused:
                await harness.adapter.deliver(part_of(harness))
            assert refused.value.retry_after  # the part waits for the right keys
        assert [call.endpoint for call in emulator.calls] == [ME]
        [feed] = harness.agent.outbox.feeds()
        assert "X_USERNAME" in feed.pause_reason
    assert caplog.text.count("nothing is read or written") == 1


@pytest.mark.failure("O-09")
async def test_the_account_of_the_keys_is_verified_once_and_not_at_every_start(run_x: RunX, emulator: Emulator) -> None:
    store = InMemoryStore()
    for number in range(2):
        async with run_x(X_USERNAME="Greenroom_Bot", store=store, **QUIET) as harness:
            for part in range(2):
                await harness.adapter.deliver(part_of(harness, f"Post {number} {part}"))
    assert [call.endpoint for call in emulator.calls].count(ME) == 1
    assert len(emulator.writes) == 4


@pytest.mark.failure("O-09")
@pytest.mark.parametrize("status", [403, 429, 503])
async def test_nothing_is_written_before_the_verification(status: int, run_x: RunX, emulator: Emulator) -> None:
    async with run_x(X_USERNAME="greenroom_bot", **QUIET) as harness:
        emulator.add_faults(Fault(ME, status=status))
        with pytest.raises(NotSent):
            await harness.adapter.deliver(part_of(harness))
        assert emulator.writes == []


@pytest.mark.failure("O-09")
async def test_the_doctor_names_the_keys_of_another_account(emulator: Emulator, tmp_path: Path) -> None:
    [problem] = (await poll(emulator, tmp_path, X_USERNAME="somebody_else")).problems
    assert "@greenroom_bot" in problem
