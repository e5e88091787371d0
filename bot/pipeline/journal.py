"""What a turn has paid for: kept the moment it exists, so that a restart does not pay for it again."""

from uuid import UUID

from bot.domain.ledger import Step, StepState
from bot.domain.memory import MemoryKind
from bot.turn import Turn


async def journalled(turn: Turn) -> dict[str, Step]:
    """Find what earlier tries at this turn have done, by step."""
    return {} if turn.is_fresh else await turn.agent.store.ledger.steps(turn.id)


async def paid(turn: Turn, key: str) -> str | None:
    """Find what a model gave for this step of the turn; None where it has not been asked yet."""
    step = (await journalled(turn)).get(key)
    return None if step is None else str(step.result["raw"])


async def keep(turn: Turn, key: str, raw: str) -> None:
    """Write down what a model gave, and which messages it is about."""
    about = [str(one.message.id) for one in turn.inputs]
    result = {"raw": raw, "inputs": about}
    at = turn.agent.clock()
    await turn.agent.store.ledger.save_step(Step(turn.id, key, "model", StepState.DONE, result=result, at=at))


async def resumed(turn: Turn) -> frozenset[UUID] | None:
    """Take up what an earlier process has done for this turn.

    Gives back the messages that its answer is about; None where there is no answer yet. What the
    turn has said already counts among its replies again.
    """
    steps = (await journalled(turn)).values()
    listed = [step.result["inputs"] for step in steps if "inputs" in step.result]
    if not listed:
        return None
    made = await turn.agent.store.memories.by_turn(turn.id)
    turn.replies = [memory for memory in made if memory.kind is MemoryKind.MESSAGE]
    return frozenset(UUID(one) for one in listed[-1]) | {turn.message.id}
