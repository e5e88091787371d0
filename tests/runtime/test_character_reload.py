"""A changed character file in a running agent: what is taken up, what waits for a start, what is refused."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.cli.characters import load_character_config
from bot.cli.commands.run import reload_on_change
from bot.domain.character import Character
from bot.domain.environment import ChannelType
from bot.domain.events import CharacterReloaded
from bot.domain.ledger import DegradeStep, Outcome, Receipt
from bot.inbound.agent_handle import ReloadResult
from bot.models import ModelType
from bot.outbound.outbox import VoiceReplies
from bot.runtime.agent_runtime import AgentRuntime
from bot.runtime.runtime import Runtime
from bot.testing import RecordingAdapter, ScriptedModel, make_message
from tests.trust import trust_code

ADA: dict[str, Any] = {"name": "Ada", "bio": "Counts waves.", "plugins": ["./mine"]}
PLUGIN = "from bot import Plugin\nplugin = Plugin('mine')\n"
TRAP = "raise SystemExit('it ran')\n"
UNUSED = ("sql", "offline")  # of the bundled plugins that the file would bring


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("BOT_DATA_DIR", "DATABASE_URL", "POSTGRES_URL", "OPENAI_API_KEY", "CONVERSATION_LENGTH"):
        monkeypatch.delenv(name, raising=False)
    write_text("mine.py", PLUGIN)
    trust_code(tmp_path)
    write()
    return tmp_path


def write(**changes: Any) -> None:
    write_text("ada.json", json.dumps(ADA | changes, indent=1))


def write_text(name: str, text: str) -> None:
    Path(name).write_text(text, encoding="utf-8")


def link(name: str, target: Path) -> None:
    """Replace a file by a symbolic link."""
    Path("new").symlink_to(target)
    Path("new").replace(name)


class Running:
    """A running agent whose character was loaded from `ada.json`."""

    def __init__(self, runtime: Runtime, model: ScriptedModel) -> None:
        self.runtime, self.model = runtime, model
        self.events: asyncio.Queue[CharacterReloaded] = asyncio.Queue()
        self.agent_runtime.agent.events.subscribe(CharacterReloaded, self._record)

    async def _record(self, event: CharacterReloaded) -> None:
        self.events.put_nowait(event)

    @property
    def agent_runtime(self) -> AgentRuntime:
        [agent_runtime] = self.runtime.agents
        return agent_runtime

    @property
    def character(self) -> Character:
        return self.agent_runtime.agent.character

    async def reload(self, **changes: Any) -> ReloadResult:
        write(**changes)
        return await self.agent_runtime.handle.reload()

    async def send(self, text: str, **details: Any) -> Receipt:
        message = make_message(text, sent_at=self.agent_runtime.agent.clock(), **details)
        receipt = await self.agent_runtime.inbox.submit(message)
        return await self.agent_runtime.inbox.wait_outcome(receipt.id)

    async def prompt_for(self, text: str) -> str:
        """Send a message; return the prompt of its answer."""
        await self.send(text)
        request = self.model.requests[-1]
        return f"{request.system}\n{request.prompt}"


@asynccontextmanager
async def running() -> AsyncIterator[Running]:
    model = ScriptedModel()
    config = load_character_config(Path("ada.json")).agent_config
    plugins = tuple(plugin for plugin in config.plugins if plugin.name not in UNUSED)
    async with Runtime([replace(config, plugins=(*plugins, model.plugin))], is_strict=True) as runtime:
        await runtime.connect(RecordingAdapter())
        yield Running(runtime, model)


async def test_a_changed_character_answers_in_the_conversations_that_it_had() -> None:
    async with running() as bot:
        assert "Counts waves." in await bot.prompt_for("Who are you?")
        result = await bot.reload(bio="Counts gulls.", style={"chat": ["Speak in rhymes."]})
        prompt = await bot.prompt_for("And now?")
        assert (await bot.events.get()).changed == ("bio", "style")
    assert result == ReloadResult("ada.json", ("bio", "style"))
    assert all(text in prompt for text in ("Counts gulls.", "Speak in rhymes.", "Who are you?"))
    assert "Counts waves." not in prompt


async def test_how_answers_degrade_is_taken_up_with_the_phrases_of_a_step_that_is_new() -> None:
    async with running() as bot:
        agent = bot.agent_runtime.agent
        assert not agent.models.has_handler_for(ModelType.TEXT_OFFLINE)
        result = await bot.reload(settings={"DEGRADE": "90:offline"})
        assert result.changed == ("settings.DEGRADE",)
        assert agent.budget.steps == ((0.9, DegradeStep.OFFLINE),)
        assert agent.models.has_handler_for(ModelType.TEXT_OFFLINE)
        assert "DEGRADE" in (await bot.reload(settings={"DEGRADE": "90:sleepy"})).error
        assert agent.budget.steps == ((0.9, DegradeStep.OFFLINE),)


async def test_a_file_that_has_not_changed_changes_nothing() -> None:
    async with running() as bot:
        assert await bot.reload() == ReloadResult("ada.json")
        await bot.agent_runtime.agent.events.flush()
    assert bot.events.empty()


async def test_changed_templates_and_settings_of_the_core_count_from_the_next_message_on() -> None:
    template = "Answer {{agentName}}'s guest in one word.\n{{providers}}"
    async with running() as bot:
        result = await bot.reload(
            templates={"messageHandlerTemplate": template},
            settings={"CONVERSATION_LENGTH": 3, "RESPOND_TO_BOTS": True, "LATEST_RESPONSE": "queue"},
        )
        assert "Answer Ada's guest in one word." in await bot.prompt_for("Who are you?")
        assert (await bot.send("Who are you?", author="Bob", is_bot=True)).outcome is Outcome.ANSWERED
        assert bot.agent_runtime.agent.settings.get("CONVERSATION_LENGTH") == "3"
    assert result.changed == (
        "templates",
        "settings.CONVERSATION_LENGTH",
        "settings.LATEST_RESPONSE",
        "settings.RESPOND_TO_BOTS",
    )


async def test_which_replies_are_spoken_may_change_while_the_bot_runs() -> None:
    async with running() as bot:
        result = await bot.reload(settings={"VOICE_REPLIES": "always"})
        assert bot.agent_runtime.agent.speech.mode is VoiceReplies.ALWAYS
    assert (result.changed, result.needs_restart) == (("settings.VOICE_REPLIES",), ())


async def test_changed_rules_of_rooms_are_those_that_adapters_ask() -> None:
    async with running() as bot:
        rules = bot.agent_runtime.handle.room_rules
        result = await bot.reload(settings={"discord": {"rooms": {"7": {"answers": "ignore"}}}})
        assert rules.find("discord", "7").is_ignored
        assert result.changed == ("settings.discord",)
        await bot.reload()
        assert not rules.find("discord", "7").is_ignored


async def test_what_is_used_at_a_start_only_is_named_and_stays(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bot.runtime.character_reload")
    async with running() as bot:
        agent_id = bot.agent_runtime.agent.id
        result = await bot.reload(
            name="Bea",
            bio="Counts gulls.",
            plugins=["./mine", "openai"],
            adapters=["discord"],
            settings={"OPENAI_LARGE_MODEL": "gpt-5"},
            secrets={"DISCORD_API_TOKEN": "a-token-that-is-new"},
            knowledge=[{"directory": "docs"}],
        )
        assert (bot.character.name, bot.character.plugins, bot.character.adapters) == ("Ada", ("./mine",), ())
        assert bot.agent_runtime.agent.id == agent_id
        again = await bot.agent_runtime.handle.reload()
    assert result.changed == ("bio",)
    assert result.needs_restart == (
        *("plugins", "adapters", "name", "knowledge"),
        *("DISCORD_API_TOKEN", "OPENAI_LARGE_MODEL"),
    )
    assert again == replace(result, changed=())  # as long as the bot runs
    assert "a-token-that-is-new" not in caplog.text
    assert "Ada: taken up from ada.json: bio" in caplog.text
    assert "Ada: after the next start only, because the bot runs: plugins, adapters, name" in caplog.text


async def test_a_character_with_an_id_may_be_renamed_while_it_runs() -> None:
    own_id = "0b7e2b5e-6a9f-4a52-9d0e-3f1a5f0f2a11"
    write(id=own_id)
    async with running() as bot:
        assert await bot.reload(id=own_id, name="Bea") == ReloadResult("ada.json", ("name",))
        agent = bot.agent_runtime.agent
        entity = (await agent.store.entities.entities([agent.id]))[agent.id]
        assert (agent.name, bot.agent_runtime.handle.character.name, entity.names[0]) == ("Bea", "Bea", "Bea")
        assert (await bot.send("Bea, are you there?", kind=ChannelType.GROUP)).outcome is Outcome.ANSWERED


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"name": "Ada",\n "bio": ["sk-secret" }', "ada.json:2:22: "),
        ('{"name": "Ada",\n "settings": {"CONVERSATION_LENGTH": "many"}}', "CONVERSATION_LENGTH (in the character's"),
        ('{"name": "Ada",\n "settings": {"x": {"rooms": {"1": "no"}}}}', "settings.x.rooms.1: it must read like"),
        ('{"name": "Ada",\n "templates": {"messageHandlerTemplate": "{{#if"}}', "ada.json:2:42: "),
        ('{"name": "Ada",\n "plugins": ["./other"]}', "ada.json:2:14: plugins[0]: plugin './other': there is no "),
    ],
    ids=["no JSON", "wrong setting", "wrong rule", "wrong template", "no such plugin"],
)
async def test_a_wrong_file_changes_nothing_and_is_logged_once_with_its_place(
    caplog: pytest.LogCaptureFixture, content: str, problem: str
) -> None:
    async with running() as bot:
        before = bot.agent_runtime.agent.read_definition()
        write_text("ada.json", content)
        result = await bot.agent_runtime.handle.reload()
        assert bot.agent_runtime.agent.read_definition() is before
        assert (await bot.send("Are you there?")).outcome is Outcome.ANSWERED
    assert problem in result.error
    assert (result.changed, result.needs_restart) == ((), ())
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert line.startswith("Ada: ada.json is not taken up, the last version runs on: ")
    assert problem in line
    assert "sk-secret" not in line + result.error  # nor any other text of the file


async def test_a_character_whose_code_is_no_longer_trusted_is_not_taken_up() -> None:
    async with running() as bot:
        write_text("mine.py", PLUGIN + TRAP)
        result = await bot.reload(bio="Counts gulls.")
        assert bot.character.bio == ("Counts waves.",)
    assert "plugin './mine' has changed since you trusted it" in result.error


async def test_changed_code_that_is_trusted_waits_for_a_start_and_is_not_run(workdir: Path) -> None:
    async with running() as bot:
        write_text("mine.py", PLUGIN + TRAP)
        write_text("other.py", TRAP)
        trust_code(workdir)
        result = await bot.reload(bio="Counts gulls.", plugins=["./mine", "./other"])
    assert result.changed == ("bio",)
    assert result.needs_restart == ("plugins", "the code of ./mine")


async def test_a_character_without_a_file_says_so(workdir: Path) -> None:
    model = ScriptedModel()
    config = replace(load_character_config(Path("ada.json")).agent_config, plugins=(model.plugin,), reload=None)
    async with Runtime([config]) as runtime:
        result = await runtime.handles[0].reload()
    assert result == ReloadResult(error="this character was not loaded from a file")


class Wakes:
    """Makes a watcher look at the files when the test says so."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Collection[Path]] = asyncio.Queue()
        self.folders: asyncio.Future[Collection[Path]] = asyncio.Future()

    async def __call__(self, folders: Collection[Path]) -> AsyncGenerator[Collection[Path], None]:
        self.folders.set_result(folders)
        while True:
            yield await self.queue.get()


@asynccontextmanager
async def watching(bot: Running) -> AsyncIterator[Wakes]:
    wakes = Wakes()
    config = load_character_config(Path("ada.json"))
    task = asyncio.create_task(reload_on_change([config], bot.runtime.handles, wakes))
    await wakes.folders
    yield wakes
    task.cancel()
    await asyncio.wait([task])


async def test_a_running_bot_takes_up_a_changed_file_by_itself_also_behind_a_link(workdir: Path) -> None:
    folder = workdir / "versions"
    folder.mkdir()
    for number, bio in ((1, "Counts waves."), (2, "Counts gulls.")):
        write_text(f"versions/{number}.json", json.dumps({"name": "Ada", "bio": bio}))
    link("ada.json", folder / "1.json")
    async with running() as bot, watching(bot) as wakes:
        assert wakes.folders.result() == {workdir, folder}
        link("ada.json", folder / "2.json")
        wakes.queue.put_nowait(())
        await bot.events.get()
        assert bot.character.bio == ("Counts gulls.",)


async def test_a_file_that_is_just_being_replaced_is_not_read(workdir: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running() as bot, watching(bot) as wakes:
        for name in ("bot.log", "ada.json"):
            remove("ada.json")
            wakes.queue.put_nowait([workdir / name])
            await wait_taken(wakes.queue)
        write(bio="Counts gulls.")
        wakes.queue.put_nowait([workdir / "ada.json"])
        await bot.events.get()
        assert bot.character.bio == ("Counts gulls.",)
    assert not caplog.records


def remove(name: str) -> None:
    Path(name).unlink(missing_ok=True)


async def wait_taken(queue: asyncio.Queue[Collection[Path]]) -> None:
    """Wait until the watcher has come back for the next item."""
    for _ in range(10_000):
        if queue.empty():
            return
        await asyncio.sleep(0)
