"""One chapter of a scene: so many turns with one agent, each held against the law."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from bot.store import LogKind
from bot.testing import AgentHarness, ScriptedModel, running_agent
from tests.plugins.bootstrap.obeying import run_due
from tests.roleplay.law import GROUP, PEOPLE, PLACES, Deed, Kept, changes, look
from tests.roleplay.scenes import SCENES, Said

LATEST_DECISIONS = 20


@dataclass
class Chapter:
    """What came of it: what changed at all, how often something was refused, and what nobody might do."""

    scene: str
    seed: int
    turns: int = 0
    done: set[str] = field(default_factory=set)
    refused: int = 0
    unlawful: list[str] = field(default_factory=list)


async def played(name: str, turns: int, seed: int) -> Chapter:
    """Play a chapter."""
    scene, chapter = SCENES[name](Random(seed)), Chapter(name, seed)
    model = ScriptedModel(scene.write, can_call_tools=scene.can_call_tools)
    async with running_agent(model=model, settings=scene.settings) as stage:
        await introduce(stage)
        before, signs = await look(stage), await decisions(stage)
        while chapter.turns < turns:
            said = scene.next(stage, list(before.waiting.values()))
            await say(stage, said)
            after, now = await look(stage), await decisions(stage)
            chapter.turns += len(said)
            changed = changes(before, after)
            chapter.done |= changed
            chapter.refused += any("False" in sign for sign in now - signs)
            chapter.unlawful += unlawful(stage, before, after, said)
            scene.learn(said, frozenset(changed) | now)
            scene.writer.codes = ["AAAAA", *(str(task.metadata["code"]) for task in after.waiting.values())]
            before, signs = after, now
            model.requests.clear()
    return chapter


async def introduce(stage: AgentHarness) -> None:
    """Have everybody say hello wherever they may be."""
    for room, kind in PLACES.items():
        for name, role in PEOPLE.items():
            if kind is GROUP or room == name.lower():
                await stage.send("hello", author=name, role=role, room=room, kind=kind)
    await run_due(stage)


async def say(stage: AgentHarness, said: Sequence[Said]) -> None:
    """Have all of it said at once, and wait for what becomes of it."""
    receipts = [
        await stage.submit(one.text, author=one.author, role=PEOPLE[one.author], room=one.room, kind=PLACES[one.room])
        for one in said
    ]
    for receipt in receipts:
        await stage.agent_runtime.inbox.wait_outcome(receipt.id)
    await stage.agent.outbox.drain(5.0)
    await run_due(stage)


def unlawful(stage: AgentHarness, before: Kept, after: Kept, said: Sequence[Said]) -> list[str]:
    """List what none of those who spoke was entitled to."""
    deeds = [Deed(stage, before, after, one.author, one.room, one.text) for one in said]
    found = [set(deed.unlawful()) for deed in deeds]
    return [f"{what} by {said}" for what in sorted(set.intersection(*found))]


async def decisions(stage: AgentHarness) -> frozenset[str]:
    """Tell the last decisions about actions, as far as they are of one kind."""
    entries = await stage.agent.store.logs.logs(kind=LogKind.AUTHORIZATION, limit=LATEST_DECISIONS)
    bodies = [entry["body"] for entry in entries]
    return frozenset(f"{one['action']} {one['allowed']} {one['reason'][:24]} {one['role']}" for one in bodies)
