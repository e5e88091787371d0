"""Several characters in one process, each with its own token."""

import pytest

from adapters.telegram.adapter import TelegramAdapter, open_telegram
from adapters.telegram.config import read_settings
from adapters.telegram.emulator import Emulator
from bot import AgentConfig, Character, ConfigError, Runtime, Settings
from bot.settings import CHARACTER_FILE, Layer
from bot.store import InMemoryStore
from bot.testing import ScriptedModel, model_answer
from plugins.bootstrap import plugin as bootstrap
from tests.adapters.telegram.conftest import TOKEN, SkippingClock

SECOND = "2000002:not-a-real-token"


def plan(emulator: Emulator, name: str, token: str, **settings: str) -> AgentConfig:
    """Return the configuration of a character that answers with its name."""
    values = {"TELEGRAM_API_BASE_URL": emulator.url, "STREAMING": "false", "AI_NOTICE": "off", **settings}
    layers = [Layer("the test", {**values, "TELEGRAM_BOT_TOKEN": token})]
    model = ScriptedModel(model_answer(f"{name} here."))
    character = Character(name=name, settings={"telegram": {"rooms": {"*": {"answers": "mentions"}}}})
    return AgentConfig(character, (bootstrap, model.plugin), Settings(layers), InMemoryStore())


async def test_each_character_answers_through_its_own_bot() -> None:
    async with Emulator() as emulator:
        emulator.add_bot(TOKEN)
        emulator.add_bot(SECOND, username="bea_bot", name="Bea")
        plans = [plan(emulator, "Ada", TOKEN), plan(emulator, "Bea", SECOND)]
        async with Runtime(plans) as runtime:
            await runtime.connect(TelegramAdapter(runtime.handles, time_source=SkippingClock().time_source))
            alice = emulator.people.add_user("Alice")
            group = emulator.people.add_group("The group", alice)
            emulator.people.say(group, alice, "@bea_bot hello")
            emulator.people.say(group, alice, "@ada_bot hello")
            await emulator.recorder.wait_until(lambda: len(emulator.recorder.messages) == 2)
    texts_by_bot = {item.message["from"]["username"]: item.text for item in emulator.recorder.messages}
    assert texts_by_bot == {"ada_bot": "Ada here.", "bea_bot": "Bea here."}


async def test_two_characters_with_the_same_token_are_rejected_by_name() -> None:
    async with Emulator() as emulator:
        plans = [plan(emulator, "Ada", TOKEN), plan(emulator, "Bea", TOKEN)]
        async with Runtime(plans) as runtime:
            with pytest.raises(ConfigError, match="Ada and Bea have the same TELEGRAM_BOT_TOKEN"):
                open_telegram(runtime.handles)


async def test_webhooks_on_different_ports_are_rejected() -> None:
    hook = {"TELEGRAM_WEBHOOK_URL": "https://bot.example/hook", "TELEGRAM_WEBHOOK_SECRET": "for-tests-only"}
    async with Emulator() as emulator:
        plans = [
            plan(emulator, "Ada", TOKEN, **hook, TELEGRAM_WEBHOOK_PORT="1"),
            plan(emulator, "Bea", SECOND, **hook, TELEGRAM_WEBHOOK_PORT="2"),
        ]
        async with Runtime(plans) as runtime:
            with pytest.raises(ConfigError, match="TELEGRAM_WEBHOOK"):
                open_telegram(runtime.handles)


@pytest.mark.parametrize("name", ["TELEGRAM_API_BASE_URL", "TELEGRAM_WEBHOOK_URL"])
def test_a_character_file_cannot_redirect_the_operators_token_or_updates(name: str) -> None:
    lent = Layer(
        f"{CHARACTER_FILE} settings",
        {name: "https://elsewhere.example", "TELEGRAM_WEBHOOK_SECRET": "x"},
        is_operator=False,
    )
    own = Layer("the environment", {"TELEGRAM_BOT_TOKEN": TOKEN})
    found = read_settings(Settings([lent, own]))
    assert found.is_default(name.lower())
    assert found.telegram_webhook_secret is None
