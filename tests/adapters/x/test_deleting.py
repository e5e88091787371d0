"""Deleting posts, on X and in the store."""

import pytest

from adapters.x.config import parse_post_id
from adapters.x.emulator import Emulator, Fault, FaultKind
from bot.platform import DeliveryState, DeliveryUnknown, NotSent, Undeliverable
from tests.adapters.x.conftest import RunX, XHarness
from tests.adapters.x.test_sending import POST, QUIET

DELETE, READ = "DELETE /2/tweets/:id", "GET /2/tweets"
SENTENCES = " ".join(f"This is sentence number {number} of a long post." for number in range(14))


async def publish(harness: XHarness, text: str = "Fog again.") -> list[str]:
    """Publish a post on the own timeline; return the ids of its parts."""
    [feed] = harness.agent.outbox.feeds()
    await harness.agent.store.worlds.save_world(feed.world, [feed.room])
    await harness.agent.say(feed.room, text)
    await harness.agent.outbox.drain(60.0)
    return [post.id for post in harness.emulator.state.posts_by(harness.emulator.user_id)]


async def stored_texts(harness: XHarness) -> list[str]:
    rooms = await harness.agent.store.worlds.rooms()
    memories = [memory for room in rooms for memory in await harness.agent.store.memories.recent(room.id, 50)]
    return [memory.content.text for memory in memories]


async def delete(harness: XHarness, post_id: str) -> bool:
    [feed] = harness.agent.outbox.feeds()
    assert feed.delete is not None
    return await feed.delete(post_id)


async def test_a_post_is_deleted_on_x_and_in_the_store_and_once_only(run_x: RunX, emulator: Emulator) -> None:
    async with run_x(**QUIET) as harness:
        [post_id] = await publish(harness)
        assert await stored_texts(harness) == ["Fog again."]
        assert await delete(harness, post_id) is True
        assert emulator.bot_texts == []
        assert await stored_texts(harness) == []
        assert await delete(harness, post_id) is False


async def test_a_thread_is_deleted_as_a_whole_from_its_end(run_x: RunX, emulator: Emulator) -> None:
    async with run_x(**QUIET) as harness:
        first, second, third = await publish(harness, SENTENCES)
        assert await delete(harness, second) is True
        calls = [call.path for call in emulator.calls if call.endpoint == DELETE]
        assert calls == [f"/2/tweets/{post_id}" for post_id in (third, second, first)]
        assert emulator.bot_texts == []
        assert await stored_texts(harness) == []


async def test_the_waiting_parts_of_a_deleted_thread_are_not_sent(run_x: RunX, emulator: Emulator) -> None:
    emulator.limits[POST] = (1, 900.0)
    async with run_x(**QUIET) as harness:
        [first] = await publish(harness, SENTENCES)
        assert await delete(harness, first) is True
        states = [part.state for part in await harness.agent.store.ledger.deliveries()]
        assert states == [DeliveryState.SENT, DeliveryState.FAILED, DeliveryState.FAILED]
        assert emulator.bot_texts == []


async def test_an_answer_is_deleted_and_the_mention_stays(run_x: RunX, emulator: Emulator) -> None:
    async with run_x() as harness:
        emulator.say("bob", "@greenroom_bot hello")
        await harness.poll()
        [answer] = emulator.state.posts_by(emulator.user_id)
        assert await delete(harness, answer.id) is True
        assert await stored_texts(harness) == ["@greenroom_bot hello"]


async def test_a_post_of_another_account_is_refused(run_x: RunX, emulator: Emulator) -> None:
    theirs = emulator.say("bob", "The mill burned down.")
    async with run_x(**QUIET) as harness:
        with pytest.raises(Undeliverable, match=r"post of @bob, .* only its own \(X says 403: You are not permitted"):
            await delete(harness, theirs)
    assert not emulator.state.posts[theirs].is_deleted


async def test_a_refusal_that_cannot_be_looked_up_is_reported_as_x_says_it(run_x: RunX, emulator: Emulator) -> None:
    theirs = emulator.say("bob", "The mill burned down.")
    async with run_x(**QUIET, X_MONTHLY_READS="0") as harness:
        with pytest.raises(Undeliverable, match=r"^X says 403: You are not permitted to delete this Tweet\.$"):
            await delete(harness, theirs)


@pytest.mark.parametrize(
    "faults",
    [
        (),
        (Fault(DELETE, status=404, body='{"errors": [{"detail": "Could not find tweet"}]}'),),
        (Fault(DELETE, status=403, body='{"detail": "You are not permitted to delete this Tweet."}'),),
    ],
    ids=["not deleted", "404", "403"],
)
async def test_a_post_that_is_gone_already_is_no_error(
    faults: tuple[Fault, ...], run_x: RunX, emulator: Emulator
) -> None:
    async with run_x(**QUIET) as harness:
        [post_id] = await publish(harness)
        emulator.state.posts[post_id].is_deleted = True  # by its owner, on the website
        emulator.add_faults(*faults)
        assert await delete(harness, post_id) is False
        assert await stored_texts(harness) == []


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(DELETE, FaultKind.LOST), DeliveryUnknown),
        (Fault(DELETE, FaultKind.FAILED, 200, body='{"errors": [{"title": "?"}]}'), DeliveryUnknown),
        (Fault(DELETE, status=429, body="{}"), NotSent),
    ],
    ids=["lost", "without data", "limit"],
)
async def test_an_unclear_deletion_can_be_repeated(
    fault: Fault, error: type[Exception], run_x: RunX, emulator: Emulator
) -> None:
    async with run_x(**QUIET) as harness:
        [post_id] = await publish(harness)
        emulator.add_faults(fault)
        with pytest.raises(error):
            await delete(harness, post_id)
        assert await stored_texts(harness) == ["Fog again."]
        harness.clock.advance(1_000)
        await delete(harness, post_id)
        assert (emulator.bot_texts, await stored_texts(harness)) == ([], [])


async def test_a_dry_run_deletes_nothing(run_x: RunX, emulator: Emulator) -> None:
    ours = emulator.state.create_post(emulator.user_id, "Fog again.")
    async with run_x(**QUIET, X_DRY_RUN="true") as harness:
        with pytest.raises(NotSent, match="X_DRY_RUN"):
            await delete(harness, ours.id)
    assert emulator.calls == []


@pytest.mark.parametrize(
    ("reference", "post_id"),
    [
        ("1445880548472328192", "1445880548472328192"),
        (" https://x.com/i/status/17 ", "17"),
        ("https://twitter.com/ada/status/17?s=20", "17"),
        ("x.com/i/web/status/17/photo/1", "17"),
        ("", ""),
        ("fog", ""),
        ("https://x.com/ada", ""),
        ("https://x.example/ada/status/17", ""),
        ("17 18", ""),
    ],
)
def test_a_post_is_named_by_its_id_or_url(reference: str, post_id: str) -> None:
    assert parse_post_id(reference) == post_id
