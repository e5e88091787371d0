"""The health check, which needs no token."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from adapters.telegram.adapter import TelegramAdapter
from adapters.telegram.config import Limits
from adapters.telegram.emulator import Emulator, Fault
from bot.platform import ConnectionStatus, DisconnectCause, TimeSource
from bot.testing import RecordingAdapter
from tests.adapters.web.conftest import RunningServer, ServerFactory

TOKEN = "1000001:not-a-real-token"


class TwoAccountAdapter(RecordingAdapter):
    """An adapter with two accounts whose status the test sets."""

    platform = "shaky"

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = ConnectionStatus("shaky", "Ada"), ConnectionStatus("shaky", "Bob")

    @property
    def connections(self) -> Sequence[ConnectionStatus]:
        return (self.first, self.second)


async def health(web_server: RunningServer, status: int = 200) -> Any:
    return await web_server.check_response("GET", "/healthz", await web_server.request("GET", "/healthz"), status)


async def test_a_server_with_only_its_page_is_ok(web_server: RunningServer) -> None:
    body = await health(web_server)
    assert (body["status"], list(body["platforms"])) == ("ok", ["web"])
    assert body["platforms"]["web"]["state"] == "connected"


@pytest.mark.failure("C-15")
async def test_the_worst_account_of_a_platform_is_reported(web_server: RunningServer) -> None:
    shaky = TwoAccountAdapter()
    await web_server.runtime.connect(shaky)
    body = await health(web_server)
    assert (body["status"], body["platforms"]["shaky"]["state"]) == ("ok", "connecting")
    shaky.first.connected()
    shaky.second.failed(DisconnectCause.TLS, "the certificate of platform.example has expired: it says 'hunter2'")
    body = await health(web_server)
    assert body["status"] == "degraded"
    assert body["platforms"]["shaky"]["state"] == "degraded"
    assert body["platforms"]["shaky"]["cause"] == "tls"
    assert body["platforms"]["shaky"]["since"] == shaky.second.snapshot.since.isoformat().replace("+00:00", "Z")
    assert "hunter2" not in str(body)
    assert "Bob" not in str(body)
    shaky.second.connected()
    assert (await health(web_server))["status"] == "ok"
    shaky.first.stopped(DisconnectCause.REFUSED, "renew the token")
    body = await health(web_server)
    assert (body["status"], body["platforms"]["shaky"]["state"]) == ("degraded", "off")


async def test_an_adapter_without_status_is_not_reported(web_server: RunningServer) -> None:
    await web_server.runtime.connect(RecordingAdapter())
    assert list((await health(web_server))["platforms"]) == ["web"]


@pytest.mark.failure("C-15")
@pytest.mark.parametrize("fault", [Fault("getUpdates", times=10**6), Fault("getUpdates", 502, "", times=10**6)])
async def test_a_disconnected_platform_is_reported_with_status_200(open_server: ServerFactory, fault: Fault) -> None:
    time_source = TimeSource(sleep=lambda seconds: asyncio.sleep(0))
    async with Emulator() as telegram:
        settings = telegram.settings(telegram.add_bot(TOKEN))
        async with open_server(settings=settings) as web_server:
            limits = Limits(poll_seconds=0)
            await web_server.runtime.connect(
                TelegramAdapter(web_server.runtime.handles, limits=limits, time_source=time_source)
            )
            await wait_for_state(web_server, "connected")
            telegram.faults.append(fault)
            assert (await wait_for_state(web_server, "degraded"))["status"] == "degraded"
            assert (await web_server.send("Hello"))["outcome"] == "answered"
            fault.times = 0
            assert (await wait_for_state(web_server, "connected"))["status"] == "ok"


async def wait_for_state(web_server: RunningServer, state: str) -> Any:
    async with asyncio.timeout(60):
        while (body := await health(web_server))["platforms"]["telegram"]["state"] != state:
            pass
        return body


@pytest.mark.long
async def test_a_held_part_is_counted_and_logged_until_it_is_decided_about(
    open_server: ServerFactory, caplog: pytest.LogCaptureFixture
) -> None:
    time_source = TimeSource(sleep=lambda seconds: asyncio.sleep(0))
    async with Emulator() as telegram:
        settings = telegram.settings(telegram.add_bot(TOKEN))
        async with open_server(settings={**settings, "TELEGRAM_UNCLEAR": "hold"}) as web_server:
            adapter = TelegramAdapter(web_server.runtime.handles, time_source=time_source)
            await web_server.runtime.connect(adapter)
            await wait_for_state(web_server, "connected")
            assert (await health(web_server))["held"] == 0
            telegram.faults.append(Fault("sendMessage", 500, "oops", is_late=True))
            kim = telegram.people.add_user("Kim")
            telegram.people.say(telegram.people.open_private_chat(kim), kim, "Hello")
            async with asyncio.timeout(60):
                while not (body := await health(web_server))["held"]:
                    pass
            assert (body["status"], body["held"]) == ("degraded", 1)
            [part] = (await web_server.get("/api/outbox"))["parts"]
            [error] = [record for record in caplog.records if record.levelname == "ERROR"]
            assert f"bot outbox send {part['id']}" in error.getMessage()
            await web_server.post(f"/api/outbox/{part['id']}/drop", {})
            assert (await health(web_server))["held"] == 0
