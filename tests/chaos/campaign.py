"""Many messages and kills from a random seed, then a comparison with the platform's record."""

import asyncio
import random
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.adapter import Unsure
from tests.chaos.loopback import Ability, Platform
from tests.chaos.program import Life, Nursery
from tests.chaos.scene import Scene, played
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
PATIENCE, AT_THE_END = 60.0, 300.0
QUIET = 0.4  # where nothing happens for so long, nothing will
BIRTH = 0.3
AT_POINTS, AT_BIRTH = 0.4, 0.9  # of all kills so many are at named points, and the rest from here at a birth
EVENTS_A_MESSAGE = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to happen; the same plan kills at the same places."""

    ability: Ability
    messages: int
    kills: int
    seed: int
    rooms: int = 12
    unclear: Unsure = Unsure.RESEND_MARKED
    latest: str = "room"

    @property
    def title(self) -> str:
        """What the platform of this plan can do."""
        return f"{self.ability}, {self.unclear}" if self.ability is Ability.NEITHER else str(self.ability)


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a plan."""

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
        """Write where there is nothing unanswered; everywhere if the bot has fallen silent."""
        posts = self._platform.truth.posts
        for post in posts[self._looked_at :]:
            self._unanswered[post.room] -= {*NAME.findall(post.text), post.reply_to}
        self._looked_at = len(posts)
        for room in self._rooms:
            if is_quiet or not self._unanswered[room]:
                self._burst(room)

    def feed_all(self) -> None:
        """Write what is left."""
        while len(self._platform.truth.updates) < self.allowed:
            self.feed(is_quiet=True)

    def _burst(self, room: str) -> None:
        is_group = room.startswith("g")
        for _ in range(1 if is_group else self._chance.choice((1, 1, 1, 2, 3))):
            if len(self._platform.truth.updates) >= self.allowed:
                return
            text = self._chance.choice(GROUP_TALK if is_group else TALK)
            update = self._platform.feed(room, text, is_private=not is_group)
            self._unanswered[room].add(update.name)


async def carried_out(plan: Plan, folder: Path, nursery: Nursery) -> Report:
    """Carry out a plan in an empty folder; raises TimeoutError where the bot does not get through."""
    began, chance = time.monotonic(), random.Random(plan.seed)
    setting = played(nursery, folder, ability=plan.ability, unclear=plan.unclear, LATEST_RESPONSE=plan.latest)
    async with setting as scene:
        feeder = Feeder(scene.platform, plan, chance)
        for number in range(plan.kills):
            feeder.allowed = plan.messages * (number + 1) // plan.kills
            await _killed_once(scene, feeder, chance, EVENTS_A_MESSAGE * plan.messages // plan.kills)
        feeder.allowed = plan.messages
        feeder.feed_all()
        verdict = await scene.settled(AT_THE_END)
        return Report(plan, verdict, plan.kills, scene.model.calls, time.monotonic() - began)


async def _killed_once(scene: Scene, feeder: Feeder, chance: random.Random, events: int) -> None:
    """Let it live until a named point, an event on the wire, a moment of its birth, or silence."""
    way, wire = chance.random(), scene.wire
    kill_at = f"{chance.choice(POINTS)}:{chance.randint(1, 1 + events // 12)}" if way < AT_POINTS else ""
    after = chance.randint(1, max(events, 2))
    birth = chance.uniform(0.0, BIRTH)
    start = wire.total
    async with scene.program.living(kill_at) as life:

        def strike(name: str) -> None:
            if way > AT_POINTS and wire.total - start >= after:
                life.kill()
            feeder.feed()

        if way > AT_BIRTH:
            asyncio.get_running_loop().call_later(birth, life.kill)
        wire.strike = strike
        feeder.feed()
        try:
            await _until_over(life, wire, feeder)
        finally:
            wire.strike = lambda name: None


async def _until_over(life: Life, wire: Wire, feeder: Feeder) -> None:
    """Wait for the end; where nothing happens any more, write on, and then bring it about."""
    clock = asyncio.get_running_loop().time
    last, since, is_written_to = -1, clock(), False
    asked = wire.seen[ASKED]

    def is_over() -> bool:
        nonlocal last, since, is_written_to
        if wire.done != last or wire.seen[ASKED] == asked:  # or it is not quite born
            last, since, is_written_to = wire.done, clock(), False
        elif clock() - since > QUIET:
            if is_written_to:
                life.kill()
            feeder.feed(is_quiet=True)
            since, is_written_to = clock(), True
        return life.is_over

    await wire.until(is_over, seconds=PATIENCE, what="the end of a life")
