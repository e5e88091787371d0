"""Kills at the stages of drafts, approvals of actions and take-overs, then a comparison with the platform's record."""

import json
import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.database import BotDatabase
from tests.chaos.program import CommandResult, ForkServer, inherited_variables
from tests.chaos.scene import Scene, build_scene
from tests.chaos.verdict import Verdict

TALK = ("hello", "hello", "do unsafe", "do keyed", "do pure unsafe keyed")
RUN_POINTS = (
    *("ingress.post_commit", "turn.claimed", "model.reply", "turn.pre_commit", "outbox.committed"),
    *("proposal.committed", "action.pre", "action.mid", "action.post", "chain.1"),
    *("send.pre_write", "send.post_write", "send.pre_record"),
)
WAITING = "SELECT count(*) FROM proposals WHERE state = 'waiting'"
DECIDED, TAKEN_OVER = "proposal.decided", "take_over.stored"
TIMEOUT, ROUNDS, DROPPED = 60.0, 12, 0.2


@dataclass(slots=True)
class ControlReport:
    """The result: the verdict, the kills by stage, and how many drafts were decided about."""

    verdict: Verdict
    kills: dict[str, int] = field(default_factory=dict)
    decisions: int = 0
    take_overs: int = 0
    seconds: float = 0.0


async def run_command(scene: Scene, *arguments: str, kill_at: str = "") -> CommandResult:
    """Run a command on the store of the stopped bot, which may kill itself at a point."""
    program = scene.program
    environment = {
        **inherited_variables("PATH", "SSL_CERT_FILE"),
        "DATABASE_URL": f"sqlite:///{program.database}",
        "BOT_DATA_DIR": str(program.folder),
        "BOT_KILL_AT": kill_at,
        **program.settings,
    }
    return await program.fork_server.run([*arguments, "-c", "ada.json"], program.folder, environment)


class Operator:
    """Kills the bot, or a command about its stopped store, in every round; decides about drafts, and takes over."""

    def __init__(self, scene: Scene, chance: random.Random, rooms: int) -> None:
        self._scene, self._chance = scene, chance
        self._rooms = [f"r{number}" for number in range(rooms)]
        self._taken_over: set[str] = set()
        self._is_begun = False
        self.report = ControlReport(Verdict())

    async def kill_once(self) -> None:
        """Write in some rooms, and kill the bot, a decision or a take-over, at a point that is drawn."""
        waiting = BotDatabase(self._scene.program.database).count(WAITING) if self._is_begun else 0
        way = self._chance.random()
        if waiting and way < 0.3:
            await self._decide(kill_at=f"{DECIDED}:1")
        elif self._is_begun and way < 0.45:
            await self._take_over(kill_at=f"{TAKEN_OVER}:1")
        else:
            await self._run_and_kill(self._chance.choice(RUN_POINTS))

    async def finish(self) -> ControlReport:
        """Give all rooms back, send what waits until nothing does, and return the report."""
        scene = self._scene
        for room in list(self._taken_over):
            await self._give_back(room)
        for _ in range(ROUNDS):
            self.report.verdict = await scene.run_until_settled(TIMEOUT)
            if not scene.database.count(WAITING):
                return self.report
            while scene.database.count(WAITING):
                await self._decide()
        raise TimeoutError(f"drafts still wait after {ROUNDS} rounds")

    async def _run_and_kill(self, point: str) -> None:
        """Run the bot until it kills itself at a point; where it does not come there, that is no kill of the count."""
        scene, self._is_begun = self._scene, True
        for room in self._chance.sample(self._rooms, 3):
            scene.platform.feed(room, self._chance.choice(TALK))
        async with scene.program.running(f"{point}:1") as bot:
            await scene.wire.until(lambda: bot.is_over or scene.is_settled(), seconds=TIMEOUT, what="the next kill")
            if bot.is_over:
                self._count(point)

    async def _decide(self, kill_at: str = "") -> None:
        """Send a draft, or drop an action now and then, and do so again after a kill: it is decided about once."""
        listed = json.loads((await run_command(self._scene, "drafts", "list", "--json")).out)["drafts"]
        draft = self._chance.choice(listed)
        decision = "drop" if draft["action"] and self._chance.random() < DROPPED else "send"
        result = await run_command(self._scene, "drafts", decision, draft["id"], kill_at=kill_at)
        self.report.decisions += 1
        if not kill_at:
            assert result.code == 0, result.err
            return
        assert result.code == -signal.SIGKILL, result.err
        self._count(DECIDED)
        again = await run_command(self._scene, "drafts", "send", draft["id"])
        if "was already" not in again.err:
            self.report.verdict.doubled.append(f"draft {draft['id']} was decided about twice: {again.out}{again.err}")

    async def _take_over(self, kill_at: str) -> None:
        """Take a room over, which is in effect after a kill, and give one back that was taken over before."""
        if self._taken_over:
            await self._give_back(self._taken_over.pop())
        room = self._chance.choice(self._rooms)
        result = await run_command(self._scene, "rooms", "take-over", room, "--name", "First", kill_at=kill_at)
        if result.code != -signal.SIGKILL:  # there is no such room yet
            return
        self._count(TAKEN_OVER)
        self.report.take_overs += 1
        self._taken_over.add(room)
        again = await run_command(self._scene, "rooms", "take-over", room, "--name", "Second")
        if "taken over by First" not in again.out:
            self.report.verdict.lost.append(f"the take-over of {room} was lost: {again.out}{again.err}")

    async def _give_back(self, room: str) -> None:
        self._taken_over.discard(room)
        await run_command(self._scene, "rooms", "give-back", room)

    def _count(self, stage: str) -> None:
        self.report.kills[stage] = self.report.kills.get(stage, 0) + 1


async def run_control(kills: int, seed: int, folder: Path, fork_server: ForkServer, rooms: int = 6) -> ControlReport:
    """Kill so many times in an empty folder, and compare; the same seed draws the same kills."""
    began, chance = time.monotonic(), random.Random(seed)
    async with build_scene(fork_server, folder, APPROVAL="all", LATEST_RESPONSE="queue") as scene:
        operator = Operator(scene, chance, rooms)
        while sum(operator.report.kills.values()) < kills:
            await operator.kill_once()
        complaints = operator.report.verdict.complaints
        report = await operator.finish()
        report.verdict.damaged += complaints
        report.seconds = time.monotonic() - began
        return report
