"""A rehearsal is isolated: no action of a plugin runs, and the room's state is that of the recording."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from bot import ActionResult, Character, Effect, Plugin, Turn, action, evaluator
from bot.costs.budget import Budget
from bot.domain.environment import ParticipantState
from bot.domain.ledger import Rule
from bot.plugin_system.loading import find_plugin
from bot.rehearsal.exports import Recording, read_export
from bot.rehearsal.rehearse import NOT_RUN, DaySpending, rehearse
from bot.rehearsal.report import Decision, RehearsalReport
from bot.runtime.character_reload import AgentConfig
from bot.settings import Layer, Settings
from bot.testing import ScriptedModel, model_answer
from tests.rehearsal.exports import discord_message, write_discord


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    messages = [discord_message(1, "Ben", "Ada, roll the dice"), discord_message(2, "Cleo", "Ben: hello")]
    return read_export(write_discord(tmp_path / "general.json", messages), UUID(int=7), ("Ada",))


async def run(recording: Recording, model: ScriptedModel, *plugins: Plugin) -> RehearsalReport:
    bootstrap = find_plugin("bootstrap")
    assert bootstrap is not None
    config = AgentConfig(Character(name="Ada"), (bootstrap, *plugins, model.plugin), Settings([Layer("the test", {})]))
    return await rehearse(config, recording, has_model=True, budget=1.0, spending=DaySpending(Budget()))


async def test_the_actions_of_plugins_are_offered_and_do_not_run_and_nothing_is_evaluated(recording: Recording) -> None:
    runs = []

    @action("ROLL_DICE", "Roll the dice.", effect=Effect.UNSAFE)
    async def roll_dice(turn: Turn) -> ActionResult:
        runs.append("action")
        return ActionResult(text="6")

    @evaluator("LEARN", "Learn.", always_run=True)
    async def learn(turn: Turn) -> None:
        runs.append("evaluator")

    model = ScriptedModel(model_answer("Rolling.", actions=("ROLL_DICE",)))
    report = await run(recording, model, Plugin("dice", actions=[roll_dice], evaluators=[learn]))
    assert runs == []
    assert "ROLL_DICE" in model.requests[0].prompt
    assert NOT_RUN in report.messages[0].notes


async def test_a_followed_room_is_followed_in_the_rehearsal(recording: Recording) -> None:
    followed = replace(recording, participant_state=ParticipantState.FOLLOWED)
    report = await run(followed, ScriptedModel([model_answer("One."), model_answer("Two.")]))
    assert [(item.after, item.rule) for item in report.messages] == [
        (Decision.ANSWERED, Rule.NAME_CALLED),
        (Decision.ANSWERED, Rule.FOLLOWED),
    ]
