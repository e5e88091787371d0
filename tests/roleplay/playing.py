"""One chapter of a scene: so many turns with one agent, each held against the law."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from bot.store import LogKind
from bot.testing import AgentHarness, ScriptedModel, running_agent
from tests.plugins.bootstrap.obeying import run_due
from tests.roleplay.law import GROUP, PEOPLE, PLACES, Change, Kept, changes, look
from tests.roleplay.scenes import SCENES, Line

LATEST_DECISIONS = 20


@dataclass
class Chapter:
    """The result: what changed at all, how often something was refused, and which changes were unlawful."""

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
    async with running_agent(model=model, settings=scene.settings) as harness:
        await introduce(harness)
        before, signs = await look(harness), await decisions(harness)
        while chapter.turns < turns:
            lines = scene.next(harness, list(before.waiting.values()))
            await say(harness, lines)
            after, now = await look(harness), await decisions(harness)
            chapter.turns += len(lines)
            changed = changes(before, after)
            chapter.done |= changed
            chapter.refused += any("False" in sign for sign in now - signs)
            chapter.unlawful += unlawful(harness, before, after, lines)
            scene.learn(lines, frozenset(changed) | now)
            scene.writer.codes = ["AAAAA", *(str(task.metadata["code"]) for task in after.waiting.values())]
            before, signs = after, now
            model.requests.clear()
    return chapter


async def introduce(harness: AgentHarness) -> None:
    """Send a greeting of each person in each of their rooms."""
    for room, kind in PLACES.items():
        for name, role in PEOPLE.items():
            if kind is GROUP or room == name.lower():
                await harness.send("hello", author=name, role=role, room=room, kind=kind)
    await run_due(harness)


async def say(harness: AgentHarness, lines: Sequence[Line]) -> None:
    """Send all lines at once, and wait for their outcomes."""
    receipts = [
        await harness.submit(
            line.text, author=line.author, role=PEOPLE[line.author], room=line.room, kind=PLACES[line.room]
        )
        for line in lines
    ]
    for receipt in receipts:
        await harness.agent_runtime.inbox.wait_outcome(receipt.id)
    await harness.agent.outbox.drain(5.0)
    await run_due(harness)


def unlawful(harness: AgentHarness, before: Kept, after: Kept, lines: Sequence[Line]) -> list[str]:
    """List what none of those who spoke was entitled to."""
    changes = [Change(harness, before, after, line.author, line.room, line.text) for line in lines]
    found = [set(change.unlawful()) for change in changes]
    return [f"{what} by {lines}" for what in sorted(set.intersection(*found))]


async def decisions(harness: AgentHarness) -> frozenset[str]:
    """Return the last decisions about actions, those of one kind once."""
    entries = await harness.agent.store.logs.logs(kind=LogKind.AUTHORIZATION, limit=LATEST_DECISIONS)
    bodies = [entry["body"] for entry in entries]
    return frozenset(f"{body['action']} {body['allowed']} {body['reason'][:24]} {body['role']}" for body in bodies)
