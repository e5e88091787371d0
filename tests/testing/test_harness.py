"""`bot.testing`: its doubles obey the contracts of the real parts."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Self

import pytest

from bot import (
    ActionResult,
    Agent,
    Attachment,
    Character,
    Content,
    MediaKind,
    Plugin,
    ProviderResult,
    Service,
    Turn,
    action,
    provider,
    testing,
)
from bot.domain.ledger import DeliveryState, Outcome
from bot.errors import DeliveryUnknown, ModelRefused, NotSent, PluginError
from bot.models.types import ModelType, Purpose, TextRequest
from bot.plugin_system import PluginTest, PluginTestSuite
from bot.prompts.reply_parser.reader import read_reply
from bot.store import InMemoryStore
from bot.testing import (
    AgentHarness,
    RecordingAdapter,
    ScriptedModel,
    make_message,
    make_turn,
    model_answer,
    run_plugin_tests,
    running_agent,
)

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


@action("FORECAST", "Tell tomorrow's weather for a city.")
async def forecast(turn: Turn, city: Annotated[str, "The city's name"]) -> ActionResult:
    await turn.reply(f"Tomorrow in {city}: mild.")
    return ActionResult(text="mild", data={"city": city})


@provider("SEASON", "The season.")
async def season(turn: Turn) -> ProviderResult:
    return ProviderResult(text="It is autumn.", authors=())


WEATHER = Plugin("weather", actions=[forecast], providers=[season])


def test_the_public_names_are_listed_and_sorted() -> None:
    assert list(testing.__all__) == sorted(testing.__all__)
    assert all(getattr(testing, name) is not None for name in testing.__all__)


async def test_a_running_agent_answers(agent_harness: AgentHarness) -> None:
    receipt = await agent_harness.send("Hello")

    assert receipt.outcome is Outcome.ANSWERED
    assert agent_harness.texts == ["Hello."]
    assert agent_harness.agent.name == "Ada"
    assert "bootstrap" in agent_harness.agent.catalog.plugins


async def test_every_part_of_the_harness_can_be_configured() -> None:
    model, adapter, store = (ScriptedModel(model_answer("Ahoy.")), RecordingAdapter(max_length=3), InMemoryStore())
    async with running_agent(
        WEATHER,
        model=model,
        character=Character(name="Eve"),
        settings={"CONVERSATION_LENGTH": "3"},
        adapter=adapter,
        store=store,
        clock=lambda: NOW,
    ) as harness:
        receipt = await harness.send("Hello", author="Bob", room="attic")

        assert harness.texts == ["Aho", "y."]
        assert harness.agent.store is store
        assert harness.agent.settings.get("CONVERSATION_LENGTH") == "3"
        assert receipt.received_at == NOW
        assert "It is autumn." in model.requests_for(Purpose.REPLY)[0].prompt
        assert (await store.entities.entities([receipt.author_id]))[receipt.author_id].name == "Bob"


async def test_an_action_runs_through_the_whole_bot() -> None:
    model = ScriptedModel(model_answer(actions=["FORECAST"], parameters={"FORECAST": '{"city": "Köln"}'}))
    async with running_agent(WEATHER, model=model) as harness:
        await harness.send("And tomorrow?")

        assert harness.texts[0] == "Tomorrow in Köln: mild."


async def test_a_component_can_be_called_directly(agent_harness: AgentHarness) -> None:
    turn = make_turn(agent_harness.agent, "And tomorrow?", author="Bob")

    assert (await season(turn)).text == "It is autumn."
    result = await forecast(turn, city="Köln")
    assert result is not None
    assert result.data == {"city": "Köln"}
    assert await agent_harness.adapter.wait_until_sent(1) == ["Tomorrow in Köln: mild."]
    assert (turn.author.name, turn.message.content.text) == ("Bob", "And tomorrow?")


async def test_a_message_can_be_submitted_without_waiting(agent_harness: AgentHarness) -> None:
    receipts = [await agent_harness.submit("Hello", room=room) for room in ("attic", "cellar")]

    assert len({receipt.room_id for receipt in receipts}) == 2
    assert await agent_harness.adapter.wait_until_sent(2) == ["Hello.", "Hello."]


async def test_nothing_runs_after_the_block() -> None:
    before = asyncio.all_tasks()
    async with running_agent(WEATHER) as harness:
        await harness.send("Hello")
        await harness.submit("One more")

    assert asyncio.all_tasks() == before


def test_equal_names_give_equal_entities_and_rooms() -> None:
    first, second = make_message("a", sent_at=NOW), make_message("b", sent_at=NOW)
    other = make_message("a", sent_at=NOW, author="Bob", room="attic", platform="other")

    assert (first.author, first.room, first.world) == (second.author, second.room, second.world)
    assert first.key.event_id != second.key.event_id
    assert first.message.id != second.message.id
    assert not {first.author.id, first.room.id, first.world.id} & {other.author.id, other.room.id, other.world.id}
    assert make_message("a", sent_at=NOW, message_id="m1").key == make_message("b", sent_at=NOW, message_id="m1").key


@pytest.mark.parametrize("text", ["", "Hello.", "a < b & c", "<text>tags</text>", "Grüße\n👋🏽"])
def test_a_model_answer_is_parsed_correctly(text: str) -> None:
    read = read_reply(model_answer(text, actions=["REPLY", "FORECAST"], providers=["TIME"], thought="<hm>"))

    assert (read.text, read.thought, read.actions) == (text, "<hm>", ("REPLY", "FORECAST"))
    assert read.providers == ("TIME",)


async def test_a_scripted_model_returns_its_texts_in_order_and_repeats_the_last() -> None:
    model = ScriptedModel(["one", "two"])
    async with running_agent(model=model) as harness:
        texts = [(await harness.agent.models.text(TextRequest(f"{number}"))).text for number in range(4)]

    assert texts == ["one", "two", "two", "two"]
    assert [request.prompt for request in model.requests] == ["0", "1", "2", "3"]


async def test_a_script_may_be_a_function_wait_and_fail() -> None:
    async def think(request: TextRequest) -> str:
        await asyncio.sleep(0)
        if request.purpose is Purpose.CHECK:
            raise ModelRefused("no")
        return request.prompt.upper()

    model = ScriptedModel(think)
    async with running_agent(model=model) as harness:
        assert (await harness.agent.models.text(TextRequest("hi"), ModelType.TEXT_SMALL)).text == "HI"
        with pytest.raises(ModelRefused):
            await harness.agent.models.text(TextRequest("hi", Purpose.CHECK))

    assert model.requests_for(Purpose.CHECK) == model.requests[1:]


@pytest.mark.parametrize("embeds", [True, False])
async def test_a_scripted_model_can_embed(embeds: bool) -> None:
    async with running_agent(model=ScriptedModel(can_embed=embeds)) as harness:
        assert harness.agent.models.has_handler_for(ModelType.TEXT_EMBEDDING) is embeds
        if embeds:
            found = await harness.agent.models.embed(["a", "bcd"])
            assert found.vectors == ((1.0, 1.0), (3.0, 1.0))


@pytest.mark.long
async def test_a_recording_adapter_raises_its_faults_and_records_deliveries() -> None:
    adapter = RecordingAdapter(faults=[NotSent("busy", retry_after=0), DeliveryUnknown("reset")])
    async with running_agent(adapter=adapter) as harness:
        receipt = await harness.send("Hello")
        assert receipt.turn_id is not None
        parts = await harness.agent_runtime.handle.conversations.deliveries(receipt.turn_id)

    assert [part.state for part in parts] == [DeliveryState.UNKNOWN]
    assert (len(adapter.attempts), adapter.sent) == (2, [])
    assert adapter.typing_calls == [("lobby", True), ("lobby", False)]


@pytest.mark.parametrize(
    ("longest", "text", "parts"),
    [(0, "abcdef", ["abcdef"]), (4, "abcdef", ["abcd", "ef"]), (4, "abcd", ["abcd"]), (4, "", [""])],
)
def test_a_recording_adapter_splits_texts_without_loss(longest: int, text: str, parts: list[str]) -> None:
    assert [part.text for part in RecordingAdapter(max_length=longest).split_content(Content(text=text))] == parts


async def test_a_test_can_read_the_store(agent_harness: AgentHarness, scripted_model: ScriptedModel) -> None:
    async def remember(agent: Agent) -> None:
        await agent.store.cache.set("seen", [1])

    await remember(agent_harness.agent)

    assert await agent_harness.agent.store.cache.get("seen") == [1]
    assert agent_harness.model is scripted_model


def test_only_a_console_has_a_terminal_session() -> None:
    assert RecordingAdapter().session() is None


async def test_the_tests_of_a_plugin_each_run_with_an_agent_of_their_own_and_what_they_require() -> None:
    async def passes(harness: AgentHarness) -> None:
        assert {"knowledge", "tested"} <= set(harness.agent.catalog.plugins)
        assert harness.agent.settings.get("COLOUR") == "blue"
        await harness.send("Hello")
        assert harness.texts == ["Hello."]

    async def fails(harness: AgentHarness) -> None:
        assert harness.texts == ["Hello."]

    suite = PluginTestSuite("all of it", [PluginTest("passes", passes), PluginTest("fails", fails)], {"COLOUR": "blue"})
    plugin = Plugin("tested", tests=[suite], test_requires=["knowledge"])
    passed, failed = await run_plugin_tests(plugin)
    assert (passed.suite, passed.test, passed.failure) == ("all of it", "passes", None)
    assert isinstance(failed.failure, AssertionError)
    async with running_agent(plugin) as harness:
        assert "knowledge" not in harness.agent.catalog.plugins


async def test_a_message_with_text_is_recorded_with_its_attachments(agent_harness: AgentHarness) -> None:
    picture = Attachment(id="1", kind=MediaKind.IMAGE, content_type="image/png", data=b"png")
    await agent_harness.send("Hello")
    [room] = await agent_harness.agent.store.worlds.rooms()
    await agent_harness.agent.say(room, Content(text="A fox.", attachments=(picture,)))
    await agent_harness.adapter.wait_until_sent(2)
    assert [item.data for item in agent_harness.adapter.sent[-1].content.attachments] == [b"png"]


@pytest.mark.parametrize(
    ("plugins", "problem"),
    [
        ([Plugin("one"), Plugin("one")], "two plugins are called 'one'"),
        ([Plugin("one", requires=["two"]), Plugin("two", requires=["one"])], "require each other in a circle"),
        ([Plugin("one", requires=["absent"])], "absent"),
    ],
)
async def test_plugins_that_the_loader_refuses_are_refused_in_tests_too(plugins: list[Plugin], problem: str) -> None:
    with pytest.raises(PluginError, match=problem):
        async with running_agent(*plugins):
            pass


class ClassicService(Service):
    """A service in the form of elizaOS."""

    service_type = "classic"
    capabilityDescription = "remember what was started"

    stopped = 0
    greeting = ""

    @classmethod
    async def start(cls, agent: Agent) -> Self:
        service = cls(agent)
        service.greeting = await asyncio.sleep(0, "started")
        return service

    async def stop(self) -> None:
        type(self).stopped += 1


async def test_a_service_in_the_form_of_elizaos_is_started_offered_and_stopped() -> None:
    async with running_agent(Plugin("classic", services=[ClassicService])) as harness:
        assert harness.agent.services[ClassicService].greeting == "started"
        await harness.send("Hello")
        assert "- remember what was started" in harness.model.requests[-1].prompt
        assert ClassicService.stopped == 0
    assert ClassicService.stopped == 1


async def test_the_data_of_the_state_has_the_results_of_the_composed_providers_by_name() -> None:
    @provider("TIDE", "The tide.")
    async def tide(turn: Turn) -> ProviderResult:
        return ProviderResult("The tide is low.", data={"metres": 1.2})

    async with running_agent(Plugin("tides", providers=[tide])) as harness:
        turn = make_turn(harness.agent)
        state = await harness.agent.rooms.compose(turn.room, ["TIDE"], only_included=True)
    assert list(state.data["providers"]) == ["TIDE"]
    assert state.data["providers"]["TIDE"].data == {"metres": 1.2}
