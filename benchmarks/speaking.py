"""Measure how often a model is asked whether to speak in groups, and how often the bot is wrong without asking."""

import asyncio
import os
import random
from collections import Counter
from pathlib import Path

from benchmarks.conversation import load_recording, run_conversation
from benchmarks.emulated_rooms import measure_emulated_rooms
from benchmarks.figures import Row
from benchmarks.seeded_rooms import PEOPLE, ROOMS, SEED, TruthfulModel, format_counts, generate_room
from benchmarks.train_addressed import MIN_LINES, describe, find_cases, read_logs
from benchmarks.two_bots import measure_two_bots
from bot import ChannelType, Outcome
from bot.models import Purpose, TextRequest
from bot.pipeline.talk import load_classifier
from bot.testing import ScriptedModel, model_answer, running_agent

LOGS_VARIABLE = "BENCH_ADDRESSED_LOGS"  # a folder with annotated logs; without it they are not measured
BURST = 20


def measure_speaking() -> list[Row]:
    """Measure the recorded talk, made-up rooms, a burst, and annotated logs where there are some."""
    rows = [asyncio.run(_measure_recorded()), asyncio.run(_measure_rooms())]
    rows += [asyncio.run(measure_emulated_rooms("Discord")), asyncio.run(measure_emulated_rooms("Telegram"))]
    rows += [asyncio.run(measure_two_bots()), asyncio.run(_measure_burst())]
    if folder := os.environ.get(LOGS_VARIABLE):
        rows.append(_measure_logs(Path(folder)))
    return rows


async def _measure_recorded() -> Row:
    messages = load_recording()
    calls = await run_conversation(messages)
    decisions = sum(call.purpose is Purpose.SHOULD_RESPOND for call in calls)
    return "decisions in the recorded talk", f"{decisions} by the model for {len(messages)} messages"


async def _measure_rooms() -> Row:
    counts, model = Counter[str](), TruthfulModel()
    async with running_agent(model=model) as harness:
        for number in range(ROOMS):
            for message in generate_room(random.Random(SEED + number)):
                model.is_addressed = message.is_addressed
                receipt = await harness.send(
                    message.content, author=message.author, room=f"room {number}", kind=ChannelType.GROUP
                )
                counts += message.count(is_answered=receipt.outcome is Outcome.ANSWERED)
    return f"{ROOMS} made-up rooms", format_counts(counts, model.decisions)


async def _measure_burst() -> Row:
    async def slow(request: TextRequest) -> str:
        await asyncio.sleep(0.2)
        if request.purpose is Purpose.SHOULD_RESPOND:
            return "<response><action>RESPOND</action></response>"
        return model_answer("Hello to you too.")

    async with running_agent(model=ScriptedModel(slow)) as harness:
        receipts = [
            await harness.submit(f"part {number}", author=PEOPLE[number % 8], kind=ChannelType.GROUP)
            for number in range(BURST)
        ]
        await asyncio.gather(*(harness.agent_runtime.inbox.wait_outcome(receipt.id) for receipt in receipts))
        await harness.agent.outbox.drain(5)
        purposes = Counter(request.purpose for request in harness.model.requests)
        replies = len(harness.texts)
    begun = f"{purposes[Purpose.SHOULD_RESPOND]} decisions and {purposes[Purpose.REPLY]} replies begun"
    return f"{BURST} messages at once in a group, 200 ms model", f"{replies} reply, {begun}"


def _measure_logs(folder: Path) -> Row:
    classifier = load_classifier()
    found = [
        (classifier.probability(features), is_addressed)
        for log in read_logs(folder)
        for features, is_addressed in find_cases(log, MIN_LINES)
    ]
    return f"addressed or not, logs of {folder.name}", describe(found)
