"""Lessons: sets exercises, checks what is answered, and grows harder or easier with the learner."""

from typing import Annotated

from bot import ActionResult, Component, Effect, Plugin, ProviderResult, Turn, action, derived_id, provider
from bot.prompts import Authority

PROGRESS = "PROGRESS"
EXERCISES = (("3 + 4", 7), ("12 × 3", 36), ("17 × 6", 102))


async def _level(turn: Turn) -> int:
    known = await turn.agent.store.entities.components(turn.author.id, PROGRESS)
    return int(known[0].data["level"]) if known else 0


@action(
    "CHECK_ANSWER",
    "Check the learner's answer to the exercise.",
    effect=Effect.UNSAFE,
    authority=Authority.harmless("it changes only which exercise comes next"),
)
async def check_answer(turn: Turn, number: Annotated[int, "What the learner answered"]) -> ActionResult:
    """Move the learner up for a right answer and down for a wrong one."""
    level = await _level(turn)
    is_right = number == EXERCISES[level][1]
    level = min(level + 1, len(EXERCISES) - 1) if is_right else max(level - 1, 0)
    progress = Component(derived_id(turn.author.id, PROGRESS), turn.author.id, PROGRESS, {"level": level})
    await turn.agent.store.entities.save_component(progress)
    await turn.reply(f"{'Right' if is_right else 'Not yet'}. Next: {EXERCISES[level][0]}?")
    return ActionResult(text="right" if is_right else "wrong", data={"level": level})


@provider("LEARNER", "How far the learner has come, and the present exercise.", position=-10)
async def learner(turn: Turn) -> ProviderResult:
    """Show the level and the exercise, never its solution."""
    level = await _level(turn)
    text = f"The learner is at level {level + 1} of {len(EXERCISES)}. The exercise: {EXERCISES[level][0]}"
    return ProviderResult(text=text, values={"level": level + 1})


plugin = Plugin("lessons", "Teaches sums.", actions=[check_answer], providers=[learner])
