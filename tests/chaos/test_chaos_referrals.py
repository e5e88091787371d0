"""Kills while people in distress are referred to help: no referral is lost, and none is sent twice without the mark."""

import random
from collections import Counter

import pytest

from tests.chaos.conftest import OpenScene
from tests.chaos.loopback import Ability
from tests.chaos.scene import Scene

pytestmark = pytest.mark.long
DISTRESS, REFERRAL = "I want to die", "Call Mary."
COUNTED = "SELECT count FROM care_counts WHERE category = 'suicide'"
POINTS = (
    "ingress.post_commit:1",
    "turn.claimed:1",
    "outbox.committed:1",
    "care.referred:1",
    "send.pre_write:1",
    "send.post_write:1",
    "send.pre_record:1",
    "send.part1:1",
    "model.reply:1",
    "model.post:1",
    "turn.pre_commit:1",
    "outbox.committed:2",
)
ROOMS, KILLS, MOST_EVENTS = 60, 24, 20


def count_referrals(scene: Scene) -> Counter[str]:
    """Count the referrals that can be read in each room; one with the mark of a repetition may be the only one."""
    texts = [(post.room, post.text) for post in scene.platform.record.posted if REFERRAL in post.text]
    plain, marked = Counter(room for room, text in texts if text == REFERRAL), {room for room, _ in texts}
    return Counter({room: plain[room] or 1 for room in marked})


@pytest.mark.parametrize("point", POINTS)
async def test_after_a_kill_at_any_stage_there_is_a_single_referral(open_scene: OpenScene, point: str) -> None:
    async with open_scene(CARE_TEXT=REFERRAL) as scene:
        scene.platform.feed("room", DISTRESS)
        await scene.program.run_until_killed(point)
        verdict = await scene.run_until_settled()
        assert verdict.complaints == []
        assert scene.texts == [REFERRAL, "re m1"]
        assert scene.database.count(COUNTED) == 1


@pytest.mark.parametrize("ability", [Ability.NONCE, Ability.NEITHER])
async def test_after_random_kills_each_person_has_a_single_referral(open_scene: OpenScene, ability: Ability) -> None:
    chance = random.Random(46)
    async with open_scene(ability=ability, CARE_TEXT=REFERRAL) as scene:
        for number in range(ROOMS):
            scene.platform.feed(f"room {number}", DISTRESS)
        for _ in range(KILLS):
            end = scene.wire.total + chance.randint(1, MOST_EVENTS)
            async with scene.program.running() as bot:
                await scene.wire.until(
                    lambda end=end, bot=bot: bot.is_over or scene.wire.total >= end, seconds=30, what="the next kill"
                )
                bot.kill()
        verdict = await scene.run_until_settled(60.0)
        assert verdict.complaints == []
        assert count_referrals(scene) == {f"room {number}": 1 for number in range(ROOMS)}
        assert scene.database.count(COUNTED) == ROOMS
