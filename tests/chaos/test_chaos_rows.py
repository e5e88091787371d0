"""A kill at each stage and the required result: failures of group A."""

import pytest

from bot import Effect
from bot.pipeline.commit import MAX_RETRIES
from tests.chaos.adapter import MARK, Unclear
from tests.chaos.conftest import OpenScene
from tests.chaos.effects_plugin import POISON
from tests.chaos.loopback import Ability
from tests.chaos.scene import KEPT, TIMEOUT, Scene
from tests.chaos.verdict import APOLOGY

pytestmark = pytest.mark.long
FACTS = "SELECT count(*) FROM memories WHERE kind = 'FACT'"
UNEVALUATED = "SELECT count(*) FROM receipts WHERE is_evaluated = 0"
COUNTED = "SELECT coalesce(sum(calls), 0) FROM costs"
UNKNOWN = "SELECT count(*) FROM deliveries WHERE state = 'unknown'"
BATCH = 100
OTHERS, MOST_CRASHES = 200, 14


async def assert_settled_without_complaints(scene: Scene) -> None:
    """Run the bot until it has settled; its database must match the platform's record."""
    verdict = await scene.run_until_settled()
    assert verdict.complaints == []


def count_effects(scene: Scene, kind: str) -> int:
    """Count the side effects of one kind."""
    return sum(done == kind for done, _, _ in scene.platform.record.effects)


@pytest.mark.failure("A-01")
async def test_an_uncommitted_message_is_redelivered(open_scene: OpenScene) -> None:
    async with open_scene() as scene:
        for room in ("one", "two", "three"):
            scene.platform.feed(room, "hello")
        for _ in range(20):
            await scene.run_until_killed("ingress.pre_commit")
            assert scene.database.count(KEPT) == 0
            assert scene.platform.record.acknowledged == 0
        await assert_settled_without_complaints(scene)
        assert sorted(scene.texts) == ["re m1", "re m2", "re m3"]


@pytest.mark.failure("A-02")
async def test_a_message_redelivered_after_its_commit_is_answered_once(open_scene: OpenScene) -> None:
    async with open_scene() as scene:
        scene.platform.feed("room", "hello")
        await scene.run_until_killed("ingress.post_commit")
        assert scene.database.count(KEPT) == 1
        assert scene.platform.record.acknowledged == 0
        scene.platform.hands_out_again = True
        await assert_settled_without_complaints(scene)
        assert scene.platform.record.handed_out == [1, 1]
        assert scene.texts == ["re m1"]


@pytest.mark.failure("A-03")
async def test_a_batch_is_stored_completely_or_not_at_all(open_scene: OpenScene) -> None:
    async with open_scene() as scene:
        for number in range(BATCH):
            scene.platform.feed(f"room {number}", "hello")
        await scene.run_until_killed("ingress.batch")
        assert scene.database.count(KEPT) == 0
        await assert_settled_without_complaints(scene)
        assert len(scene.texts) == BATCH


@pytest.mark.failure("A-04")
async def test_a_claimed_message_that_was_not_started_is_started_again(open_scene: OpenScene) -> None:
    async with open_scene() as scene:
        scene.platform.feed("room", "hello")
        await scene.run_until_killed("turn.claimed")
        await assert_settled_without_complaints(scene)
        assert scene.texts == ["re m1"]
        assert [receipt.attempts for receipt in scene.database.receipts()] == [2]


@pytest.mark.failure("A-05")
async def test_an_attachment_is_fetched_again_and_leaves_no_file(open_scene: OpenScene) -> None:
    async with open_scene() as scene:
        scene.platform.feed("room", "hello", file="http://files.example.com/file")
        await scene.run_until_killed("attach.mid")
        await assert_settled_without_complaints(scene)
        assert scene.wire.seen["file"] == 2
        assert scene.texts == ["re m1"]
        left = {path.name for path in scene.program.folder.iterdir() if not path.name.startswith("greenroom.db")}
        kept = {"ada.json", "effects_plugin.py", "log.txt", "reported.json", "trusted-plugins.json"}
        assert left - {"__pycache__"} == kept


@pytest.mark.failure("A-06")
async def test_the_response_decision_is_requested_again_and_both_calls_are_recorded(open_scene: OpenScene) -> None:
    async with open_scene() as scene:
        scene.platform.feed("group", "hello", is_private=False)
        await scene.run_until_killed("model.decide")
        await assert_settled_without_complaints(scene)
        assert scene.texts == ["re m1"]
        assert scene.model.asked["decide", "m1"] == 2
        assert [receipt.attempts for receipt in scene.database.receipts()] == [2]


@pytest.mark.failure("A-07", "G-13", "H-07")
async def test_a_message_that_kills_the_process_three_times_fails_and_the_room_is_notified(
    open_scene: OpenScene,
) -> None:
    async with open_scene() as scene:
        scene.platform.feed("room", "hello")
        await scene.run_until_killed("model.reply")
        await scene.run_until_event("reply")
        await scene.run_until_event("reply")
        await assert_settled_without_complaints(scene)
        [receipt] = scene.database.receipts()
        assert (receipt.outcome, receipt.rule) == ("failed", "restart")
        [text] = scene.texts
        assert text.startswith(APOLOGY)
        assert scene.model.asked["reply", "m1"] == 2


@pytest.mark.failure("A-24")
async def test_a_message_that_kills_the_process_is_found_among_200_and_these_are_answered(
    open_scene: OpenScene,
) -> None:
    async with open_scene() as scene:
        for number in range(OTHERS + 1):
            scene.platform.feed(f"room {number}", POISON if number == OTHERS // 3 else "hello")
        crashes = 0
        while not scene.is_settled():
            async with scene.program.running() as bot:
                await scene.wire.until(
                    lambda bot=bot: bot.is_over or scene.is_settled(), seconds=TIMEOUT, what="the next crash"
                )
                crashes += bot.is_over
            assert crashes <= MOST_CRASHES
        await assert_settled_without_complaints(scene)
        receipts = scene.database.receipts()
        [killer] = [receipt for receipt in receipts if receipt.outcome != "answered"]
        assert (killer.name, killer.outcome, killer.rule) == (f"m{OTHERS // 3 + 1}", "failed", "restart")
        assert len(receipts) == len(scene.texts) == OTHERS + 1
        assert sum(text.startswith(APOLOGY) for text in scene.texts) == 1


@pytest.mark.failure("A-07")
@pytest.mark.parametrize("point", ["send.pre_write", "send.post_write"])
async def test_an_apology_in_progress_is_not_lost(open_scene: OpenScene, point: str) -> None:
    async with open_scene() as scene:
        scene.platform.feed("room", "hello")
        for _ in range(3):
            await scene.run_until_event("reply")
        await scene.run_until_killed("turn.pre_commit")
        await scene.run_until_killed(point)
        await assert_settled_without_complaints(scene)
        [text] = scene.texts
        assert text.startswith(APOLOGY)


STORY = "the story of m1: " + "and then " * 6 + "the end"
STREAMING = {"LOOPBACK_EDITS": "0.02"}


@pytest.mark.failure("A-08")
@pytest.mark.parametrize("point", ["stream.mid:1", "stream.mid:2", "edit.pre_write:1", "edit.post_write:1"])
async def test_a_draft_is_edited_into_the_reply_after_the_restart(open_scene: OpenScene, point: str) -> None:
    name, _, times = point.partition(":")
    async with open_scene(ability=Ability.NEITHER, **STREAMING) as scene:
        scene.platform.feed("room", "a story")
        await scene.run_until_killed(name, times=int(times))
        [begun] = scene.readable
        assert STORY.startswith(begun)
        assert begun != STORY
        await assert_settled_without_complaints(scene)
        assert scene.readable == [STORY]
        assert len(scene.platform.record.posts) == 1
        assert {edit.post for edit in scene.platform.record.edits} == {"p1"}


@pytest.mark.failure("A-08")
@pytest.mark.parametrize("point", ["turn.pre_commit", "outbox.committed", "send.pre_record"])
async def test_a_committed_reply_replaces_its_draft_after_the_restart(open_scene: OpenScene, point: str) -> None:
    async with open_scene(**STREAMING) as scene:
        scene.platform.feed("room", "a story")
        await scene.run_until_killed(point)
        assert len(scene.readable) == 1
        await assert_settled_without_complaints(scene)
        assert scene.readable == [STORY]
        assert len(scene.platform.record.posts) == 1
        assert scene.model.asked["reply", "m1"] == 1


@pytest.mark.failure("A-08")
@pytest.mark.parametrize("point", ["send.pre_write", "send.post_write"])
@pytest.mark.parametrize("ability", [Ability.NONCE, Ability.REFUSING])
async def test_an_ambiguous_draft_results_in_a_single_message(
    open_scene: OpenScene, ability: Ability, point: str
) -> None:
    async with open_scene(ability=ability, **STREAMING) as scene:
        scene.platform.feed("room", "a story")
        await scene.run_until_killed(point)
        await assert_settled_without_complaints(scene)
        assert scene.readable == [STORY]


@pytest.mark.failure("A-08")
@pytest.mark.parametrize("unclear", Unclear)
async def test_an_ambiguous_draft_without_reconciliation_still_results_in_the_complete_reply(
    open_scene: OpenScene, unclear: Unclear
) -> None:
    async with open_scene(ability=Ability.NEITHER, unclear=unclear, **STREAMING) as scene:
        scene.platform.feed("room", "a story")
        await scene.run_until_killed("send.post_write")
        await assert_settled_without_complaints(scene)
        assert scene.readable[1:] == [STORY]


@pytest.mark.failure("A-09")
async def test_an_answer_that_was_not_journalled_is_requested_again(open_scene: OpenScene) -> None:
    async with open_scene() as scene:
        scene.platform.feed("room", "hello")
        await scene.run_until_killed("model.post")
        await assert_settled_without_complaints(scene)
        assert scene.texts == ["re m1"]
        assert scene.model.asked["reply", "m1"] == 2


@pytest.mark.failure("A-10")
async def test_an_answer_that_was_journalled_is_not_paid_for_again(open_scene: OpenScene) -> None:
    async with open_scene() as scene:
        scene.platform.feed("room", "hello")
        await scene.run_until_killed("turn.pre_commit")
        await assert_settled_without_complaints(scene)
        assert scene.texts == ["re m1"]
        assert scene.model.asked["reply", "m1"] == 1


@pytest.mark.failure("A-10")
async def test_messages_that_were_answered_together_are_not_answered_again_singly(open_scene: OpenScene) -> None:
    async with open_scene() as scene:
        scene.model.least_together = 2
        scene.platform.feed("group", "hello", is_private=False)
        scene.platform.feed("group", "hello", is_private=False)
        await scene.run_until_killed("turn.pre_commit")
        scene.model.least_together = 1
        await assert_settled_without_complaints(scene)
        [text] = scene.texts
        assert text in ("re m1+m2", "re m2+m1")


# One text at the end reports what was done; where all actions are without effect, the model's own text comes first.
SENT_TEXTS = {Effect.PURE: ["did m1", "sum of m1"], Effect.IDEMPOTENT: ["sum of m1"], Effect.KEYED: ["sum of m1"]}


@pytest.mark.failure("A-11")
@pytest.mark.parametrize("effect", [Effect.PURE, Effect.IDEMPOTENT, Effect.KEYED])
async def test_a_planned_action_that_was_not_started_runs(open_scene: OpenScene, effect: Effect) -> None:
    async with open_scene() as scene:
        scene.platform.feed("room", f"do {effect}")
        await scene.run_until_killed("action.pre")
        await assert_settled_without_complaints(scene)
        assert count_effects(scene, effect) == 1
        assert scene.texts == SENT_TEXTS[effect]


@pytest.mark.failure("A-12", "A-13")
@pytest.mark.parametrize("point", ["action.mid", "action.post"])
@pytest.mark.parametrize("effect", [Effect.PURE, Effect.IDEMPOTENT, Effect.KEYED])
async def test_an_action_that_may_be_repeated_is_repeated_under_the_same_key(
    open_scene: OpenScene, effect: Effect, point: str
) -> None:
    async with open_scene() as scene:
        scene.platform.feed("room", f"do {effect}")
        await scene.run_until_killed(point)
        await assert_settled_without_complaints(scene)
        assert count_effects(scene, effect) == 2
        assert len(set(scene.platform.record.effects)) == 1
        assert scene.texts == SENT_TEXTS[effect]


@pytest.mark.failure("A-12", "A-13")
@pytest.mark.parametrize("point", ["action.pre", "action.mid", "action.post"])
async def test_an_unsafe_action_is_not_repeated_and_the_user_is_notified(open_scene: OpenScene, point: str) -> None:
    async with open_scene() as scene:
        scene.platform.feed("room", "do unsafe")
        await scene.run_until_killed(point)
        await assert_settled_without_complaints(scene)
        assert count_effects(scene, Effect.UNSAFE) == (0 if point == "action.pre" else 1)
        assert scene.texts == ["sum of m1"]


@pytest.mark.failure("A-14")
async def test_an_interrupted_chain_continues(open_scene: OpenScene) -> None:
    async with open_scene() as scene:
        scene.platform.feed("room", "do pure unsafe keyed")
        await scene.run_until_killed("chain.2")
        await assert_settled_without_complaints(scene)
        assert [kind for kind, _, _ in scene.platform.record.effects] == ["pure", "unsafe", "keyed"]
        assert scene.texts == ["sum of m1"]
        assert scene.model.asked["reply", "m1"] == 1


@pytest.mark.failure("A-15")
async def test_a_reply_that_was_committed_is_sent_after_the_restart(open_scene: OpenScene) -> None:
    async with open_scene() as scene:
        scene.platform.feed("room", "hello")
        await scene.run_until_killed("outbox.committed")
        assert scene.texts == []
        await assert_settled_without_complaints(scene)
        assert scene.texts == ["re m1"]
        assert scene.model.calls == 1


UNCLEAR = pytest.mark.parametrize("point", ["send.pre_write", "send.post_write", "send.pre_record"])


@pytest.mark.failure("A-16", "A-17", "A-18")
@UNCLEAR
async def test_with_a_nonce_an_ambiguous_send_is_repeated_with_it(open_scene: OpenScene, point: str) -> None:
    async with open_scene() as scene:
        scene.platform.feed("room", "hello")
        await scene.run_until_killed(point)
        await assert_settled_without_complaints(scene)
        assert scene.texts == ["re m1"]
        requests = [post.key for post in scene.platform.record.posts]
        assert len(requests) == (1 if point == "send.pre_write" else 2)
        assert len(set(requests)) == 1


@pytest.mark.failure("A-16", "A-17", "A-18")
@UNCLEAR
async def test_if_the_platform_rejects_duplicates_it_is_asked_first(open_scene: OpenScene, point: str) -> None:
    async with open_scene(ability=Ability.REFUSING) as scene:
        scene.platform.feed("room", "hello")
        await scene.run_until_killed(point)
        await assert_settled_without_complaints(scene)
        assert scene.texts == ["re m1"]
        assert len(scene.platform.record.posts) == 1


@pytest.mark.failure("A-16", "A-17", "A-18")
@UNCLEAR
async def test_without_reconciliation_the_part_is_sent_again_with_a_mark(open_scene: OpenScene, point: str) -> None:
    async with open_scene(ability=Ability.NEITHER) as scene:
        scene.platform.feed("room", "hello")
        await scene.run_until_killed(point)
        await assert_settled_without_complaints(scene)
        first = [] if point == "send.pre_write" else ["re m1"]
        assert scene.texts == [*first, f"{MARK}re m1"]


@pytest.mark.failure("A-16", "A-17", "A-18")
@UNCLEAR
async def test_without_reconciliation_the_part_is_held_if_configured(open_scene: OpenScene, point: str) -> None:
    async with open_scene(ability=Ability.NEITHER, unclear=Unclear.HOLD) as scene:
        scene.platform.feed("room", "hello")
        await scene.run_until_killed(point)
        await assert_settled_without_complaints(scene)
        assert scene.texts == ([] if point == "send.pre_write" else ["re m1"])
        assert scene.database.count(UNKNOWN) == 1


@pytest.mark.failure("A-19")
@pytest.mark.parametrize("ability", Ability)
async def test_sent_parts_are_not_repeated_and_the_others_follow_in_order(
    open_scene: OpenScene, ability: Ability
) -> None:
    async with open_scene(ability=ability) as scene:
        scene.platform.feed("room", "parts")
        await scene.run_until_killed("send.part2")
        assert len(scene.texts) == 2
        await assert_settled_without_complaints(scene)
        assert [text.rstrip(".") for text in scene.texts] == [f"part {number} of m1" for number in range(1, 6)]


@pytest.mark.failure("A-20")
async def test_a_turn_is_evaluated_after_the_restart(open_scene: OpenScene) -> None:
    async with open_scene() as scene:
        scene.platform.feed("room", "hello")
        await scene.run_until_killed("eval.pre")
        await assert_settled_without_complaints(scene)
        assert scene.texts == ["re m1"]
        assert scene.database.count(FACTS) == 3


@pytest.mark.failure("A-20")
async def test_an_evaluation_that_ends_every_process_is_given_up(open_scene: OpenScene) -> None:
    async with open_scene() as scene:
        scene.platform.feed("room", "hello")
        for _ in range(1 + MAX_RETRIES):
            await scene.run_until_killed("eval.pre")
        scene.platform.feed("another room", "hello")
        await assert_settled_without_complaints(scene)
        assert scene.texts == ["re m1", "re m2"]
        assert scene.database.count(UNEVALUATED) == 0
        assert scene.database.count(FACTS) == 3, "those of the other message"


@pytest.mark.failure("A-21")
async def test_the_facts_of_a_turn_are_stored_together_and_once(open_scene: OpenScene) -> None:
    async with open_scene() as scene:
        scene.platform.feed("room", "hello")
        await scene.run_until_killed("eval.mid")
        assert scene.database.count(FACTS) in (0, 3)
        await assert_settled_without_complaints(scene)
        assert scene.database.count(FACTS) == 3


async def test_simultaneous_messages_are_each_answered_once_after_a_kill_at_any_stage(open_scene: OpenScene) -> None:
    points = ("turn.claimed:2", "model.reply:2", "model.post:2", "turn.pre_commit:2", "outbox.committed:1")
    async with open_scene() as scene:
        for number in range(12):
            scene.platform.feed(f"room {number % 4}", "hello")
        for point in points:
            name, _, times = point.partition(":")
            await scene.run_until_killed(name, times=int(times))
        await assert_settled_without_complaints(scene)


@pytest.mark.failure("O-02")
async def test_a_model_call_that_is_under_way_at_a_kill_is_in_the_sums_once(open_scene: OpenScene) -> None:
    async with open_scene() as scene:
        scene.platform.feed("room", "hello")
        scene.model.least_together = 2  # the call is never answered
        async with scene.program.running() as bot:
            await scene.wire.until_seen(
                lambda: scene.model.calls > 0 and scene.database.count(COUNTED) == scene.model.calls,
                seconds=TIMEOUT,
                what="the estimate of the call",
            )
            bot.kill()
            await bot.wait(TIMEOUT)
        scene.model.least_together = 1
        await assert_settled_without_complaints(scene)
        assert scene.model.asked["reply", "m1"] == 2
        assert scene.database.count(COUNTED) == scene.model.calls
