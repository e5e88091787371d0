"""What services, workers, listeners and routes can do with their agent."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from pydantic import Field

from bot import (
    Agent,
    Attachment,
    ChannelType,
    Content,
    Entity,
    MediaKind,
    Memory,
    MemoryKind,
    Outcome,
    Plugin,
    PluginError,
    ProviderResult,
    RecallScope,
    Role,
    Room,
    Secret,
    Service,
    SettingError,
    SettingsModel,
    Task,
    Turn,
    World,
    action,
    command,
    derived_id,
    evaluator,
    new_id,
    on,
    provider,
    worker,
)
from bot.background.maintenance import MemoryRetention
from bot.concurrency import supervisor as supervisor_module
from bot.concurrency.clock import system_clock
from bot.errors import BudgetSpent, InboxClosed, TemplateError
from bot.events import MessageReceived, MessageSent, VoiceMessageSent
from bot.models import Purpose, TextRequest
from bot.plugin_system.registry import Registry
from bot.prompts import render_template
from bot.runtime.agent_runtime import load_stored_settings
from bot.store import InMemoryStore
from bot.store.sql.sqlite.storage import OpenFiles
from bot.testing import (
    AgentHarness,
    RecordingAdapter,
    ScriptedModel,
    make_message,
    make_turn,
    model_answer,
    running_agent,
)

HOOK = Entity(derived_id("hooks", "entity", "CI"), "hooks", "CI", ("CI",))


@action("WAVE", "Wave.")
async def wave(turn: Turn) -> None:
    await turn.reply("*waves*")


@provider("SECRET_PLAN", "What is planned.", hidden=True)
def secret_plan(turn: Turn) -> ProviderResult:
    return ProviderResult(text=f"The plan for {turn.author.name}: wait.", values={"plan": "wait"})


@evaluator("COUNT", "Counts.", always_run=True)
async def count(turn: Turn) -> None: ...


async def until(holds: object) -> None:
    for _ in range(1_000):
        if holds():  # type: ignore[operator]
            return
        await asyncio.sleep(0)
    pytest.fail("it does not come to that")


async def lobby(harness: AgentHarness, kind: ChannelType = ChannelType.DM) -> Room:
    """Return a room in which one message was answered."""
    await harness.send("Hello", kind=kind)
    [room] = await harness.agent.store.worlds.rooms()
    return room


async def test_components_are_registered_and_removed_while_the_agent_runs() -> None:
    model = ScriptedModel(model_answer(actions=["WAVE"]))
    async with running_agent(Plugin("waving"), model=model) as harness:
        components = harness.agent.components
        removals = [components.register("waving", component) for component in (wave, secret_plan, count)]
        await harness.send("Wave!")
        assert harness.texts == ["*waves*"]
        assert "- WAVE: Wave." in model.requests[0].prompt
        assert [spec.plugin for spec in components.catalog.actions if spec.name == "WAVE"] == ["waving"]
        assert harness.agent_runtime.handle.catalog is components.catalog
        for remove in (*removals, *removals):
            remove()
        await harness.send("Wave!")
        assert "WAVE" not in harness.model.requests_for(Purpose.REPLY)[-1].prompt.partition("# Conversation")[0]
        assert "WAVE" not in [spec.name for spec in components.catalog.actions]


async def test_a_component_that_cannot_be_registered_is_refused_and_changes_nothing() -> None:
    @command("wave", "Wave.")
    async def wave_command(context: object) -> str:
        return ""

    async with running_agent(Plugin("waving", actions=[wave])) as harness:
        components, before = harness.agent.components, harness.agent.catalog
        with pytest.raises(PluginError, match="action WAVE is brought by plugin 'waving'"):
            components.register("waving", wave)
        with pytest.raises(PluginError, match="cannot register a Command while the agent runs"):
            components.register("waving", wave_command)
        with pytest.raises(PluginError, match="this agent has no plugin 'other'"):
            components.register("other", secret_plan)
        assert components.catalog == before


async def test_a_component_takes_the_place_of_the_plugins_own_until_it_is_removed() -> None:
    @action("WAVE", "Wave slowly.")
    async def wave_slowly(turn: Turn) -> None: ...

    async with running_agent(Plugin("waving", actions=[wave]), Plugin("other")) as harness:
        components, registry = harness.agent.components, harness.agent_runtime.registry
        remove = components.register("waving", wave_slowly, replaces_own=True)
        assert registry.actions["WAVE"] is wave_slowly
        with pytest.raises(PluginError, match="action WAVE is brought by plugin 'waving'"):
            components.register("other", wave, replaces_own=True)
        assert registry.actions["WAVE"] is wave_slowly
        remove()
        assert registry.actions["WAVE"] is wave


async def test_a_registered_listener_is_called_until_it_is_removed() -> None:
    texts: list[str] = []

    @on(MessageReceived)
    def note(agent: Agent, event: MessageReceived) -> None:
        texts.append(event.message.content.text)

    async with running_agent(Plugin("noting")) as harness:
        remove = harness.agent.components.register("noting", note)
        await harness.send("first")
        remove()
        await harness.send("second")
    assert texts == ["first"]


async def test_a_registered_worker_runs_its_tasks() -> None:
    done = asyncio.Event()

    @worker("LATE")
    async def late(agent: Agent, task: Task) -> None:
        done.set()

    async with running_agent(Plugin("late")) as harness:
        remove = harness.agent.components.register("late", late)
        await harness.agent.schedule(Task(new_id(), "LATE", harness.agent.clock()))
        async with asyncio.timeout(10):
            await done.wait()
        remove()
        assert "LATE" not in harness.agent_runtime.registry.workers


class Fragile(Service):
    """Registers an action and dies in a background task on request."""

    starts: list["Fragile"] = []  # noqa: RUF012  # each test has its own subclass

    async def __aenter__(self) -> Self:
        self.die = asyncio.Event()
        self.steps: list[str] = []
        self.starts.append(self)
        self.register(wave)
        self.start_task(self.work())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.steps.append("stopped")

    async def work(self) -> None:
        try:
            await self.die.wait()
        finally:
            self.steps.append("task ended")
        raise ConnectionError("the socket closed")


@pytest.mark.parametrize("error", [ConnectionError("the socket closed"), SystemExit(3)])
async def test_a_service_whose_background_task_dies_is_restarted_with_its_components(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    monkeypatch.setattr(supervisor_module, "FIRST_DELAY_SECONDS", 0)

    class Dying(Fragile):
        starts: list[Fragile] = []  # noqa: RUF012

        async def work(self) -> None:
            await self.die.wait()
            raise error

    async with running_agent(Plugin("dying", services=[Dying])) as harness:
        first = harness.agent.services[Dying]
        assert "WAVE" in harness.agent_runtime.registry.actions
        first.die.set()
        await until(lambda: len(Dying.starts) == 2 and Dying in harness.agent.services)
        assert harness.agent.services[Dying] is not first
        assert first.steps == ["stopped"]
        assert "WAVE" in harness.agent_runtime.registry.actions
    assert (
        f"service Dying is not running: {'ConnectionError' if isinstance(error, ConnectionError) else 'RuntimeError'}"
        in (caplog.text)
    )


async def test_a_stopping_service_ends_its_tasks_first_and_removes_its_components() -> None:
    class Ending(Fragile):
        starts: list[Fragile] = []  # noqa: RUF012

    async with running_agent(Plugin("ending", services=[Ending])) as harness:
        registry = harness.agent_runtime.registry
        await asyncio.sleep(0)
    assert Ending.starts[0].steps == ["task ended", "stopped"]
    assert "WAVE" not in registry.actions


async def test_a_service_outside_of_an_agent_has_no_tasks_and_components() -> None:
    async with running_agent() as harness:
        service = Fragile(harness.agent)
        with pytest.raises(PluginError, match="service Fragile is not run by an agent"):
            await service.__aenter__()


async def test_state_and_prompt_of_a_room_are_composed_outside_of_a_message() -> None:
    async with running_agent(Plugin("planning", providers=[secret_plan])) as harness:
        room = await lobby(harness)
        default = await harness.agent.rooms.compose(room)
        assert "Hello" in default.text
        assert "SECRET_PLAN" not in default.composed_providers
        alice = make_turn(harness.agent).author
        only = await harness.agent.rooms.compose(room, ["SECRET_PLAN"], only_included=True, author=alice, text="Hm?")
        assert only.text == "The plan for Alice: wait."
        assert render_template("{{agentName}} will {{plan}}: {{messageText}}", only.values) == "Ada will wait: Hm?"
        both = await harness.agent.rooms.compose(room, ["SECRET_PLAN"])
        assert {"SECRET_PLAN", "RECENT_MESSAGES"} <= set(both.composed_providers)
        prompt = harness.agent.render("messageHandlerTemplate", both.values)
        assert "Write what Ada says" in prompt
        assert "The plan for Ada: wait." in prompt
        with pytest.raises(TemplateError, match="did you mean 'messageHandlerTemplate'"):
            harness.agent.render("mesageHandlerTemplate", {})


async def test_a_message_of_a_plugin_is_answered_in_the_room_and_stored_once() -> None:
    async with running_agent() as harness:
        room = await lobby(harness, ChannelType.GROUP)
        rooms = harness.agent.rooms
        receipts = [await rooms.submit(room, "The build is red.", author=HOOK, key="build-7") for _ in range(2)]
        assert receipts[0].id == receipts[1].id
        receipt = await rooms.wait_outcome(receipts[0].id)
        await harness.agent.outbox.drain(5)
        assert receipt.outcome is Outcome.ANSWERED
        assert "The build is red." in harness.model.requests_for(Purpose.REPLY)[-1].prompt
        stored = await harness.agent.store.worlds.world(room.world_id)
        assert stored is not None
        assert stored.role_of(HOOK.id) is Role.NONE
        assert (
            len([item for item in await harness.agent.store.memories.recent(room.id) if item.entity_id == HOOK.id]) == 1
        )


@pytest.mark.parametrize("requires", [[], ["sql"]])
async def test_messages_of_plugins_differ_by_their_keys_and_are_no_messages_of_the_platform(
    requires: list[str], tmp_path: Path
) -> None:
    async with running_agent(Plugin("p", requires=requires), settings={"BOT_DATA_DIR": str(tmp_path)}) as harness:
        await harness.send("Hello", message_id="41")
        [room] = await harness.agent.store.worlds.rooms()
        receipts = [
            await harness.agent.rooms.submit(room, f"Build {key}", author=HOOK, key=key) for key in ("1", "2", "2")
        ]
        for receipt in receipts:
            await harness.agent.rooms.wait_outcome(receipt.id)
        await harness.agent.outbox.drain(5)
        assert len({receipt.id for receipt in receipts}) == 2
        assert all(delivery.reply_to in ("41", "") for delivery in harness.adapter.sent)
        assert await harness.agent.store.ledger.last_message_ids([room.id]) == {room.id: "41"}


async def test_a_person_of_the_platform_keeps_their_role_and_another_author_may_be_given_a_role() -> None:
    async with running_agent() as harness:
        await harness.send("Hello", author="Alice", role=Role.ADMIN)
        [room] = await harness.agent.store.worlds.rooms()
        alice = make_turn(harness.agent, author="Alice").author
        builder = replace(HOOK, id=new_id())
        for author, role in ((alice, None), (builder, Role.MEMBER), (HOOK, None)):
            key = str(author.id)
            receipt = await harness.agent.rooms.submit(room, "On my behalf", author=author, key=key, role=role)
            await harness.agent.rooms.wait_outcome(receipt.id)
        world = await harness.agent.store.worlds.world(room.world_id)
        assert world is not None
        assert [world.role_of(author.id) for author in (alice, builder, HOOK)] == [Role.ADMIN, Role.MEMBER, Role.NONE]


class FileAdapter(RecordingAdapter):
    """A platform that takes files next to a text."""

    def split_content(self, content: Content) -> list[Content]:
        return [content]


@pytest.mark.parametrize("kind", [MediaKind.AUDIO, MediaKind.IMAGE])
async def test_a_sent_recording_is_reported_to_listeners_as_a_voice_message(kind: MediaKind) -> None:
    events: list[MessageSent] = []

    @on(MessageSent)
    def note(agent: Agent, event: MessageSent) -> None:
        events.append(event)

    async with running_agent(Plugin("noting", listeners=[note]), adapter=FileAdapter()) as harness:
        room = make_message("", sent_at=harness.agent.clock()).room
        content = Content(text="Listen", attachments=(Attachment("1", kind, data=b"x"),))
        sent = await harness.agent.say(room, content)
        await harness.agent.outbox.drain(5)
    assert sent is not None
    [event] = events
    assert isinstance(event, VoiceMessageSent) is (kind is MediaKind.AUDIO)
    assert event.message_id == sent.id


async def test_messages_are_refused_while_the_agent_starts() -> None:
    refusals: list[str] = []

    async def init(agent: Agent) -> None:
        room = make_message("", sent_at=agent.clock()).room
        with suppress(InboxClosed):
            await agent.rooms.submit(room, "Too early", author=HOOK, key="1")
            return
        refusals.append("refused")

    async with running_agent(Plugin("early", init=init)):
        assert refusals == ["refused"]


async def test_a_room_is_found_by_its_id_on_the_platform() -> None:
    async with running_agent() as harness:
        room = await lobby(harness)
        rooms = harness.agent.rooms
        assert await rooms.find("test", "lobby") == room
        assert await rooms.find("test", "lobby", account="account") == room
        assert await rooms.find("test", "lobby", account="another") is None
        assert await rooms.find("other", "lobby") is None
        found = await rooms.find("test", "lobby")
        assert found is not None
        await harness.agent.say(found, "By id")
        await harness.agent.outbox.drain(5)
        assert harness.texts[-1] == "By id"


class OpeningAdapter(RecordingAdapter):
    """A platform on which an agent can begin a private chat."""

    async def open_direct(self, agent_id: object, person: Entity) -> tuple[World, Room] | None:
        if person.name != "Bob":
            return None
        world = World(derived_id("test", "direct"), "test", "direct")
        room_id = derived_id("test", "direct", person.external_id)
        return world, Room(room_id, world.id, ChannelType.DM, "test", f"direct-{person.external_id}", "account")


async def test_a_private_message_opens_the_chat_where_the_platform_can() -> None:
    async with running_agent(adapter=OpeningAdapter()) as harness:
        agent = harness.agent
        for author in ("Alice", "Bob"):
            await harness.send("Hello", kind=ChannelType.GROUP, author=author)
        people = {
            item.name: item
            for item in await agent.store.entities.participants((await agent.store.worlds.rooms())[0].id)
        }
        assert await agent.say_to(people["Alice"].id, "psst") is None
        sent = await agent.say_to(people["Bob"].id, "psst", key="once")
        assert sent is not None
        assert (await agent.say_to(people["Bob"].id, "psst", key="once")) == sent
        await agent.outbox.drain(5)
        assert harness.adapter.sent[-1].target == "direct-Bob"
        assert harness.texts.count("psst") == 1
        room = await agent.store.worlds.room(sent.room_id)
        assert room is not None
        assert room.type is ChannelType.DM


async def test_a_platform_that_cannot_begin_a_chat_leaves_the_message_unsent() -> None:
    async with running_agent() as harness:
        await harness.send("Hello", kind=ChannelType.GROUP)
        assert await harness.agent.say_to(make_turn(harness.agent).author.id, "psst") is None
        assert await harness.agent.rooms.open_direct(replace(HOOK, platform="unknown")) is None


async def test_model_calls_outside_of_a_message_are_charged_to_a_room_within_its_budget() -> None:
    settings = {"BUDGET_TOKENS_PER_ROOM": "10000"}
    async with running_agent(settings=settings) as harness:
        agent = harness.agent
        room = make_message("", sent_at=agent.clock()).room
        other = replace(room, id=new_id())
        request = TextRequest("A digest, please. " * 500, max_tokens=10)
        with pytest.raises(BudgetSpent):  # noqa: PT012
            for _ in range(50):
                with agent.rooms.charge(room):
                    await agent.models.text(request)
        with agent.rooms.charge(other):
            await agent.models.text(request)
        await agent.models.text(request)
        today = system_clock().date()
        costs = await harness.agent_runtime.handle.conversations.costs(today - timedelta(days=1), today)
        assert {room.id, other.id} <= {cost.room_id for cost in costs}


class DigestSettings(SettingsModel):
    """Variables of a plugin."""

    digest_hour: int = Field(7, ge=0, le=23)
    digest_minute: int = Field(0, ge=0, le=59)
    digest_api_key: Secret | None = None


async def test_a_plugin_sets_its_own_variables_for_now_and_after_a_restart() -> None:
    plugin, store = Plugin("digest", settings=DigestSettings), InMemoryStore()
    operator = {"DIGEST_HOUR": "8"}
    async with running_agent(plugin, settings=operator, store=store) as harness:
        settings, components = harness.agent.settings, harness.agent.components
        assert settings.load(DigestSettings).digest_hour == 8
        await components.set_setting("digest", "DIGEST_HOUR", "9")
        assert settings.load(DigestSettings).digest_hour == 9
    async with running_agent(plugin, settings=operator, store=store) as harness:
        assert harness.agent.settings.load(DigestSettings).digest_hour == 9
        await harness.agent.components.set_setting("digest", "DIGEST_HOUR", "")
        assert harness.agent.settings.load(DigestSettings).digest_hour == 8


async def test_variables_that_a_plugin_sets_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    plugin, path = Plugin("digest", settings=DigestSettings), tmp_path / "greenroom.db"
    async with OpenFiles().open_store(path, derived_id("agent", "Ada")) as store:
        async with running_agent(plugin, store=store) as harness:
            values = {"DIGEST_HOUR": "9", "DIGEST_MINUTE": "30"}
            set_setting = partial(harness.agent.components.set_setting, "digest")
            await asyncio.gather(*(set_setting(name, value) for name, value in values.items()))
        assert await load_stored_settings(store, [plugin]) == values


@pytest.mark.parametrize(
    ("plugin", "name", "value", "message"),
    [
        ("digest", "DIGEST_HOUR", "25", "DIGEST_HOUR"),
        ("digest", "DIGEST_HOURS", "9", "no setting that plugin 'digest' declares: did you mean DIGEST_HOUR"),
        ("digest", "CONVERSATION_LENGTH", "9", "no setting that plugin 'digest' declares"),
        ("digest", "DIGEST_API_KEY", "abcdefgh", "is a secret: only the operator sets it"),
        ("plain", "DIGEST_HOUR", "9", "no setting that plugin 'plain' declares"),
    ],
)
async def test_a_plugin_can_set_no_other_variables_and_no_wrong_values(
    plugin: str, name: str, value: str, message: str
) -> None:
    async with running_agent(Plugin("digest", settings=DigestSettings), Plugin("plain")) as harness:
        with pytest.raises(SettingError, match=message):
            await harness.agent.components.set_setting(plugin, name, value)
        assert harness.agent.settings.load(DigestSettings).digest_hour == 7


async def test_memories_are_searched_across_the_rooms_that_a_person_may_see() -> None:
    async with running_agent() as harness:
        memories = harness.agent.store.memories
        for author, room, word in (("Alice", "a", "anchor"), ("Alice", "b", "buoy"), ("Bob", "c", "capstan")):
            await harness.send(f"The {word} is lost", author=author, room=room)
        alice, bob = (make_turn(harness.agent, author=name).author.id for name in ("Alice", "Bob"))
        for person, words in ((alice, ["anchor", "buoy"]), (bob, ["capstan"]), (new_id(), [])):
            scope = await harness.agent.rooms.visible_to(person)
            found = [await memories.search(word, scope, MemoryKind.MESSAGE) for word in ("anchor", "buoy", "capstan")]
            assert [memory.content.text.split()[1] for matches in found for memory in matches] == words


KIND, DAY = MemoryKind("DIARY_ENTRY"), timedelta(days=1)


@pytest.mark.parametrize("requires", [[], ["sql"]])
async def test_memories_of_a_declared_kind_are_found_and_deleted_when_their_time_is_over(
    requires: list[str], tmp_path: Path
) -> None:
    plugin = Plugin("diary", memory_kinds={"DIARY_ENTRY": timedelta(days=2)}, requires=requires)
    async with running_agent(plugin, settings={"BOT_DATA_DIR": str(tmp_path)}) as harness:
        room = await lobby(harness)
        memories, now = harness.agent.store.memories, harness.agent.clock()
        entries = [
            Memory(
                new_id(), KIND, HOOK.id, room.id, room.world_id, Content(text=f"day {age}"), now - timedelta(days=age)
            )
            for age in (3, 1)
        ]
        await memories.add(entries)
        assert [entry.kind for entry in await memories.recent(room.id, kind=KIND)] == [KIND, KIND]
        assert len(await memories.search("day", RecallScope(room.id, room.world_id), KIND)) == 2
        retention = MemoryRetention(memories, harness.agent_runtime.registry.memory_kinds, harness.agent.clock)
        assert await retention.delete_expired() == 1
        assert [entry.content.text for entry in await memories.recent(room.id, kind=KIND)] == ["day 1"]
        assert await memories.count(MemoryKind.MESSAGE) == 2


async def test_expired_memories_are_deleted_when_an_agent_starts() -> None:
    store, now = InMemoryStore(), system_clock()
    old = Memory(new_id(), KIND, HOOK.id, new_id(), new_id(), Content(text="old"), now - timedelta(days=3))
    await store.memories.add([old])
    plugin = Plugin("diary", memory_kinds={"DIARY_ENTRY": timedelta(days=2)})
    async with running_agent(plugin, store=store):
        for _ in range(1_000):
            if not await store.memories.count(KIND):
                return
            await asyncio.sleep(0)
    pytest.fail("it is not deleted")


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ({"MESSAGE": timedelta(1)}, "'MESSAGE' cannot be a kind of memories"),
        ({"DIARY": timedelta(1)}, "'DIARY' cannot be a kind of memories"),
        ({"ACTION_RESULT": timedelta(1)}, "'ACTION_RESULT' cannot be a kind of memories"),
        ({"DIARY_ENTRY": timedelta(0)}, "DIARY_ENTRY would not be stored at all"),
    ],
)
def test_a_wrong_kind_of_memories_is_refused(kinds: dict[str, timedelta], message: str) -> None:
    with pytest.raises(PluginError, match=message):
        Registry([Plugin("diary", memory_kinds=kinds)])
    with pytest.raises(ValueError, match="diary"):
        MemoryKind("diary entry")


def test_two_plugins_cannot_declare_the_same_kind_of_memories() -> None:
    plugins = [Plugin(name, memory_kinds={"DIARY_ENTRY": timedelta(1)}) for name in ("one", "two")]
    with pytest.raises(PluginError, match="DIARY_ENTRY is declared by plugin 'one' and by plugin 'two'"):
        Registry(plugins)
