"""Kills while reminders are due: none is lost, and none is sent twice without the mark."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from bot import Settings, Task, derived_id
from bot.settings import Layer
from bot.store import SqlStorage
from plugins.reminders.reminder import REMINDER
from tests.chaos.adapter import MARK
from tests.chaos.conftest import OpenScene
from tests.chaos.killing import KILLS, SAMPLE, kill_at_random, run_until_done
from tests.chaos.loopback import Ability
from tests.chaos.scene import Scene

pytestmark = pytest.mark.long
POINTS = ("outbox.committed:1", "send.pre_write:1", "send.post_write:1", "send.pre_record:1", "send.part1:1")
AGENT = derived_id("agent", "Ada")
WAITING = "SELECT count(*) FROM tasks WHERE name = 'REMINDER'"


async def store_due_reminders(scene: Scene, count: int) -> None:
    """Let a person write in each room, and store a reminder for each that is due."""
    for number in range(count):
        scene.platform.feed(f"room {number}", "quiet")
    await scene.run_until_settled(60.0)
    settings = Settings([Layer("the test", {"DATABASE_URL": f"sqlite:///{scene.program.database}"})])
    async with SqlStorage().open(AGENT, settings) as store:
        rooms = {room.external_id: room for room in await store.worlds.rooms()}
        due = datetime.now(UTC) - timedelta(seconds=1)
        for number in range(count):
            room = rooms[f"room {number}"]
            [message] = await store.memories.recent(room.id, 1)
            id_ = derived_id("reminder", str(number))
            metadata = {"name": "Kim", "private": False}
            await store.tasks.save_task(
                Task(
                    id_, REMINDER, due, f"thing {number}", room.id, room.world_id, message.entity_id, metadata=metadata
                )
            )


def count_reminders(scene: Scene) -> Counter[str]:
    """Count what can be read in each room; one with the mark of a repetition may be the only one."""
    texts = [(post.room, post.text) for post in scene.platform.record.posted if "asked me to remind" in post.text]
    plain = Counter(room for room, text in texts if not text.startswith(MARK))
    return Counter({room: plain[room] or 1 for room, _ in texts})


def is_done(scene: Scene) -> bool:
    """Return whether no reminder waits."""
    return not scene.database.count(WAITING)


@pytest.mark.parametrize("point", POINTS)
async def test_after_a_kill_at_any_stage_a_person_is_reminded_once(open_scene: OpenScene, point: str) -> None:
    async with open_scene(REMINDERS="20") as scene:
        await store_due_reminders(scene, 1)
        await scene.program.run_until_killed(point)
        await run_until_done(scene, lambda: is_done(scene))
        assert count_reminders(scene) == {"room 0": 1}
        assert scene.verdict.complaints == []


@pytest.mark.parametrize("kills", [SAMPLE, KILLS])
@pytest.mark.parametrize("ability", [Ability.NONCE, Ability.NEITHER])
async def test_after_random_kills_each_person_is_reminded_once(
    open_scene: OpenScene, ability: Ability, kills: int
) -> None:
    async with open_scene(ability=ability, REMINDERS="20") as scene:
        await store_due_reminders(scene, 2 * kills)
        await kill_at_random(scene, kills, lambda: is_done(scene), seed=50)
        await run_until_done(scene, lambda: is_done(scene))
        assert count_reminders(scene) == {f"room {number}": 1 for number in range(2 * kills)}
        assert scene.verdict.complaints == []
