"""The simulated room: what its steps lead to, by a clock that only they move."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from bot import Agent, Character, Outcome, Plugin, Role, Task, new_id, worker
from bot.models import Purpose, TextRequest
from bot.runtime.character_reload import AgentConfig
from bot.scenes.assertions import check_expectation
from bot.scenes.scene import Expectation
from bot.scenes.simulation import Person, SimulatedRoom, Simulation, run_simulation
from bot.settings import Layer, Settings
from bot.testing import ManualClock, ScriptedModel, model_answer
from bot.testing.harness import add_required


def answer(request: TextRequest) -> str:
    """Greet, and leave people alone who do not ask for it."""
    text = "Hello." if "Rob" not in request.prompt else f"Hello, {len(request.prompt)}."  # no repetition
    return "IGNORE" if request.purpose is Purpose.SHOULD_RESPOND else model_answer(text)


def list_files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.fixture
async def simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Simulation]:
    """Run Ada, who always greets and whose plugin rings bells, in a room with an owner."""
    monkeypatch.chdir(tmp_path)

    @worker("RING")
    async def ring(agent: Agent, task: Task) -> None:
        room = await agent.store.worlds.room(task.room_id) if task.room_id else None
        assert room is not None
        await agent.say(room, f"It is {agent.clock():%H:%M}.")

    plugins = add_required([Plugin("bells", workers=[ring])])
    settings = Settings([Layer("the test", {"AI_NOTICE": "off", "RESPOND_TO_BOTS": "true"})])
    config = AgentConfig(Character(name="Ada"), tuple(plugins), settings)
    people = [Person("Olga", Role.OWNER), Person("Rob", is_bot=True)]
    model = ScriptedModel(answer)
    async with run_simulation(config, model=model.plugin, room=SimulatedRoom("stage"), people=people) as running:
        yield running
    assert list_files(tmp_path) == []


async def test_a_step_returns_what_it_led_to(simulation: Simulation) -> None:
    result = await simulation.say("Olga", "Ada, hello")
    assert result.receipt is not None
    assert (result.receipt.outcome, result.replies, result.text) == (Outcome.ANSWERED, ("Hello.",), "Hello.")
    [call] = result.calls
    assert call.request is not None
    assert "Olga" in call.request.prompt
    reply = await simulation.say("Alice", "and you?", reply_to=result.reply_id)
    assert reply.receipt is not None
    assert reply.receipt.rule == "reply"


async def test_people_have_their_roles_and_are_bots_if_so_said(simulation: Simulation) -> None:
    result = await simulation.say("Olga", "Ada, hello")
    world = result.turns[0].world
    assert world.role_of(simulation.find_person("Olga").id) is Role.OWNER
    assert world.role_of(simulation.find_person("Alice").id) is Role.MEMBER
    assert simulation.find_person("Rob").is_bot


async def test_tasks_run_while_time_passes_at_the_time_at_which_they_are_due(simulation: Simulation) -> None:
    await simulation.say("Olga", "Ada, hello")
    start = simulation.clock.now()
    for hours in (1, 5):
        due = start + timedelta(hours=hours)
        await simulation.agent.store.tasks.save_task(Task(new_id(), "RING", due, room_id=simulation.room.id))
    result = await simulation.wait(timedelta(hours=3))
    assert (result.task_count, result.replies) == (1, (f"It is {start + timedelta(hours=1):%H:%M}.",))
    assert simulation.clock.now() - start >= timedelta(hours=3)


async def test_time_passes_between_steps_only(simulation: Simulation) -> None:
    clock = simulation.clock
    assert isinstance(clock, ManualClock)
    before = clock.now()
    result = await simulation.say("Olga", "Ada, hello")
    assert result.receipt is not None
    assert result.receipt.received_at == result.receipt.closed_at == clock.now() > before


async def test_edits_deletions_reactions_and_arrivals_reach_the_character(simulation: Simulation) -> None:
    result = await simulation.say("Olga", "not doing anything for you", is_mention=False)
    edited = await simulation.edit(result.message_id, "Ada, something for you")
    assert edited.replies == ("Hello.",)
    await simulation.react("Olga", edited.reply_id, "👍")
    await simulation.join("Cleo")
    await simulation.delete(result.message_id)
    stored = await simulation.agent.store.memories.recent(simulation.room.id)
    assert "Ada, something for you" not in [memory.content.text for memory in stored]
    cleo = simulation.find_person("Cleo").id
    assert (await simulation.agent.store.entities.entities({cleo}))[cleo].name == "Cleo"


@pytest.mark.long
async def test_the_limits_of_bots_count_by_the_clock_of_the_simulation(simulation: Simulation) -> None:
    async def count_answers(seconds: float) -> int:
        answered = 0
        for number in range(24):
            if number % 5 == 0:
                await simulation.say("Olga", "well", seconds=0)
            result = await simulation.say("Rob", f"Ada, {number}", seconds=seconds)
            answered += len(result.replies)
        return answered

    assert await count_answers(seconds=4) == 24  # never twenty in a minute
    await simulation.wait(timedelta(minutes=1))
    assert await count_answers(seconds=1) == 20


async def test_a_reaction_is_what_a_step_leads_to_and_no_silence() -> None:
    decision = "<response><action>REACT</action><emoji>👍</emoji></response>"
    model = ScriptedModel(
        lambda request: decision if request.purpose is Purpose.SHOULD_RESPOND else model_answer("Hi.")
    )
    settings = Settings([Layer("the test", {"AI_NOTICE": "off"})])
    config = AgentConfig(Character(name="Ada"), tuple(add_required([])), settings)
    async with run_simulation(config, model=model.plugin) as running:
        result = await running.say("Olga", "it works now")
        answered = await running.say("Olga", "Ada, hello")
    assert (result.reactions, result.replies) == (("👍",), ())
    problems = {
        text: check_expectation(Expectation.model_validate(text), result, "Ada")
        for text in ("reaction", "reaction 👍", "reaction 🔥", "silence", "reply")
    }
    assert [text for text, problem in problems.items() if not problem] == ["reaction", "reaction 👍"]
    assert "expected a reaction 🔥, but Ada said nothing and reacted with 👍" in problems["reaction 🔥"]
    assert "expected a reaction" in check_expectation(Expectation.model_validate("reaction"), answered, "Ada")
