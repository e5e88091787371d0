"""The emulator enforces the rules of X."""

import pytest
from aiohttp import ClientSession

from adapters.x.emulator import Emulator, start_emulator
from bot.platform import NotSent
from bot.testing import ManualClock
from tests.adapters.x.conftest import RunX


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X_API_KEY", "another-api-key"),
        ("X_API_SECRET", "another-api-secret"),
        ("X_ACCESS_TOKEN", "1000-anotherToken"),
        ("X_ACCESS_TOKEN_SECRET", "another-token-secret"),
    ],
)
async def test_a_request_that_is_signed_with_another_key_is_refused(
    name: str, value: str, run_x: RunX, emulator: Emulator
) -> None:
    async with run_x(X_REPLY_ENABLE="false", **{name: value}) as harness:
        with pytest.raises(NotSent, match="refuses the keys"):
            await harness.account.connection.read_own_user()


async def test_a_signed_request_is_accepted_once(run_x: RunX, emulator: Emulator) -> None:
    async with run_x(X_REPLY_ENABLE="false") as harness:
        assert (await harness.account.connection.read_own_user()).username == "greenroom_bot"
        assert [call.status for call in emulator.calls] == [200]


async def test_an_exhausted_limit_is_reported_and_renewed(run_x: RunX, emulator: Emulator, clock: ManualClock) -> None:
    emulator.limits["GET /2/users/me"] = (2, 900.0)
    async with run_x(X_REPLY_ENABLE="false") as harness:
        for _ in range(2):
            await harness.account.connection.read_own_user()
        with pytest.raises(NotSent) as refusal:
            await harness.account.connection.read_own_user()
        assert refusal.value.retry_after == 901.0
        assert len(emulator.calls) == 2
        clock.advance(901)
        await harness.account.connection.read_own_user()


async def test_the_page_sends_messages_to_a_character() -> None:
    async with start_emulator(["Ada", "Ada!"]) as trial, ClientSession(trial.url) as session:
        assert [settings["X_ACCESS_TOKEN"] for settings in trial.settings.values()] == [
            "1000-emulatedAccessToken",
            "1001-emulatedAccessToken",
        ]
        async with session.get("/") as page:
            assert "X emulator" in await page.text()
        async with session.get("/page/shown") as listed:
            kim = next(person for person in (await listed.json())["places"][0]["people"] if person["name"] == "@kim")
        async with session.post("/page/say", json={"person": kim["id"], "text": "@ada hello"}) as answered:
            assert answered.status == 200
        async with session.post("/page/say", json={"person": "1000", "text": "@ada hello"}) as answered:
            assert answered.status == 400
        async with session.get("/page/shown") as listed:
            [post] = (await listed.json())["said"]
            assert (post["by"], post["text"]) == ("@kim", "@ada hello")


async def test_cross_site_requests_are_refused() -> None:
    async with (
        start_emulator(["Ada"]) as trial,
        ClientSession(trial.url) as session,
        session.post("/page/say", data='{"text": "@ada hello"}') as answered,
    ):
        assert answered.status == 403
