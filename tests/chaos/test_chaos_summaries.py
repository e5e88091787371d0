"""Kills while rooms are summed up: the summary of a room covers each message once, and is paid for once a kill."""

import sqlite3
from collections import Counter
from contextlib import closing

import pytest

from tests.chaos.conftest import OpenScene
from tests.chaos.killing import KILLS, SAMPLE, kill_at_random
from tests.chaos.scene import Scene

pytestmark = pytest.mark.long
ROOMS, MESSAGES = 4, 50  # so many new ones are summed up
SUMMARIES = "SELECT r.external_id, s.text FROM summaries s JOIN rooms r ON r.id = s.room_id"
PAID = ("room summary", "none")


def talk(scene: Scene, *, count: int = MESSAGES) -> None:
    """Let people write so much in each room, and ask the character something at the end."""
    for number in range(ROOMS):
        for text in [*["quiet"] * (count - 1), "hello"]:
            scene.platform.feed(f"room {number}", text, is_private=False)


def read_covered(scene: Scene) -> dict[str, Counter[str]]:
    """Return by room how often its summary covers each message."""
    with closing(sqlite3.connect(scene.database.path)) as database:
        return {room: Counter(text.split()) for room, text in database.execute(SUMMARIES)}


def written(scene: Scene) -> dict[str, Counter[str]]:
    """Return by room what was written, each message once."""
    found: dict[str, Counter[str]] = {f"room {number}": Counter() for number in range(ROOMS)}
    for update in scene.platform.record.updates:
        found[update.room][update.name] += 1
    return found


async def test_a_room_is_summed_up_by_a_single_call(open_scene: OpenScene) -> None:
    async with open_scene() as scene:
        talk(scene)
        await scene.run_until_settled(60.0)
        assert read_covered(scene) == written(scene)
        assert scene.model.asked[PAID] == ROOMS


@pytest.mark.parametrize("kills", [SAMPLE, KILLS])
async def test_after_random_kills_the_summaries_cover_each_message_once(open_scene: OpenScene, kills: int) -> None:
    async with open_scene() as scene:
        for number, count in enumerate((kills // 2, kills - kills // 2)):
            talk(scene)
            await kill_at_random(scene, count, lambda: False, seed=53 + number, most_events=12)
            await scene.run_until_settled(60.0)
        before = {room: covered.total() for room, covered in read_covered(scene).items()}
        talk(scene)  # what a kill has left out is summed up with what comes next
        await scene.run_until_settled(60.0)
        assert all(covered.total() > before.get(room, 0) for room, covered in read_covered(scene).items())
        assert read_covered(scene) == written(scene)
        assert scene.model.asked[PAID] <= 3 * ROOMS + kills
