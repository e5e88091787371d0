"""Kills around the first reply to a person: the AI notice is sent with it, before it, and never again."""

import pytest

from tests.chaos.adapter import MARK, Unclear
from tests.chaos.conftest import OpenScene
from tests.chaos.loopback import Ability
from tests.chaos.scene import Scene

pytestmark = pytest.mark.long
NOTICE = "Ada is an AI character. No human writes these messages."
KEPT_NOTICES = "SELECT count(*) FROM disclosures WHERE kind = 'notice'"
STAGES = ("turn.claimed", "model.reply", "model.post", "turn.pre_commit", "outbox.committed")
SENDING = ("send.pre_write", "send.post_write", "send.pre_record", "send.part1")


async def answer_after_a_kill(scene: Scene, point: str, times: int) -> list[str]:
    """Kill the bot at a point while it answers a message; return what can be read once it is answered."""
    scene.platform.feed("room", "hello")
    await scene.run_until_killed(point, times=times)
    assert (await scene.run_until_settled()).complaints == []
    assert scene.database.count(KEPT_NOTICES) == 1
    return scene.texts


@pytest.mark.parametrize("point", STAGES)
async def test_a_notice_is_neither_lost_nor_repeated_by_a_kill_before_it_is_sent(
    open_scene: OpenScene, point: str
) -> None:
    async with open_scene(AI_NOTICE="first") as scene:
        assert await answer_after_a_kill(scene, point, 1) == [NOTICE, "re m1"]


@pytest.mark.parametrize("times", [1, 2], ids=["notice", "reply"])
@pytest.mark.parametrize("point", SENDING)
@pytest.mark.parametrize("ability", [Ability.NONCE, Ability.REFUSING])
async def test_a_notice_arrives_once_where_the_platform_can_tell(
    open_scene: OpenScene, ability: Ability, point: str, times: int
) -> None:
    async with open_scene(ability=ability, AI_NOTICE="first") as scene:
        assert await answer_after_a_kill(scene, point, times) == [NOTICE, "re m1"]


@pytest.mark.parametrize("point", SENDING)
async def test_a_notice_is_repeated_with_a_mark_where_nothing_tells(open_scene: OpenScene, point: str) -> None:
    async with open_scene(ability=Ability.NEITHER, unclear=Unclear.RESEND_MARKED, AI_NOTICE="first") as scene:
        texts = await answer_after_a_kill(scene, point, 1)
        assert texts.count(NOTICE) <= 1
        assert list(dict.fromkeys(text.removeprefix(MARK) for text in texts)) == [NOTICE, "re m1"]
