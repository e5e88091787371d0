"""Kills while a reply waits for a person and is decided about: nothing is lost, and nothing is sent twice."""

import json
import random
from collections import Counter

import pytest

from tests.chaos.conftest import OpenScene
from tests.chaos.program import CommandResult, inherited_variables
from tests.chaos.scene import Scene

pytestmark = pytest.mark.long
PROPOSING = (
    "ingress.post_commit:1",
    "turn.claimed:1",
    "model.reply:1",
    "turn.pre_commit:1",
    "outbox.committed:1",
    "proposal.committed:1",
)
SENDING = ("send.pre_write:1", "send.post_write:1", "send.pre_record:1")
WAITING = "SELECT count(*) FROM proposals WHERE state = 'waiting'"
ROOMS, KILLS, MOST_EVENTS = 12, 15, 12
SENT = "SELECT count(*) FROM proposals WHERE state = 'sent'"


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


async def run_until_proposed(scene: Scene) -> str:
    """Run the bot until the answer to the only message waits; return its id."""
    async with scene.program.running() as bot:
        await scene.wire.until(
            lambda: scene.platform.record.acknowledged > 0 and scene.is_settled(), seconds=30, what="a draft"
        )
        bot.stop()
        await bot.wait()
    assert scene.database.count(WAITING) == 1
    assert scene.texts == []
    listed = await run_command(scene, "drafts", "list", "--json")
    [draft] = json.loads(listed.out)["drafts"]
    return str(draft["id"])


@pytest.mark.parametrize("point", PROPOSING)
async def test_after_a_kill_at_any_stage_a_single_draft_waits(open_scene: OpenScene, point: str) -> None:
    async with open_scene(APPROVAL="all") as scene:
        scene.platform.feed("room", "hello")
        await scene.program.run_until_killed(point)
        draft_id = await run_until_proposed(scene)
        assert (await run_command(scene, "drafts", "send", draft_id)).code == 0
        verdict = await scene.run_until_settled()
        assert verdict.complaints == []
        assert scene.texts == ["re m1"]


async def test_after_a_kill_behind_the_decision_it_is_not_decided_again(open_scene: OpenScene) -> None:
    async with open_scene(APPROVAL="all") as scene:
        scene.platform.feed("room", "hello")
        draft_id = await run_until_proposed(scene)
        await run_command(scene, "drafts", "send", draft_id, kill_at="proposal.decided:1")
        assert scene.database.count(SENT) == 1
        again = await run_command(scene, "drafts", "send", draft_id)
        assert (again.code, "was already" in again.err) == (2, True)
        verdict = await scene.run_until_settled()
        assert verdict.complaints == []
        assert scene.texts == ["re m1"]


@pytest.mark.parametrize("point", SENDING)
async def test_a_draft_that_is_being_sent_when_the_bot_dies_arrives_once(open_scene: OpenScene, point: str) -> None:
    async with open_scene(APPROVAL="all") as scene:
        scene.platform.feed("room", "hello")
        draft_id = await run_until_proposed(scene)
        assert (await run_command(scene, "drafts", "send", draft_id)).code == 0
        await scene.program.run_until_killed(point)
        verdict = await scene.run_until_settled()
        assert verdict.complaints == []
        assert scene.texts == ["re m1"]


async def test_after_random_kills_every_answer_is_sent_once(open_scene: OpenScene) -> None:
    chance = random.Random(47)

    async def kill_at_random(count: int) -> None:
        for _ in range(count):
            end = scene.wire.total + chance.randint(1, MOST_EVENTS)
            async with scene.program.running() as bot:
                await scene.wire.until(
                    lambda end=end, bot=bot: bot.is_over or scene.wire.total >= end or scene.is_settled(),
                    seconds=30,
                    what="the next kill",
                )
                bot.kill()

    async with open_scene(APPROVAL="all") as scene:
        for number in range(ROOMS):
            scene.platform.feed(f"room {number}", "hello")
        await kill_at_random(KILLS)
        async with scene.program.running() as bot:
            await scene.wire.until(
                lambda: scene.is_settled() and scene.database.count(WAITING) == ROOMS, seconds=60, what="all drafts"
            )
            bot.stop()
            await bot.wait()
        assert scene.texts == []
        drafts = json.loads((await run_command(scene, "drafts", "list", "--json")).out)["drafts"]
        for draft in drafts:
            kill_at = chance.choice(["", "proposal.decided:1"])
            await run_command(scene, "drafts", "send", draft["id"], kill_at=kill_at)
        assert scene.database.count(SENT) == ROOMS
        await kill_at_random(KILLS)
        verdict = await scene.run_until_settled(60.0)
        assert verdict.complaints == []
        assert Counter(post.room for post in scene.platform.record.posted) == {f"room {n}": 1 for n in range(ROOMS)}
