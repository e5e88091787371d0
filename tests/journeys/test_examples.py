"""The documented examples, checked in the store and on the platform."""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bot import AgentConfig, ChannelType, Plugin, Runtime, Settings
from bot.background.scheduler import Scheduler
from bot.characters import load_character
from bot.cli.characters import load_character_config
from bot.events import EntityJoined
from bot.models import Purpose, TextRequest
from bot.plugin_system.loading import find_plugin, load_plugins
from bot.store import InMemoryStore, StepState
from bot.testing import AgentHarness, RecordingAdapter, ScriptedModel, make_message, model_answer, running_agent
from bot.text import user_text
from tests.clocks import ManualClock

EXAMPLES = Path(__file__).parents[1] / "examples"
START = datetime(2026, 5, 4, 12, tzinfo=UTC)
STORED = "records:stored"
SHIPS = [{"ship": "Aurora"}, {"ship": "Bora"}, {"ship": "Cirrus"}]


def example(name: str) -> Plugin:
    plugin = find_plugin(f"./{name}", EXAMPLES)
    assert plugin is not None
    return plugin


def chain(*actions: str, **parameters: object) -> str:
    return model_answer(actions=actions, parameters=parameters)


def records(*script: str, store: InMemoryStore | None = None) -> AbstractAsyncContextManager[AgentHarness]:
    return running_agent(example("records"), model=ScriptedModel(script), store=store)


async def close_harbour(harness: AgentHarness) -> None:
    """Make the harbour service fail from now on."""
    harbour = next(service for service in harness.agent.services.values() if type(service).__name__ == "Harbour")
    harbour.is_open = False  # type: ignore[attr-defined]  # of a module that was loaded by its path


# Action planning: results along a chain


async def test_a_chain_fetches_cleans_and_stores_data() -> None:
    script = [chain("FETCH_DATA", "TRANSFORM_DATA", "STORE_DATA"), model_answer("Stored.")]
    async with records(*script) as harness:
        receipt = await harness.send("Fetch the arrivals and store them")
        assert await harness.agent.store.cache.get(STORED) == SHIPS
        assert receipt.turn_id is not None
        steps = await harness.agent.store.ledger.steps(receipt.turn_id)
    done = [step.key for step in steps.values() if step.kind == "action" and step.state is StepState.DONE]
    assert done == ["action:0:FETCH_DATA", "action:1:TRANSFORM_DATA", "action:2:STORE_DATA"]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_stored_data_and_scheduled_follow_ups_survive_a_restart(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    is_file = kind == "sqlite"
    url = f"sqlite:///{tmp_path / 'kept.db'}" if is_file else request.getfixturevalue("postgres_url")
    sql, clock = find_plugin("sql"), ManualClock()
    assert sql is not None
    brought = (sql, example("records"), example("follow_up"))
    calls = chain("FETCH_DATA", "TRANSFORM_DATA", "STORE_DATA", "FOLLOW_UP", FOLLOW_UP={"about": "the cargo"})
    settings, model = {"DATABASE_URL": str(url)}, ScriptedModel(calls)
    async with running_agent(*brought, model=model, settings=settings, clock=clock) as harness:
        await harness.send("Store the arrivals, and ask me about the cargo in an hour")
    clock.now += timedelta(hours=2)
    async with running_agent(*brought, settings=settings, clock=clock) as harness:
        assert await harness.agent.store.cache.get(STORED) == SHIPS
        await Scheduler(harness.agent, harness.agent_runtime.registry).run_due()
        await harness.adapter.wait_until_sent(1)
    assert harness.texts == ["How did it go: the cargo?"]


async def test_an_action_without_its_prerequisite_fails_and_the_user_is_notified() -> None:
    async with records(chain("TRANSFORM_DATA", "STORE_DATA"), model_answer("There was nothing.")) as harness:
        await harness.send("Store the arrivals")
        [summary] = harness.model.requests_for(Purpose.SUMMARY)
        assert await harness.agent.store.cache.get(STORED) is None
    assert "- TRANSFORM_DATA: failed: there is no data to transform" in summary.prompt
    assert "- STORE_DATA: failed: there is no data to store" in summary.prompt
    assert harness.texts == ["There was nothing."]


async def test_a_later_action_falls_back_if_an_earlier_action_failed() -> None:
    store = InMemoryStore()
    await store.cache.set(STORED, SHIPS)
    async with records(chain("FETCH_DATA", "PROCESS_DATA"), store=store) as harness:
        await close_harbour(harness)
        receipt = await harness.send("Which ships are in?")
    assert harness.texts[-2:] == ["Ships of the last time: Aurora, Bora, Cirrus.", user_text("actions.partly_done")]
    assert any("the harbour does not answer" in note for note in receipt.notes)


async def test_without_a_failure_no_fallback_runs() -> None:
    async with records(chain("FETCH_DATA", "PROCESS_DATA")) as harness:
        await harness.send("Which ships are in?")
    assert harness.texts[-1].startswith("Ships: ")


async def test_a_failed_critical_action_stops_the_chain() -> None:
    script = [
        chain("CHECK_ACCESS", "FETCH_DATA", "STORE_DATA", CHECK_ACCESS={"harbour": "Oslo"}),
        model_answer("Oslo does not let me."),
    ]
    async with records(*script) as harness:
        receipt = await harness.send("Fetch the arrivals of Oslo")
        assert await harness.agent.store.cache.get(STORED) is None
        assert receipt.turn_id is not None
        steps = await harness.agent.store.ledger.steps(receipt.turn_id)
    assert [key for key in steps if key.startswith("action:")] == ["action:0:CHECK_ACCESS"]
    assert harness.texts == ["Oslo does not let me."]
    assert "CHECK_ACCESS failed and is critical; what came after it was not run" in receipt.notes


async def test_a_successful_critical_action_continues_the_chain() -> None:
    calls = chain("CHECK_ACCESS", "FETCH_DATA", "TRANSFORM_DATA", "STORE_DATA", CHECK_ACCESS={"harbour": "Lisbon"})
    async with records(calls) as harness:
        await harness.send("Fetch the arrivals of Lisbon and store them")
        assert await harness.agent.store.cache.get(STORED) == SHIPS


async def test_an_action_sees_the_plan_and_the_working_memory() -> None:
    async with records(chain("FETCH_DATA", "STORE_DATA", "REPORT")) as harness:
        await harness.send("Fetch, store, report")
    assert "Step 3 of 3: FETCH_DATA completed, STORE_DATA failed (FETCH_DATA, STORE_DATA)." in harness.texts


async def test_a_reply_of_an_action_is_sent_before_the_action_ends() -> None:
    async with records(chain("FETCH_DATA")) as harness:
        harbour = next(service for service in harness.agent.services.values() if type(service).__name__ == "Harbour")

        async def slow() -> list[dict[str, str]]:
            texts = await harness.adapter.wait_until_sent(1)
            return [{"ship": texts[0]}]

        harbour.arrivals = slow  # type: ignore[attr-defined]  # of a module that was loaded by its path
        receipt = await harness.send("Which ships are in?")
        assert receipt.turn_id is not None
        steps = await harness.agent.store.ledger.steps(receipt.turn_id)
    result = steps["action:0:FETCH_DATA"].result
    assert result["data"]["records"] == [{"ship": "One moment, I am asking the harbour."}]


# Several steps: the model sees each result before it chooses the next action


def step(action: str, parameters: str = "{}", *, is_last: bool = False) -> str:
    return (
        f"<response><thought>t</thought><action>{action}</action><parameters>{parameters}</parameters>"
        f"<isFinish>{str(is_last).lower()}</isFinish></response>"
    )


async def test_several_steps_end_with_a_single_summary() -> None:
    script = [
        step("CHECK_ACCESS", '{"harbour": "Lisbon"}'),
        step("FETCH_DATA"),
        step("TRANSFORM_DATA"),
        step("TRANSFORM_DATA"),
        step("STORE_DATA", is_last=True),
        "<response><text>Three ships are in, and stored.</text></response>",
    ]
    settings = {"USE_MULTI_STEP": "true"}
    async with running_agent(example("records"), model=ScriptedModel(script), settings=settings) as harness:
        receipt = await harness.send("Fetch the arrivals of Lisbon and store them")
        assert await harness.agent.store.cache.get(STORED) == SHIPS
        assert [request.purpose for request in harness.model.requests] == [Purpose.STEP] * 5 + [Purpose.SUMMARY]
    assert harness.texts == ["One moment, I am asking the harbour.", "Three ships are in, and stored."]
    assert "TRANSFORM_DATA was asked for twice with the same parameters" in receipt.notes


async def test_after_six_steps_the_model_is_asked_for_the_summary() -> None:
    number = iter(range(100))

    def script(request: TextRequest) -> str:
        if request.purpose is Purpose.SUMMARY:
            return model_answer("That is all.")
        return step("SET_GAME", f'{{"game": "chess {next(number)}"}}')

    settings = {"USE_MULTI_STEP": "true"}
    async with running_agent(example("tactics"), model=ScriptedModel(script), settings=settings) as harness:
        await harness.send("Go on for ever")
    assert len(harness.model.requests_for(Purpose.STEP)) == 6
    assert harness.texts == ["That is all."]


@pytest.mark.parametrize(("wants_steps", "first"), [(True, Purpose.STEP), (False, Purpose.REPLY)])
async def test_multi_step_mode_is_set_per_character(wants_steps: bool, first: Purpose, tmp_path: Path) -> None:
    file = tmp_path / "character.json"
    file.write_text(json.dumps({"name": "Ada", "settings": {"USE_MULTI_STEP": wants_steps}}))
    model, adapter = ScriptedModel(), RecordingAdapter()
    part = load_character_config(file)
    plugins = [plugin for plugin in part.plugins if plugin.name == "bootstrap"]
    plan = AgentConfig(part.loaded.character, (*plugins, model.plugin), part.settings)
    async with Runtime([plan]) as runtime:
        await runtime.connect(adapter)
        await AgentHarness(runtime.agents[0], model, adapter).send("Hello")
    assert model.requests[0].purpose is first


# Background tasks


async def test_a_follow_up_is_sent_later_to_the_room_in_which_it_was_scheduled() -> None:
    clock = ManualClock()
    script = [
        chain("FOLLOW_UP", "REPLY", FOLLOW_UP={"about": "the exam", "minutes": 30}).replace(
            "<text></text>", "<text>Good luck. I will ask.</text>"
        )
    ]
    async with running_agent(example("follow_up"), model=ScriptedModel(script), clock=clock) as harness:
        await harness.send("My exam is in half an hour", room="den")
        scheduler = Scheduler(harness.agent, harness.agent_runtime.registry)
        assert await scheduler.run_due() == 0
        [task] = await harness.agent.store.tasks.tasks(name="FOLLOW_UP_TASK")
        assert task.next_run == START + timedelta(minutes=30)
        clock.now += timedelta(minutes=31)
        await scheduler.run_due()
        await harness.adapter.wait_until_sent(2)
        assert await harness.agent.store.tasks.tasks() == []
        [delivery] = harness.adapter.sent[1:]
        memories = await harness.agent.store.memories.recent(delivery.room_id, 1)
    assert harness.texts == ["Good luck. I will ask.", "How did it go: the exam?"]
    assert delivery.room_id == harness.adapter.sent[0].room_id
    assert memories[0].content.text == harness.texts[1]


async def test_a_follow_up_whose_task_runs_again_is_sent_once() -> None:
    clock = ManualClock()
    script = [chain("FOLLOW_UP", FOLLOW_UP={"about": "the exam"}), model_answer("I will ask.")]
    async with running_agent(example("follow_up"), model=ScriptedModel(script), clock=clock) as harness:
        await harness.send("My exam is today")
        [task] = await harness.agent.store.tasks.tasks(name="FOLLOW_UP_TASK")
        work = harness.agent_runtime.registry.workers["FOLLOW_UP_TASK"]
        for _ in range(2):
            await work(harness.agent, task)
            await harness.agent.outbox.drain(5.0)
    assert harness.texts == ["I will ask.", "How did it go: the exam?"]


async def test_a_follow_up_survives_a_restart() -> None:
    clock, store = ManualClock(), InMemoryStore()
    script = [chain("FOLLOW_UP", FOLLOW_UP={"about": "the exam"}), model_answer("I will ask.")]
    async with running_agent(example("follow_up"), model=ScriptedModel(script), store=store, clock=clock) as harness:
        await harness.send("My exam is today")
    clock.now += timedelta(hours=2)
    async with running_agent(example("follow_up"), store=store, clock=clock) as harness:
        await Scheduler(harness.agent, harness.agent_runtime.registry).run_due()
        await harness.adapter.wait_until_sent(1)
    assert harness.texts == ["How did it go: the exam?"]


# The bots of section 4: characters with one small plugin each


def bot(name: str, script: Callable[..., str] | list[str]) -> AbstractAsyncContextManager[AgentHarness]:
    """Run the example character of that name with the plugins of its file."""
    character = load_character(EXAMPLES / f"{name}.json").character
    model = ScriptedModel(script)
    found = load_plugins(character, Settings([]), folder=EXAMPLES).plugins
    own = [plugin for plugin in found if plugin.name not in ("offline", "bootstrap")]
    return running_agent(*own, model=model, character=character)


async def test_the_support_bot_creates_a_ticket() -> None:
    ticket = {"problem": "the export is empty", "urgency": "high"}
    async with bot("support", [chain("CREATE_TICKET", CREATE_TICKET=ticket)]) as harness:
        receipt = await harness.send("The export is empty!", author="Alice")
        assert receipt.turn_id is not None
        [step] = [
            step for step in (await harness.agent.store.ledger.steps(receipt.turn_id)).values() if step.kind == "action"
        ]
        number = step.result["data"]["number"]
        kept = await harness.agent.store.cache.get(f"ticket:{number}")
    assert kept == {**ticket, "by": str(receipt.author_id)}
    assert harness.texts == [f"That is ticket {number} now; the team reads it next."]


@pytest.mark.parametrize(("text", "is_noted"), [("I am close to CANCELLING", True), ("Thank you!", False)])
async def test_the_support_bot_records_who_needs_a_human(text: str, is_noted: bool) -> None:
    async with bot("support", [model_answer("I am sorry.")]) as harness:
        receipt = await harness.send(text, author="Alice")
        store = harness.agent.store
    noted = await store.entities.components(receipt.author_id, "ESCALATED")
    assert [component.data for component in noted] == ([{"because": text}] if is_noted else [])


async def test_the_support_bot_welcomes_newcomers_in_the_group() -> None:
    async with bot("support", [model_answer("Hello.")]) as harness:
        await harness.send("Nora?", room="hall", kind=ChannelType.GROUP)
        zoe = make_message("", sent_at=START, author="Zoe")
        harness.agent.events.emit(EntityJoined(harness.agent.id, zoe.author, zoe.world))
        await harness.adapter.wait_until_sent(2)
    assert harness.texts[1] == "Welcome, Zoe. Tell me what does not work."
    assert harness.adapter.sent[1].room_id == harness.adapter.sent[0].room_id


async def test_the_gaming_bot_uses_the_game_of_the_room_and_the_skill_of_the_player() -> None:
    script = [
        chain("SET_GAME", "SET_SKILL", SET_GAME={"game": "chess"}, SET_SKILL={"level": "beginner"}),
        model_answer("Noted."),
        model_answer("Castle early."),
        model_answer("Trade queens."),
    ]
    async with bot("gaming", script) as harness:
        await harness.send("We play chess, and I am new", author="Alice")
        await harness.send("What now?", author="Alice")
        await harness.send("And I?", author="Bob")
        _, _, of_alice, of_bob = (request.prompt for request in harness.model.requests)
    assert "The room plays chess.\nThe player is beginner: explain every term" in of_alice
    assert "The room plays chess." in of_bob
    assert "The player is" not in of_bob


async def test_the_gaming_bot_rejects_an_unknown_skill_and_asks_the_model_again() -> None:
    script = [chain("SET_SKILL", SET_SKILL={"level": "godlike"}), '{"level": "advanced"}', model_answer("Noted.")]
    async with bot("gaming", script) as harness:
        receipt = await harness.send("I am really good", author="Alice")
        [skill] = await harness.agent.store.entities.components(receipt.author_id, "SKILL")
    assert skill.data == {"level": "advanced"}
    assert [request.purpose for request in harness.model.requests] == [Purpose.REPLY, Purpose.REPAIR, Purpose.SUMMARY]


async def test_the_educational_bot_adapts_to_the_level_of_the_learner() -> None:
    script = [chain("CHECK_ANSWER", CHECK_ANSWER={"number": number}) for number in (7, 36, 0)]
    async with bot("teaching", script) as harness:
        for text in ("7", "36", "0"):
            receipt = await harness.send(text, author="Alice")
        [progress] = await harness.agent.store.entities.components(receipt.author_id, "PROGRESS")
        prompts = [request.prompt for request in harness.model.requests]
    assert harness.texts == ["Right. Next: 12 × 3?", "Right. Next: 17 × 6?", "Not yet. Next: 12 × 3?"]
    assert progress.data == {"level": 1}
    assert "level 1 of 3. The exercise: 3 + 4" in prompts[0]
    assert "level 3 of 3. The exercise: 17 × 6" in prompts[2]
    assert not any("102" in prompt for prompt in prompts)


@pytest.mark.parametrize("name", ["support", "gaming", "teaching"])
def test_the_example_characters_load_without_a_warning(name: str) -> None:
    report = load_character(EXAMPLES / f"{name}.json").report
    assert report.warnings == report.ignored == report.mapped == report.secrets == ()
