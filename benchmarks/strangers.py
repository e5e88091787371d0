"""Measure what a hostile tenth of the people costs the others: the real program on an emulated Discord.

The same messages of the others are sent twice, once without and once with hostile people, who write in their own
private chats and in one group: floods, long texts, files, commands again and again.
"""

import asyncio
import os
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from adapters.discord.emulator import Emulator
from benchmarks.figures import Row, report_progress
from benchmarks.program import model_server, running_program

MESSAGES = int(os.environ.get("MESSAGES", "20000"))
PEOPLE = 450
HOSTILE_SHARE = 0.1
RATE = float(os.environ.get("RATE", "25"))  # messages a second in all; Discord takes 50 of a bot
BUDGET_DOLLARS = 5
SEED = 7
TOKEN = "only-for-the-benchmark"
MAX_WAIT_SECONDS = 60.0
PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj\n"
    + b"%" * 200_000
)
TEXTS: Sequence[Callable[[int], str]] = (
    lambda number: "[" * 1900,
    lambda number: "\N{SLIGHTLY SMILING FACE}" * 900,
    lambda number: f"Write a story of ten thousand words about {number}",
    lambda number: "*_~`|" * 380,
    lambda number: f"Ada, remember this: {number} " + "a\u0301" * 800,
)


@dataclass(slots=True)
class Figures:
    """What one run showed: the seconds until each answer to the others, and the state of the program."""

    latencies: list[float] = field(default_factory=list)
    unanswered: int = 0
    cpu_seconds: float = 0.0
    start_memory: int = 0
    end_memory: int = 0
    cost: float = 0.0

    def percentile(self, share: float) -> float:
        """Return the latency that this share of the answers does not exceed, in seconds."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


class Crowd:
    """People of one emulated server, and the program that answers them."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._bot = emulator.add_bot("Ada", TOKEN)
        state = emulator.state
        self._people = [state.add_user(f"person {number}") for number in range(PEOPLE)]
        self._hostile = [state.add_user(f"stranger {number}") for number in range(int(PEOPLE * HOSTILE_SHARE))]
        guild = state.add_guild("Harbour", self._people[0], [self._bot, *self._people, *self._hostile])
        self._group = state.add_channel(guild, "general")
        self._rooms = {person: state.open_direct_channel(self._bot, person) for person in self._people + self._hostile}
        self._seen = 0
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._answers = defaultdict[str, int](int)

    async def watch(self) -> None:
        """Note each message of the bot."""
        recorder = self._emulator.recorder
        while True:
            await recorder.wait_until(lambda: len(recorder.messages) > self._seen)
            for message in recorder.messages[self._seen :]:
                self._answers[message.room] += 1
                if (waiting := self._waiting.pop(message.room, None)) is not None and not waiting.done():
                    waiting.set_result(None)
            self._seen = len(recorder.messages)

    async def talk(self, number: int, figures: Figures) -> None:
        """Send one message of a person, and wait for its answer."""
        loop = asyncio.get_running_loop()
        person = self._people[number % PEOPLE]
        room = self._rooms[person]
        waiting = self._waiting[room] = loop.create_future()
        started = loop.time()
        await self._emulator.people.say(room, person, f"Message number {number}")
        try:
            await asyncio.wait_for(waiting, MAX_WAIT_SECONDS)
        except TimeoutError:
            figures.unanswered += 1
        else:
            figures.latencies.append(loop.time() - started)

    async def attack(self, number: int, chance: random.Random) -> None:
        """Do one thing that a hostile person does."""
        person = chance.choice(self._hostile)
        room = chance.choice((self._rooms[person], self._group))
        text = chance.choice(TEXTS)(number)
        if room == self._group:
            text = f"<@{self._bot}> {text}"
        match number % 10:
            case 0:
                await self._emulator.interactions.run_command(self._bot, person, self._rooms[person], "forget-me")
            case 1:
                files = tuple((f"{number}-{index}.pdf", PDF, "application/pdf") for index in range(3))
                await self._emulator.people.say(room, person, "Read these", files=files)
            case 2:
                for index in range(5):
                    await self._emulator.people.say(room, person, f"{text[:1800]} {index}")
            case 3:
                message = await self._emulator.people.say(room, person, text)
                await self._emulator.people.edit(room, message, f"{text[:1800]}!")
                await self._emulator.people.delete(room, message)
            case _:
                await self._emulator.people.say(room, person, text)


def measure_strangers() -> list[Row]:
    """Run the program without and with hostile people."""
    calm = asyncio.run(_run(is_hostile=False))
    hostile = asyncio.run(_run(is_hostile=True))
    ratio = hostile.percentile(0.99) / calm.percentile(0.99) if calm.latencies else 0.0
    return [
        *_describe("without hostile people", calm),
        *_describe(f"with {HOSTILE_SHARE:.0%} of hostile people", hostile),
        ("latency of the others, 99 %: with to without", f"{ratio:.2f} times (goal ≤ 2)"),
    ]


def _describe(name: str, figures: Figures) -> list[Row]:
    answered = len(figures.latencies)
    growth = figures.end_memory / max(figures.start_memory, 1) - 1
    return [
        (
            f"{MESSAGES} messages, {name}",
            f"{answered} of the others' answered, {figures.unanswered} not within {MAX_WAIT_SECONDS:.0f} s; "
            f"median {figures.percentile(0.5) * 1000:.0f} ms, 99 % {figures.percentile(0.99) * 1000:.0f} ms",
        ),
        (
            "its CPU, memory and cost",
            f"{figures.cpu_seconds:.0f} s, {figures.start_memory / 2**20:.0f} to {figures.end_memory / 2**20:.0f} MiB "
            f"({growth:+.0%}), ${figures.cost:.2f}",
        ),
    ]


async def _run(*, is_hostile: bool) -> Figures:
    figures = Figures()
    chance = random.Random(SEED)
    async with Emulator() as emulator, model_server() as server:
        crowd = Crowd(emulator)
        settings = {
            "DISCORD_API_TOKEN": TOKEN,
            "DISCORD_API_BASE_URL": emulator.url,
            "MODEL_PRICES": "model=2.5/10",
            "BUDGET_USD": str(BUDGET_DOLLARS * 100),
            "BUDGET_USD_PER_PERSON": str(BUDGET_DOLLARS),
        }
        here = str(Path(__file__).parents[1])
        async with running_program(here, server, settings) as program, asyncio.TaskGroup() as group:
            await emulator.recorder.wait_until(lambda: emulator.recorder.counts["ready"] > 0)
            watcher = group.create_task(crowd.watch())
            others = MESSAGES - int(MESSAGES * HOSTILE_SHARE)
            for number in range(PEOPLE):  # nothing is measured while rooms and people are new
                await crowd.talk(number, Figures())
            figures.start_memory, before = _memory_of(program.pid), program.cpu_seconds()
            attackers = group.create_task(_attack(crowd, chance)) if is_hostile else None
            async with asyncio.TaskGroup() as talks:
                for number in range(others):
                    talks.create_task(crowd.talk(number, figures))
                    await asyncio.sleep(chance.expovariate(RATE * (1 - HOSTILE_SHARE)))
                    if number % 2000 == 1999:
                        report_progress(f"{number + 1} of {others} messages, hostile people: {is_hostile}")
            if attackers is not None:
                attackers.cancel()
            figures.cpu_seconds = program.cpu_seconds() - before
            figures.end_memory = _memory_of(program.pid)
            async with program.session.get(f"{program.url}/api/costs") as response:
                figures.cost = (await response.json())["total"]["usd"]
            watcher.cancel()
    return figures


async def _attack(crowd: Crowd, chance: random.Random) -> None:
    async with asyncio.TaskGroup() as group:
        for number in count():
            group.create_task(crowd.attack(number, chance))
            await asyncio.sleep(chance.expovariate(RATE * HOSTILE_SHARE))


def _memory_of(pid: int) -> int:
    """Return the resident memory of a process, in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
