"""Webhook deliveries: authentication and acknowledgement."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession

from adapters.telegram.config import Limits, TelegramSettings
from adapters.telegram.emulator import Emulator
from bot import SettingError, Settings
from bot.platform import ServerLimits
from bot.settings import Layer
from bot.store import InMemoryStore, StoreUnavailable
from tests.adapters.telegram.conftest import TOKEN, TelegramHarness, run_character

SECRET = "only-for-tests"
HEADER = "X-Telegram-Bot-Api-Secret-Token"
HOOK = {
    "TELEGRAM_WEBHOOK_URL": "http://127.0.0.1:1/hook",
    "TELEGRAM_WEBHOOK_SECRET": SECRET,
    "TELEGRAM_WEBHOOK_PORT": "0",
}


@asynccontextmanager
async def run_with_webhook(**details: Any) -> AsyncIterator[TelegramHarness]:
    """Run a character with a webhook to which the emulator delivers."""
    async with Emulator() as telegram, run_character(telegram, settings=HOOK, **details) as harness:
        await telegram.recorder.wait_until(lambda: harness.bot.webhook)
        assert harness.bot.webhook == "http://127.0.0.1:1/hook/1000001"
        harness.bot.webhook = f"http://127.0.0.1:{harness.adapter.webhook_port}/hook/1000001"
        yield harness


async def test_a_message_delivered_by_webhook_is_answered() -> None:
    async with run_with_webhook() as harness:
        alice = harness.people.add_user("Alice")
        harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
        assert await harness.wait_texts(1) == ["You said: Hello"]
        await harness.wait_confirmed()


async def test_the_secret_appears_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with run_with_webhook() as harness:
        assert harness.bot.secret == SECRET
    assert "setWebhook" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.failure("C-12", "N-09")
@pytest.mark.parametrize("sent", [b"", b"POST /hook/1000001 HTTP/1.1\r\nHost: bot\r\nX-Slow: "], ids=["none", "part"])
async def test_a_connection_whose_headers_do_not_arrive_in_time_is_closed(sent: bytes) -> None:
    async with run_with_webhook(limits=Limits(webhook_port=ServerLimits(header_seconds=0.1))) as harness:
        reader, writer = await asyncio.open_connection("127.0.0.1", harness.adapter.webhook_port)
        writer.write(sent)
        async with asyncio.timeout(10):
            await reader.read()
        writer.close()


@pytest.mark.failure("C-12", "N-09")
async def test_a_body_that_does_not_arrive_in_time_is_refused() -> None:
    async with run_with_webhook(limits=Limits(webhook_port=ServerLimits(body_seconds=0.1))) as harness:
        reader, writer = await asyncio.open_connection("127.0.0.1", harness.adapter.webhook_port)
        head = f"POST /hook/1000001 HTTP/1.1\r\nHost: bot\r\n{HEADER}: {SECRET}\r\nContent-Length: 100\r\n\r\n{{"
        writer.write(head.encode())
        async with asyncio.timeout(10):
            assert b" 408 " in await reader.readline()
        writer.close()


@pytest.mark.failure("C-12", "N-09")
async def test_idle_connections_do_not_keep_out_deliveries() -> None:
    limits = Limits(webhook_port=ServerLimits(max_anonymous_connections=3))
    async with run_with_webhook(limits=limits) as harness:
        idle = [await asyncio.open_connection("127.0.0.1", harness.adapter.webhook_port) for _ in range(10)]
        alice = harness.people.add_user("Alice")
        harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
        assert await harness.wait_texts(1) == ["You said: Hello"]
        async with asyncio.timeout(10):
            for reader, _ in idle[:7]:
                with suppress(ConnectionError):
                    assert await reader.read() == b""
        for _, writer in idle:
            writer.close()


@pytest.mark.failure("C-12", "N-09")
async def test_connections_with_the_secret_are_limited() -> None:
    limits = Limits(webhook_port=ServerLimits(max_connections=2))
    async with run_with_webhook(limits=limits) as harness, AsyncExitStack() as stack:
        statuses = []
        for _ in range(3):
            session = await stack.enter_async_context(ClientSession())  # with a connection of its own
            answer = await session.post(harness.bot.webhook, json={}, headers={HEADER: SECRET})
            statuses.append(answer.status)
    assert statuses == [200, 200, 503]


@pytest.mark.failure("C-12", "N-08")
async def test_wrong_secrets_are_limited_and_the_right_secret_always_passes() -> None:
    limits = Limits(webhook_port=ServerLimits(max_guesses=3))
    async with run_with_webhook(limits=limits) as harness, ClientSession() as session:
        statuses = []
        for secret in ("a", "b", "c", "d", SECRET, "e", SECRET):
            async with session.post(harness.bot.webhook, json={}, headers={HEADER: secret}) as answer:
                statuses.append(answer.status)
                assert ("Retry-After" in answer.headers) is (answer.status == 429)
    assert statuses == [403, 403, 403, 429, 200, 429, 200]


@pytest.mark.failure("C-11")
async def test_a_delivery_is_acknowledged_only_after_it_is_stored() -> None:
    store = InMemoryStore()
    receive, is_writable = store.ledger.receive, asyncio.Event()

    async def slow(*args: Any, **details: Any) -> Any:
        if not is_writable.is_set():
            raise StoreUnavailable("the disk is full", cause="disk_full")
        return await receive(*args, **details)

    async with run_with_webhook(store=store) as harness:
        store.ledger.receive = slow  # type: ignore[method-assign]  # what a full disk would do
        alice = harness.people.add_user("Alice")
        harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
        counts = harness.telegram.recorder.counts
        await harness.telegram.recorder.wait_until(lambda: counts["webhook 503"] >= 2)
        assert not counts["webhook 200"]
        is_writable.set()
        assert await harness.wait_texts(1) == ["You said: Hello"]


async def test_the_pictures_of_an_album_are_a_single_message() -> None:
    async with run_with_webhook() as harness:
        alice = harness.people.add_user("Alice")
        harness.people.send_album(harness.people.open_private_chat(alice), alice, [b"1", b"2", b"3"], "Three")
        await harness.wait_confirmed()
        receipts = await harness.wait_receipts()
    assert len(receipts) == 1


@pytest.mark.failure("C-12")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 401),
        ([(HEADER, "")], 403),
        ([(HEADER, "wrong")], 403),
        ([(HEADER, "ä")], 403),
        ([(HEADER, SECRET), (HEADER, SECRET)], 401),
        ([(HEADER, SECRET)], 200),
    ],
)
async def test_a_delivery_without_the_secret_is_rejected(headers: list[tuple[str, str]], status: int) -> None:
    async with run_with_webhook() as harness, ClientSession() as session:
        encoded = [(name, value.encode().decode("utf-8", "surrogateescape")) for name, value in headers]
        async with session.post(harness.bot.webhook, json={"update_id": 1}, headers=encoded) as answer:
            assert answer.status == status
        async with session.post(harness.bot.webhook.replace("1000001", "4711"), json={}, headers=encoded) as answer:
            assert answer.status == 404


@pytest.mark.failure("C-12")
@pytest.mark.parametrize("secret", ["", "   ", "with a space", "ümlaut", "x" * 257, "changeme"])
def test_a_blank_or_invalid_secret_prevents_the_start(secret: str) -> None:
    values = {"TELEGRAM_BOT_TOKEN": TOKEN, **HOOK, "TELEGRAM_WEBHOOK_SECRET": secret}
    with pytest.raises(SettingError, match="TELEGRAM_WEBHOOK_SECRET"):
        Settings([Layer("the test", values)]).load(TelegramSettings)


async def test_a_body_that_is_not_json_is_rejected() -> None:
    async with run_with_webhook() as harness, ClientSession() as session:
        for body, status in ((b"{", 400), (b"[" * 100_000, 400), (b'"text"', 200), (b"{}", 200)):
            async with session.post(harness.bot.webhook, data=body, headers={HEADER: SECRET}) as answer:
                assert answer.status == status


async def test_a_port_in_use_leaves_nothing_running() -> None:
    async with Emulator() as telegram:
        taken = {**HOOK, "TELEGRAM_WEBHOOK_PORT": str(urlsplit(telegram.url).port)}
        with pytest.raises(SettingError, match=r"TELEGRAM_WEBHOOK_PORT \d+ is in use"):
            async with run_character(telegram, settings=taken):
                pass
        assert [item for item in asyncio.all_tasks() if "Presence" in repr(item.get_coro())] == []
