"""Responses of X as inbound messages."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.x.emulator import Emulator, Fault
from adapters.x.incoming import BotIdentity, Post, parse_id, parse_page, parse_user, text_of, to_inbound_message
from adapters.x.receiving import MAX_EMPTY_PAGES
from bot import ChannelType, derived_id
from tests.adapters.x.conftest import RunX

ME = BotIdentity(derived_id("agent", "Ada"), "1000")
NOW = datetime(2026, 3, 1, tzinfo=UTC)
BOB = {"id": "7", "username": "bob", "name": "Bob"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


def page(*posts: dict[str, Any], **includes: Any) -> Any:
    return parse_page({"data": list(posts), "includes": {"users": [BOB], **includes}})


def post_fields(**fields: Any) -> dict[str, Any]:
    return {"id": "55", "author_id": "7", "text": "@ada hello", "conversation_id": "50", **fields}


def test_a_mention_becomes_a_message_in_its_conversation() -> None:
    found = page(post_fields(created_at="2026-03-01T08:00:00.000Z"))
    arrival = to_inbound_message(found.posts[0], found, ME, received_at=NOW)
    assert (arrival.room.external_id, arrival.room.type) == ("50", ChannelType.THREAD)
    assert (arrival.author.external_id, arrival.author.name) == ("7", "Bob")
    assert arrival.message.content.mention.is_mention
    assert arrival.message.content.url == "https://x.com/bob/status/55"
    assert arrival.key.message_id == arrival.message.external_id == "55"
    assert arrival.message.created_at == datetime(2026, 3, 1, 8, tzinfo=UTC)


def test_a_mention_that_x_repeats_in_a_reply_to_another_person_is_none() -> None:
    above = post_fields(
        id="54", author_id="8", text="@ada when?", entities={"mentions": [{"id": "1000", "username": "ada"}]}
    )
    reply = {
        "in_reply_to_user_id": "8",
        "referenced_tweets": [{"type": "replied_to", "id": "54"}],
        "entities": {"mentions": [{"id": "8", "username": "carol"}, {"id": "1000", "username": "ada"}]},
    }
    repeated, written = (
        to_inbound_message(found.posts[0], found, ME, received_at=NOW).message.content.mention
        for text in ("@carol @ada at six", "@carol @ada at six, right @ADA?")
        if (found := page(post_fields(text=text, **reply), tweets=[above]))
    )
    assert (repeated.is_mention, repeated.is_reply, repeated.replies_to) == (False, False, derived_id("x", "user", "8"))
    assert written.is_mention
    unknown = page(post_fields(text="@carol @ada is that so?", **reply))  # the post above is not known
    assert to_inbound_message(unknown.posts[0], unknown, ME, received_at=NOW).message.content.mention.is_mention
    end = {"text": "@carol at six … and @ada knows", "entities": {"mentions": [{"id": "1000", "username": "ada"}]}}
    long_post = page(post_fields(text="@carol at six …", note_tweet=end, **reply), tweets=[above])
    assert to_inbound_message(long_post.posts[0], long_post, ME, received_at=NOW).message.content.mention.is_mention
    own = page(post_fields(in_reply_to_user_id="1000"))
    mention = to_inbound_message(own.posts[0], own, ME, received_at=NOW).message.content.mention
    assert (mention.is_reply, mention.replies_to) == (True, ME.agent_id)


@pytest.mark.failure("B-12")
def test_own_posts_are_recognised_by_account_id() -> None:
    found = page(post_fields(author_id="1000"))
    assert to_inbound_message(found.posts[0], found, ME, received_at=NOW).author.id == ME.agent_id


def test_a_text_is_read_as_it_was_written() -> None:
    post = Post.model_validate(
        post_fields(
            text="@ada @carol 1 &lt; 2 https://t.co/a https://t.co/p",
            referenced_tweets=[{"type": "replied_to", "id": "50"}],
            entities={
                "urls": [
                    {"url": "https://t.co/a", "expanded_url": "https://example.com/page"},
                    {"url": "https://t.co/p", "expanded_url": "https://x.com/photo", "media_key": "3_9"},
                ]
            },
        )
    )
    assert text_of(post) == "1 < 2 https://example.com/page"


def test_a_long_text_is_read_in_full() -> None:
    post = Post.model_validate(post_fields(text="@ada it beg…", note_tweet={"text": "@ada it began in spring"}))
    assert text_of(post) == "@ada it began in spring"


def test_a_picture_has_its_alt_text() -> None:
    media = {"media_key": "3_9", "type": "photo", "url": "https://pbs.twimg.com/9.png", "alt_text": "A boat"}
    found = page(post_fields(attachments={"media_keys": ["3_9", "3_8"]}), media=[media])
    [picture] = to_inbound_message(found.posts[0], found, ME, received_at=NOW).message.content.attachments
    assert (picture.url, picture.description) == ("https://pbs.twimg.com/9.png", "A boat")


@pytest.mark.parametrize("address", ["http://169.254.169.254/", "file:///etc/passwd", "javascript:x"])
def test_a_media_url_that_is_not_https_is_left_out(address: str) -> None:
    found = page(post_fields(attachments={"media_keys": ["3_9"]}), media=[{"media_key": "3_9", "url": address}])
    [picture] = to_inbound_message(found.posts[0], found, ME, received_at=NOW).message.content.attachments
    assert picture.url == ""


def test_an_invalid_post_does_not_affect_others() -> None:
    found = page(post_fields(), {"id": "no number", "text": 3}, post_fields(id="56"))
    assert [post.id for post in found.posts] == ["55", "56"]
    assert found.count == 3


@pytest.mark.long
@given(JSON)
def test_any_response_is_parsed_without_an_error(answer: Any) -> None:
    assert parse_page(answer).posts == ()
    assert parse_user(answer) is None
    assert parse_id(answer) in ("", str(parse_id(answer)))


# A mention that cannot be read is recorded; the others are answered, and the position moves on.

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
