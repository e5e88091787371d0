"""The account on an emulated homeserver: refused tokens, odd events, large files, the doctor's report."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapters.matrix import spec
from adapters.matrix.adapter import check_account
from adapters.matrix.emulator import KIM, MatrixControl, start_emulator
from bot import Settings
from bot.platform import ConnectionState
from bot.settings import Layer
from bot.testing import AgentHarness, ScriptedModel, model_answer, running_agent
from tests.adapters.matrix.conftest import wait_until

TIMEOUT = 30.0


@asynccontextmanager
async def run_account(
    change: Callable[[Mapping[str, str]], Mapping[str, str]] = dict,
) -> AsyncIterator[tuple[AgentHarness, Any, MatrixControl]]:
    """Run an agent with an account of the emulator; `change` returns other settings."""
    async with start_emulator(("Ada",)) as platform:
        settings = change(platform.settings["Ada"])
        async with (
            running_agent(model=ScriptedModel(model_answer("Here.")), settings=settings) as harness,
            spec.open([harness.agent_runtime.handle]) as adapter,
        ):
            harness.agent.outbox.connect(adapter)
            yield harness, adapter, platform
            harness.agent.outbox.disconnect(adapter)


async def read_no_cursor(platform: str, account: str, name: str) -> str | None:
    return None


async def report_on(settings: Mapping[str, str]) -> tuple[bool, str]:
    """Return whether the doctor reaches the account, and its problems."""
    report = await check_account(Settings([Layer("the test", settings)]), read_no_cursor)
    return report.exists, " ".join(report.problems)


async def test_the_doctor_names_the_account_and_says_what_to_change() -> None:
    async with start_emulator(("Ada",)) as platform:
        settings = dict(platform.settings["Ada"])
        assert await report_on(settings) == (True, "")
        _, problem = await report_on({**settings, "MATRIX_USER": "@bob:localhost"})
        assert "set MATRIX_USER to it" in problem
        exists, problem = await report_on({**settings, "MATRIX_TOKEN": "outdated"})
        assert (exists, "set MATRIX_TOKEN" in problem) == (False, True)
    exists, problem = await report_on(settings)
    assert (exists, "check the network" in problem) == (False, True)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [("MATRIX_TOKEN", "outdated", "refuses the token"), ("MATRIX_USER", "@bob:localhost", "MATRIX_TOKEN is that of")],
)
async def test_an_account_that_is_not_that_of_the_token_is_off_and_sends_nothing(
    name: str, value: str, reason: str
) -> None:
    async with run_account(lambda settings: {**settings, name: value}) as (_, adapter, platform):
        [status] = adapter.connections

        async def is_off() -> bool:
            return status.snapshot.state is ConnectionState.OFF

        await wait_until(is_off)
        assert reason in status.off_reason
        assert platform.shown() == []


@pytest.mark.parametrize(
    "odd",
    [
        {"content": {"msgtype": "m.text", "body": "x"}, "origin_server_ts": "soon"},
        {"content": {"msgtype": "m.text", "body": "x"}, "sender": None},
        {"content": {"membership": "join"}, "state_key": ["no", "text"], "type": "m.room.member"},
        {"content": ["no", "object"], "type": "m.reaction"},
        {"type": "m.room.power_levels", "state_key": "", "content": {"users": 5}, "unsigned": {"prev_content": 5}},
    ],
)
async def test_an_event_that_cannot_be_read_costs_no_other(odd: dict[str, Any]) -> None:
    async with run_account() as (harness, _, platform):
        server = platform.server
        [account] = server.accounts.values()
        event = {"type": "m.room.message", "event_id": "$odd", "sender": KIM, "origin_server_ts": 0, **odd}
        server.stream.append((account.room_id, event))
        await platform.post("Hello", message_id="1", event_id="event-1")
        await platform.changes.wait_until(platform.shown, TIMEOUT)
        assert platform.shown() == ["Here."]
        assert [receipt.key.message_id for receipt in await harness.agent.store.ledger.receipts()] == ["$event-1"]
