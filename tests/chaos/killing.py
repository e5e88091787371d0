"""Kills at random times of a bot that works through something, and the time that passes between two runs."""

import random
from collections.abc import Callable

from tests.chaos.program import BotProcess
from tests.chaos.scene import Scene
from tests.chaos.wire import ASKED

SAMPLE, KILLS = 3, 20  # few kills for a look, and as many as a release needs
MOST_EVENTS = 6
FREE_TASKS = """
SELECT count(*) FROM tasks
WHERE is_queued = 1 AND is_parked = 0 AND leased_until IS NULL AND next_run <= strftime('%s', 'now') * 1000000
AND name IN (SELECT name FROM tasks WHERE leased_until IS NOT NULL)
"""
LEASED_TASKS = "SELECT count(*) FROM tasks WHERE leased_until IS NOT NULL"
END_LEASES = "UPDATE tasks SET leased_until = 0 WHERE leased_until IS NOT NULL"


def pass_leases(scene: Scene) -> None:
    """Let the leases of a killed process end, once no other such task is due: as if the test had waited for it."""
    if scene.database.count(LEASED_TASKS) and not scene.database.count(FREE_TASKS):
        scene.database.change(END_LEASES)


async def kill_at_random(
    scene: Scene, kills: int, is_done: Callable[[], bool], *, seed: int, most_events: int = MOST_EVENTS
) -> None:
    """Start the bot so many times, and kill it each time a few events on the wire later, or once it is done."""
    chance = random.Random(seed)
    for _ in range(kills):
        pass_leases(scene)
        end = scene.wire.total + chance.randint(1, most_events)
        async with scene.program.running() as bot:

            def is_time(end: int = end, bot: BotProcess = bot) -> bool:
                return bot.is_over or scene.wire.total >= end or is_done()

            await scene.wire.until(is_time, seconds=60, what="the next kill")
            bot.kill()
    pass_leases(scene)


async def run_until_done(scene: Scene, is_done: Callable[[], bool], *, seconds: float = 60.0) -> None:
    """Run the bot until this is done and everything is sent, and stop it."""
    pass_leases(scene)
    asked = scene.wire.seen[ASKED]
    async with scene.program.running() as bot:
        await scene.wire.until_seen(
            lambda: bot.is_over or (scene.wire.seen[ASKED] > asked and is_done() and scene.is_settled()),
            seconds=seconds,
            what="everything done",
        )
        bot.stop()
        assert await bot.wait() == 0, scene.program.output_end
