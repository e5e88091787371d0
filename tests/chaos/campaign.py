"""Many messages and kills from a random seed, then a comparison with the platform's record."""

import asyncio
import random
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.adapter import Unclear
from tests.chaos.loopback import Ability, Platform
from tests.chaos.program import BotProcess, ForkServer
from tests.chaos.scene import Scene, build_scene
from tests.chaos.verdict import NAME, Verdict
from tests.chaos.wire import ASKED, Wire

POINTS = (
    "ingress.pre_commit",
    "ingress.post_commit",
    "ingress.batch",
    "turn.claimed",
    "model.decide",
    "model.reply",
    "model.post",
    "turn.pre_commit",
    "outbox.committed",
    "action.pre",
    "action.mid",
    "action.post",
    "chain.1",
    "send.pre_write",
    "send.post_write",
    "send.pre_record",
    "send.part1",
    "send.part2",
    "eval.pre",
    "eval.mid",
)
TALK = ("hello",) * 16 + ("parts", "do pure keyed", "do unsafe", "do idempotent unsafe keyed")
GROUP_TALK = ("hello", "hello", "quiet")
TIMEOUT, SETTLE_TIMEOUT = 60.0, 300.0
QUIET_SECONDS = 0.4  # without an event for so long, the bot waits for messages
STARTUP_SECONDS = 0.3
AT_POINTS, AT_STARTUP = 0.4, 0.9  # shares of kills: below the first at named points, above the second during startup
EVENTS_A_MESSAGE = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """How many messages and kills there are; the same plan kills at the same places."""

    ability: Ability
    messages: int
    kills: int
    seed: int
    rooms: int = 12
    unclear: Unclear = Unclear.RESEND_MARKED
    latest: str = "room"

    @property
    def title(self) -> str:
        """What the platform of this plan can do."""
        return f"{self.ability}, {self.unclear}" if self.ability is Ability.NEITHER else str(self.ability)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a plan."""

    plan: Plan
    verdict: Verdict
    kills: int
    model_calls: int
    seconds: float


class Feeder:
    """Writes in every room: a few messages, and the next when the room has been answered, or stays silent."""

    def __init__(self, platform: Platform, plan: Plan, chance: random.Random) -> None:
        self._platform = platform
        self._chance = chance
        self._rooms = [f"{'g' if number % 4 == 3 else 'r'}{number}" for number in range(plan.rooms)]
        self._unanswered: defaultdict[str, set[str]] = defaultdict(set)
        self._looked_at = 0
        self.allowed = 0

    def feed(self, *, is_quiet: bool = False) -> None:
        """Write in rooms without unanswered messages; in all rooms if `is_quiet`."""
        posts = self._platform.record.posts
        for post in posts[self._looked_at :]:
            self._unanswered[post.room] -= {*NAME.findall(post.text), post.reply_to}
        self._looked_at = len(posts)
        for room in self._rooms:
            if is_quiet or not self._unanswered[room]:
                self._burst(room)

    def feed_all(self) -> None:
        """Write the remaining messages."""
        while len(self._platform.record.updates) < self.allowed:
            self.feed(is_quiet=True)

    def _burst(self, room: str) -> None:
        is_group = room.startswith("g")
        for _ in range(1 if is_group else self._chance.choice((1, 1, 1, 2, 3))):
            if len(self._platform.record.updates) >= self.allowed:
                return
            text = self._chance.choice(GROUP_TALK if is_group else TALK)
            update = self._platform.feed(room, text, is_private=not is_group)
            self._unanswered[room].add(update.name)


async def run_plan(plan: Plan, folder: Path, fork_server: ForkServer) -> Report:
    """Carry out a plan in an empty folder. Raises TimeoutError if the bot does not finish."""
    began, chance = time.monotonic(), random.Random(plan.seed)
    setting = build_scene(fork_server, folder, ability=plan.ability, unclear=plan.unclear, LATEST_RESPONSE=plan.latest)
    async with setting as scene:
        feeder = Feeder(scene.platform, plan, chance)
        for number in range(plan.kills):
            feeder.allowed = plan.messages * (number + 1) // plan.kills
            await _run_and_kill_once(scene, feeder, chance, EVENTS_A_MESSAGE * plan.messages // plan.kills)
        feeder.allowed = plan.messages
        feeder.feed_all()
        verdict = await scene.run_until_settled(SETTLE_TIMEOUT)
        return Report(plan, verdict, plan.kills, scene.model.calls, time.monotonic() - began)


async def _run_and_kill_once(scene: Scene, feeder: Feeder, chance: random.Random, events: int) -> None:
    """Run the bot until a named point, an event on the wire, a moment of its startup, or silence."""
    way, wire = chance.random(), scene.wire
    kill_at = f"{chance.choice(POINTS)}:{chance.randint(1, 1 + events // 12)}" if way < AT_POINTS else ""
    after = chance.randint(1, max(events, 2))
    startup_delay = chance.uniform(0.0, STARTUP_SECONDS)
    start = wire.total
    async with scene.program.running(kill_at) as bot:

        def strike(name: str) -> None:
            if way > AT_POINTS and wire.total - start >= after:
                bot.kill()
            feeder.feed()

        if way > AT_STARTUP:
            asyncio.get_running_loop().call_later(startup_delay, bot.kill)
        wire.strike = strike
        feeder.feed()
        try:
            await _wait_until_over(bot, wire, feeder)
        finally:
            wire.strike = lambda name: None


async def _wait_until_over(bot: BotProcess, wire: Wire, feeder: Feeder) -> None:
    """Wait for the end of the process. If nothing happens, write more messages, then kill it."""
    clock = asyncio.get_running_loop().time
    last, since, is_written_to = -1, clock(), False
    asked = wire.seen[ASKED]

    def is_over() -> bool:
        nonlocal last, since, is_written_to
        if wire.done != last or wire.seen[ASKED] == asked:  # or it has not asked for updates yet
            last, since, is_written_to = wire.done, clock(), False
        elif clock() - since > QUIET_SECONDS:
            if is_written_to:
                bot.kill()
            feeder.feed(is_quiet=True)
            since, is_written_to = clock(), True
        return bot.is_over

    await wire.until(is_over, seconds=TIMEOUT, what="the end of the process")
