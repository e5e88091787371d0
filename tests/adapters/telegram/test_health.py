"""The connection status while Telegram is unavailable and after it has recovered."""

import asyncio
import logging
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from adapters.telegram.config import Limits
from adapters.telegram.emulator import Emulator, Fault, build_refusal, too_many_requests
from bot import Outcome, Receipt
from bot.adapter.adapter import FIRST_PAUSE_SECONDS
from bot.domain.ledger import Rule
from bot.platform import ConnectionSnapshot, ConnectionState, DisconnectCause
from tests.adapters.telegram.conftest import TOKEN, SkippingClock, TelegramHarness, run_character

HOOK = {
    "TELEGRAM_WEBHOOK_URL": "http://127.0.0.1:1/hook",
    "TELEGRAM_WEBHOOK_SECRET": "only-for-tests",
    "TELEGRAM_WEBHOOK_PORT": "0",
}
WEBHOOK_CHECK_SECONDS = Limits().webhook_check_seconds


class Gate(SkippingClock):
    """A clock whose sleeps wait until `is_open` is set, except those of background work."""

    def __init__(self) -> None:
        super().__init__()
        self.has_sleeper, self.is_open = asyncio.Event(), asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if seconds not in self.held:
            self.has_sleeper.set()
            await self.is_open.wait()
        await super().sleep(seconds)

    async def wait_for_sleeper(self) -> None:
        async with asyncio.timeout(60):
            await self.has_sleeper.wait()


def snapshot_of(harness: TelegramHarness) -> ConnectionSnapshot:
    [link] = harness.adapter.connections
    return link.snapshot


async def wait_for_state(
    harness: TelegramHarness, standing: ConnectionState, since: datetime | None = None
) -> ConnectionSnapshot:
    async with asyncio.timeout(60):
        while (result := snapshot_of(harness)).state is not standing or result.since == since:
            await SkippingClock().sleep(0)
        return result


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [item.getMessage() for item in caplog.records if item.levelno >= logging.WARNING]


@pytest.mark.failure("C-15")
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (Fault("getMe", times=3), DisconnectCause.UNREACHABLE),
        (Fault("getUpdates", times=3), DisconnectCause.UNREACHABLE),
        (Fault("getUpdates", 502, "<html>Bad Gateway</html>", times=3), DisconnectCause.PLATFORM),
        (too_many_requests("getUpdates", 30, times=3), DisconnectCause.LIMITED),
        (Fault("getUpdates", 409, build_refusal(409, "Conflict: terminated"), times=3), DisconnectCause.CONTESTED),
    ],
)
async def test_a_bot_without_updates_is_degraded_until_they_arrive(
    fault: Fault, cause: DisconnectCause, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    async with Emulator() as telegram:
        telegram.faults.append(fault)
        async with run_character(telegram, clock=gate) as harness:
            await gate.wait_for_sleeper()
            assert (snapshot_of(harness).state, snapshot_of(harness).cause) == (ConnectionState.DEGRADED, cause)
            gate.is_open.set()
            assert (await wait_for_state(harness, ConnectionState.CONNECTED)).cause is None
    assert len(warnings_of(caplog)) == 2, warnings_of(caplog)
    assert warnings_of(caplog)[0].startswith(f"Ada is cut off from telegram ({cause})")
    assert warnings_of(caplog)[1].startswith("Ada is on telegram again")
    assert TOKEN.partition(":")[2] not in caplog.text


@pytest.mark.failure("C-13")
async def test_an_unresolvable_host_name_is_reported() -> None:
    gate = Gate()
    async with Emulator() as telegram:
        nowhere = {"TELEGRAM_API_BASE_URL": "http://nowhere.invalid"}
        async with run_character(telegram, clock=gate, settings=nowhere) as harness:
            await gate.wait_for_sleeper()
            assert snapshot_of(harness).cause is DisconnectCause.DNS


@pytest.mark.parametrize("skipped", [0, 1], ids=["at the start", "later"])
async def test_a_bot_with_a_rejected_token_is_off_until_telegram_accepts_it(
    skipped: int, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SkippingClock(held=frozenset({FIRST_PAUSE_SECONDS, Limits().typing_seconds}))
    async with Emulator() as telegram:
        refused = [Fault(name, 401, build_refusal(401, "Unauthorized"), times=2) for name in ("getMe", "getUpdates")]
        refused[0].skip_first = skipped
        telegram.faults += refused
        async with run_character(telegram, clock=clock) as harness:
            assert (await wait_for_state(harness, ConnectionState.OFF)).cause is DisconnectCause.REFUSED
            for fault in refused:
                fault.times = 0
            clock.released.set()
            alice = harness.people.add_user("Alice")
            harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
            assert await harness.wait_texts(1) == ["You said: Hello"]
            assert not snapshot_of(harness).is_problem
    assert len(warnings_of(caplog)) == 2
    assert "TELEGRAM_BOT_TOKEN" in warnings_of(caplog)[0]
    assert warnings_of(caplog)[1].startswith("Ada is on telegram again")


@pytest.mark.parametrize("method", ["getUpdates", "sendMessage", "setMyCommands", "sendChatAction"])
async def test_a_single_refused_call_does_not_stop_a_bot_whose_token_is_accepted(method: str) -> None:
    async with Emulator() as telegram:
        telegram.faults.append(Fault(method, 401, build_refusal(401, "Unauthorized"), times=1))
        async with run_character(telegram) as harness:
            alice = harness.people.add_user("Alice")
            harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
            assert await harness.wait_texts(1) == ["You said: Hello"]
            await harness.wait_deliveries()
            assert not snapshot_of(harness).is_problem


async def test_a_replaced_webhook_is_reported_and_set_again(caplog: pytest.LogCaptureFixture) -> None:
    async with Emulator() as telegram:
        clock = SkippingClock()
        async with run_character(telegram, settings=HOOK, clock=clock) as harness:
            before = await wait_for_state(harness, ConnectionState.CONNECTED)
            harness.bot.webhook = ""
            clock.advance(WEBHOOK_CHECK_SECONDS)
            clock.released.set()
            clock.held = frozenset({Limits().typing_seconds})
            clock.released = asyncio.Event()
            await telegram.recorder.wait_until(lambda: harness.bot.webhook)
            after = await wait_for_state(harness, ConnectionState.CONNECTED, since=before.since)
            assert after.since > before.since
    assert "another program has replaced the webhook" in warnings_of(caplog)[0]
    assert "is on telegram again" in warnings_of(caplog)[1]


async def test_failed_webhook_deliveries_are_reported_briefly() -> None:
    limits = replace(Limits(), webhook_check_seconds=7.0)
    clock = SkippingClock(held=frozenset({Limits().typing_seconds}))
    async with Emulator() as telegram:
        failing: dict[str, Any] = {
            "url": "http://127.0.0.1:1/hook/1000001",
            "has_custom_certificate": False,
            "pending_update_count": 3,
            "last_error_date": int(clock.now().timestamp()) + 10**6,
            "last_error_message": "Connection refused",
        }
        response = {"ok": True, "result": failing}
        telegram.faults.append(Fault("getWebhookInfo", 200, response, times=20))
        async with run_character(telegram, settings=HOOK, clock=clock, limits=limits) as harness:
            assert (await wait_for_state(harness, ConnectionState.DEGRADED)).cause is DisconnectCause.WEBHOOK
            await wait_for_state(harness, ConnectionState.CONNECTED)


@pytest.mark.long  # the parts that wait try again after up to sixteen seconds
async def test_no_model_is_asked_for_replies_beyond_a_few_that_wait_for_an_account_that_is_off() -> None:
    clock = SkippingClock(held=frozenset({FIRST_PAUSE_SECONDS, Limits().typing_seconds}))
    refusal = build_refusal(401, "Unauthorized")
    async with Emulator() as telegram, run_character(telegram, clock=clock) as harness:
        alice = harness.people.add_user("Alice")
        chats = [harness.people.add_group("Harbour", alice) for _ in range(9)]
        await wait_for_state(harness, ConnectionState.CONNECTED)
        telegram.faults += [Fault(name, 401, refusal, times=99) for name in ("sendMessage", "getMe")]
        receipts: list[Receipt] = []
        for chat in chats:  # updates still arrive
            harness.people.say(chat, alice, "@ada_bot hello")
            receipts = await harness.wait_receipts()
        ignored = [receipt for receipt in receipts if receipt.rule == Rule.CANNOT_SEND]
        assert [receipt.outcome for receipt in receipts] == [Outcome.ANSWERED] * 5 + [Outcome.IGNORED] * 4
        assert len(ignored) == 4
        assert not any(receipt.model_calls for receipt in ignored)
        telegram.faults.clear()
        clock.released.set()
        await telegram.recorder.wait_until(lambda: len(telegram.recorder.messages) == 5)
        harness.people.say(chats[-1], alice, "@ada_bot hello again")
        await harness.wait_texts(1, chats[-1])
