"""The emulator: its chat page, Telegram's errors and the checks of `bot doctor`."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession

from adapters.telegram.adapter import PRIVACY_MODE_HINT, check_account
from adapters.telegram.emulator import Emulator, Fault, build_refusal, start_emulator
from adapters.telegram.emulator.fixtures import telegram_emulator  # noqa: F401  # a fixture
from bot import Settings
from bot.settings import Layer
from bot.store import CheckReport
from tests.adapters.telegram.conftest import TOKEN, description, run_character


@pytest.fixture
async def session() -> AsyncIterator[ClientSession]:
    async with ClientSession() as session:
        yield session


async def test_a_user_can_chat_with_the_character_on_the_emulator_page(session: ClientSession) -> None:
    async with Emulator() as emulator, run_character(emulator) as harness:
        async with session.get(emulator.url) as answer:
            assert "Telegram emulator" in await answer.text()
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        async with session.post(f"{emulator.url}/page/say", json={"text": "Hello"}) as answer:
            assert answer.status == 200
        await harness.wait_texts(1)
        async with session.get(f"{emulator.url}/page/shown") as answer:
            shown = (await answer.json())["said"]
    assert [(item["by"], item["text"]) for item in shown] == [("Kim", "Hello"), ("Ada", "You said: Hello")]


async def test_start_emulator_creates_a_bot_and_a_token_per_character(session: ClientSession) -> None:
    async with start_emulator(["Ada", "Zoë!", "猫"]) as trial, session.get(trial.url) as answer:
        assert answer.status == 200
        assert list(trial.settings) == ["Ada", "Zoë!", "猫"]
        assert len({item["TELEGRAM_BOT_TOKEN"] for item in trial.settings.values()}) == 3


async def test_the_fixture_returns_a_running_emulator(telegram_emulator: Emulator) -> None:  # noqa: F811
    assert telegram_emulator.url.startswith("http://127.0.0.1:")


async def test_cross_site_requests_are_rejected(session: ClientSession) -> None:
    async with Emulator() as emulator:
        forms: tuple[dict[str, Any], ...] = (
            {"data": "text=x"},
            {"json": {"text": "x"}, "headers": {"Sec-Fetch-Site": "cross-site"}},
        )
        for form in forms:
            async with session.post(f"{emulator.url}/page/say", **form) as answer:
                assert answer.status == 403


@pytest.mark.parametrize(
    ("method", "parameters", "status", "words"),
    [
        ("sendMessage", {"chat_id": 4711, "text": "x"}, 400, "chat not found"),
        ("sendMessage", {"chat_id": 101, "text": " "}, 400, "text is empty"),
        ("sendMessage", {"chat_id": 101, "text": "😀" * 2049}, 400, "message is too long"),
        (
            "sendMessage",
            {"chat_id": 101, "text": "x", "entities": [{"type": "bold", "offset": 0, "length": 9}]},
            400,
            "parse entities",
        ),
        ("editMessageText", {"chat_id": 101, "message_id": 9, "text": "x"}, 400, "to edit not found"),
        ("getFile", {"file_id": "nothing"}, 400, "invalid file_id"),
        ("noSuchMethod", {}, 404, "not found"),
    ],
)
async def test_the_emulator_rejects_what_telegram_rejects(
    session: ClientSession, method: str, parameters: dict[str, Any], status: int, words: str
) -> None:
    async with Emulator() as emulator:
        emulator.add_bot(TOKEN)
        chat = emulator.people.open_private_chat(emulator.people.add_user("Alice"))
        assert chat["id"] == 101
        async with session.post(f"{emulator.url}/bot{TOKEN}/{method}", json=parameters) as answer:
            assert answer.status == status
            assert words in (await answer.json())["description"]
        async with session.post(f"{emulator.url}/botwrong/{method}", json=parameters) as answer:
            assert answer.status == 401


async def test_in_privacy_mode_a_bot_receives_only_messages_addressed_to_it() -> None:
    async with Emulator(find_problems=description()) as emulator, run_character(emulator, reads_all=False) as harness:
        alice = harness.people.add_user("Alice")
        group = harness.people.add_group("The group", alice)
        harness.people.say(group, alice, "not for the bot")
        harness.people.say(group, alice, "@ada_bot for you")
        harness.people.say(group, alice, "/help@other_bot")
        await harness.wait_texts(1, group)
        assert len(await harness.wait_receipts()) == 1


async def test_calls_that_violate_the_published_schema_are_reported(session: ClientSession) -> None:
    published = description()
    if published is None:
        pytest.skip("the published description is not at hand")
    async with Emulator(find_problems=published) as emulator:
        emulator.add_bot(TOKEN)
        emulator.people.open_private_chat(emulator.people.add_user("Alice"))
        body = {"chat_id": 101, "text": "x", "no_such_parameter": 1}
        async with session.post(f"{emulator.url}/bot{TOKEN}/sendMessage", json=body) as answer:
            assert answer.status == 200
        assert emulator.recorder.problems == ["sendMessage: no_such_parameter is no parameter"]


async def check_emulator(emulator: Emulator, **settings: str) -> CheckReport:
    async def nothing(platform: str, account: str, name: str) -> None:
        return None

    values = {"TELEGRAM_BOT_TOKEN": TOKEN, "TELEGRAM_API_BASE_URL": emulator.url, **settings}
    return await check_account(Settings([Layer("the test", values)]), nothing)


async def test_the_doctor_names_the_bot_and_explains_privacy_mode() -> None:
    async with Emulator(find_problems=description()) as emulator:
        emulator.add_bot(TOKEN, reads_all=False)
        result = await check_emulator(emulator)
    assert (result.facts["bot"], result.facts["groups"], result.problems) == ("@ada_bot", PRIVACY_MODE_HINT, ())


async def test_the_doctor_finds_nothing_wrong_with_a_bot_that_may_not_be_added_to_groups() -> None:
    async with Emulator(find_problems=description()) as emulator:
        emulator.add_bot(TOKEN).user["can_join_groups"] = False
        result = await check_emulator(emulator)
    assert result.exists
    assert result.problems == ()
    assert "/setjoingroups" in str(result.facts["groups"])


@pytest.mark.parametrize("is_on", [True, False])
async def test_the_doctor_names_the_modes_that_are_switched_on_here_and_off_at_botfather(*, is_on: bool) -> None:
    modes = {"supports_guest_queries": is_on, "supports_inline_queries": is_on}
    async with Emulator(find_problems=description()) as emulator:
        emulator.add_bot(TOKEN).user.update(modes)
        result = await check_emulator(emulator, TELEGRAM_GUEST="on", TELEGRAM_INLINE="on")
    assert len([problem for problem in result.problems if "is off at BotFather" in problem]) == (0 if is_on else 2)
    assert {result.facts["guest mode"], result.facts["inline mode"]} == {"on" if is_on else "off"}


async def test_the_doctor_reports_a_foreign_webhook() -> None:
    async with Emulator() as emulator:
        emulator.add_bot(TOKEN).webhook = "https://old.example/hook"
        result = await check_emulator(emulator)
    assert "https://old.example/hook" in result.problems[0]


async def test_the_doctor_distinguishes_a_rejected_token_from_an_unreachable_server() -> None:
    async with Emulator() as emulator:
        refused = await check_emulator(emulator)
        emulator.faults.append(Fault("getMe", 500, build_refusal(500, "Internal Server Error")))
        absent = await check_emulator(emulator)
        emulator.faults.append(Fault("getMe", 200, {"ok": True}))
        stranger = await check_emulator(emulator)
    assert not any(item.exists for item in (refused, absent, stranger))
    assert "BotFather" in refused.problems[0]
    assert "try again" in absent.problems[0]
    assert "not Telegram" in stranger.problems[0]
