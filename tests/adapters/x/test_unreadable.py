"""A mention that cannot be read is recorded; the others are answered, and the position moves on."""

import json

import pytest

from adapters.x.emulator import Emulator, Fault
from adapters.x.receiving import MAX_EMPTY_PAGES
from tests.adapters.x.conftest import RunX

MENTIONS = "GET /2/users/:id/mentions"


def page_of(*posts: dict[str, object], **meta: str) -> Fault:
    """Return a response with these posts."""
    return Fault(MENTIONS, status=200, body=json.dumps({"data": list(posts), "meta": meta}))


@pytest.mark.failure("B-15")
async def test_an_unreadable_mention_is_recorded_and_not_read_again(run_x: RunX, emulator: Emulator) -> None:
    async with run_x() as harness:
        asked = emulator.say("bob", "@greenroom_bot are you there?")
        bad_id = str(int(asked) + 1)
        good = {"id": asked, "author_id": "8", "text": "@greenroom_bot are you there?"}
        emulator.add_faults(page_of({"id": bad_id, "author_id": None, "text": "lost?"}, good))
        await harness.poll()
        [event] = await harness.agent.store.ledger.unreadable_events()
        assert event.event_id == f"post {bad_id}"
        assert "lost?" in event.raw
        assert [post.reply_to_id for post in emulator.state.posts_by(emulator.user_id)] == [asked]
        assert await harness.agent.store.ledger.cursor("x", emulator.user_id, "mentions") == bad_id


async def test_a_page_of_unreadable_mentions_leaves_those_below_it_to_be_read(run_x: RunX, emulator: Emulator) -> None:
    async with run_x() as harness:
        asked = emulator.say("bob", "@greenroom_bot are you there?")
        bad = {"id": str(int(asked) + 1), "author_id": None, "text": "lost?"}
        emulator.add_faults(page_of(bad, next_token="more"))
        await harness.poll()
        assert [post.reply_to_id for post in emulator.state.posts_by(emulator.user_id)] == [asked]


async def test_an_empty_page_leaves_those_below_it_to_be_read(run_x: RunX, emulator: Emulator) -> None:
    async with run_x() as harness:
        asked = emulator.say("bob", "@greenroom_bot are you there?")
        emulator.add_faults(page_of(next_token="more"), page_of(next_token="and-more"))
        await harness.poll()
        assert [post.reply_to_id for post in emulator.state.posts_by(emulator.user_id)] == [asked]


async def test_endless_empty_pages_lose_no_mention(run_x: RunX, emulator: Emulator) -> None:
    async with run_x() as harness:
        asked = emulator.say("bob", "@greenroom_bot are you there?")
        emulator.add_faults(*[page_of(next_token="more") for _ in range(MAX_EMPTY_PAGES + 1)])
        await harness.poll()
        assert emulator.bot_texts == []
        await harness.poll()
        assert [post.reply_to_id for post in emulator.state.posts_by(emulator.user_id)] == [asked]
