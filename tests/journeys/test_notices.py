"""The AI notice on Discord, Telegram, X and in the terminal; for the page and the API see `tests/adapters/web`."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bot import AgentConfig, Character, Runtime, Settings
from bot.settings import Layer
from bot.store import InMemoryStore
from bot.testing import ScriptedModel, model_answer
from plugins.bootstrap import plugin as bootstrap
from tests.chaos.program import inherited_variables
from tests.journeys.test_three_platforms import Discord, Platform, Telegram, X

NOTICE = "Ada is an AI character. No human writes these messages."
ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def running_on(platform: Platform, store: InMemoryStore, **given: str) -> AsyncIterator[None]:
    """Run the bot on an emulated platform with these settings."""
    settings = Settings([Layer("the test", {**platform.settings, "STREAMING": "false", **given})])
    model = ScriptedModel(model_answer("Aye."))
    config = AgentConfig(Character(name="Ada"), (bootstrap, model.plugin), settings, store)
    async with Runtime([config]) as runtime:
        await runtime.connect(platform.build_adapter(runtime.handles))
        yield


@pytest.mark.parametrize(("kind", "notice"), [(Discord, f"-# {NOTICE}"), (Telegram, NOTICE)])
async def test_the_notice_precedes_the_first_reply_and_no_other(kind: Callable[[], Platform], notice: str) -> None:
    store = InMemoryStore()
    async with kind() as platform:
        async with running_on(platform, store):
            await platform.write(0)
            await platform.wait_for(2)
            await platform.write(1)
            await platform.wait_for(3)
        async with running_on(platform, store):  # after a restart
            await platform.write(2)
            await platform.wait_for(4)
        assert platform.answers() == [notice, "Aye.", "Aye.", "Aye."]


async def test_on_telegram_it_stands_in_italics() -> None:
    async with Telegram() as platform, running_on(platform, InMemoryStore()):
        await platform.write(0)
        await platform.wait_for(2)
        [first, _] = [sent.message for sent in platform.recorder.messages]
        assert [(entity["type"], entity["length"]) for entity in first["entities"]] == [("italic", len(NOTICE))]


@pytest.mark.parametrize(("given", "text"), [({}, "Aye."), ({"AI_NOTICE_POSTS": "on"}, "🤖 AI: Aye.")])
async def test_on_x_the_profile_has_it_and_a_label_stands_on_posts_where_it_is_set(
    given: dict[str, str], text: str
) -> None:
    store = InMemoryStore()
    async with X() as platform:
        async with running_on(platform, store, **given):
            await platform.write(0)
            await platform.wait_for(1)
        assert platform.answers() == [text]
    [room] = await store.worlds.rooms()
    [_, reply] = await store.memories.recent(room.id)
    assert reply.content.text == "Aye."  # the label is nothing that the character has said
    people = await store.entities.participants(room.id)
    disclosures = await store.ledger.disclosures([person.id for person in people])
    assert len(disclosures) == len(given)


@pytest.mark.long
async def test_the_program_gives_it_without_any_setting(tmp_path: Path) -> None:
    environment = inherited_variables("PATH", "HOME", "LANG", "SSL_CERT_FILE") | {
        "BOT_DATA_DIR": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }
    del environment["AI_NOTICE"]
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "bot", "chat")
    chat = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, env=environment, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
    )
    output, _ = await chat.communicate(b"Hello\nAnd again\n")
    first, *others = output.decode().splitlines()
    assert first.startswith("[")
    assert first.endswith(" is an AI character. No human writes these messages.]")
    assert len(others) == 2
    assert not any(line.startswith("[") for line in others)
