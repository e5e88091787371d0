"""Kills while conversations are begun: never twice without an answer, and at most once a day in a room."""

from collections import Counter
from datetime import UTC, datetime

import pytest

from tests.chaos.conftest import OpenScene
from tests.chaos.killing import KILLS, SAMPLE, kill_at_random, run_until_done
from tests.chaos.scene import Scene

pytestmark = pytest.mark.long
ROOMS = 6  # in which people write before each half of the kills
POINTS = ("outbox.committed:1", "send.pre_write:1", "send.post_write:1", "send.pre_record:1", "send.part1:1")
DUE = "SELECT count(*) FROM tasks WHERE name = 'START_TALK' AND next_run <= strftime('%s', 'now') * 1000000"
FIVE_HOURS = 5 * 3600 * 1_000_000
PASS_HOURS = f"UPDATE memories SET created_at = created_at - {FIVE_HOURS}"
MAKE_DUE = "UPDATE tasks SET next_run = strftime('%s', 'now') * 1000000, attempts = 0 WHERE name = 'START_TALK'"


def settings(rooms: int) -> dict[str, str]:
    """Return the settings of idle talk in these rooms, in a time zone where it is about noon."""
    offset = datetime.now(UTC).hour - 12
    names = ",".join(f"loopback:room {number}:1" for number in range(rooms))
    return {"IDLE_TALK": names, "TIMEZONE": f"Etc/GMT{offset:+d}"}


async def write_in(scene: Scene, rooms: range) -> None:
    """Let a person write in each of these rooms, and have it answered."""
    for number in rooms:
        scene.platform.feed(f"room {number}", "hello")
    await scene.run_until_settled(60.0)


def pass_hours(scene: Scene) -> None:
    """Let five hours pass, after which the rooms are looked at."""
    scene.database.change(PASS_HOURS)
    scene.database.change(MAKE_DUE)


def is_done(scene: Scene) -> bool:
    """Return whether all rooms were looked at."""
    return not scene.database.count(DUE)


def begun(scene: Scene) -> Counter[str]:
    """Count the conversations that were begun, by room."""
    return Counter(post.room for post in scene.platform.record.posted if "a new subject" in post.text)


@pytest.mark.parametrize("kills", [SAMPLE, KILLS])
async def test_after_random_kills_a_single_conversation_is_begun_in_each_room(
    open_scene: OpenScene, kills: int
) -> None:
    async with open_scene(**settings(2 * ROOMS)) as scene:
        for number, count in enumerate((kills // 2, kills - kills // 2)):
            await write_in(scene, range(number * ROOMS, (number + 1) * ROOMS))
            pass_hours(scene)
            await kill_at_random(scene, count, lambda: is_done(scene), seed=52 + number)
            scene.database.change(MAKE_DUE)
            await run_until_done(scene, lambda: is_done(scene))
            assert begun(scene) == {f"room {room}": 1 for room in range((number + 1) * ROOMS)}
        assert (
            sum(count for (purpose, _), count in scene.model.asked.items() if purpose == "begun") <= 2 * ROOMS + kills
        )
        assert scene.verdict.complaints == []


@pytest.mark.parametrize("point", POINTS)
async def test_after_a_kill_at_any_stage_the_text_that_was_written_is_said_and_no_other(
    open_scene: OpenScene, point: str
) -> None:
    async with open_scene(**settings(1)) as scene:
        await write_in(scene, range(1))
        pass_hours(scene)
        await scene.program.run_until_killed(point)
        pass_hours(scene)
        await run_until_done(scene, lambda: is_done(scene))
        await write_in(scene, range(1))
        pass_hours(scene)
        await run_until_done(scene, lambda: is_done(scene))
        assert begun(scene) == {"room 0": 1}  # once a day, also after an answer
        assert scene.model.asked["begun", "m1"] == 1
        assert scene.verdict.complaints == []
