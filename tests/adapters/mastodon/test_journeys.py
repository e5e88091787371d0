"""From a mention to its answer, on the emulated Mastodon."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from adapters.mastodon.client import MastodonClient
from adapters.mastodon.config import read_settings
from adapters.mastodon.emulator import Emulator, MediaRecord
from adapters.mastodon.incoming import PLATFORM
from bot import Attachment, ChannelType, Content, Entity, MediaKind, MemoryKind, Outcome, Settings, new_id, system_clock
from bot.domain.ledger import DeliveryState
from bot.platform import ConnectionStatus, DeliveryHeld, NotSent, Undeliverable
from bot.settings import Layer
from bot.store import InMemoryStore
from bot.testing import FaultResponse, model_answer
from tests.adapters.mastodon.conftest import RunMastodon
from tests.adapters.posting import DEADLINE

LONG = " ".join(f"This is sentence number {number} of a long answer." for number in range(24))
PICTURE = Attachment("1", MediaKind.IMAGE, content_type="image/png", name="sea.png", description="The sea", data=b"png")


@pytest.mark.parametrize("visibility", ["public", "unlisted", "private", "direct"])
async def test_an_answer_is_as_visible_as_the_mention_and_mentions_its_author_alone(
    visibility: str, run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    emulator.add_account("carol", is_bot=False)
    async with run_mastodon(model_answer("@kim ask @carol or @root@evil.example.")) as mastodon:
        asked = emulator.say("kim", "@greenroom_bot what is the tide?", visibility=visibility)
        await mastodon.settle()
    [made] = emulator.bot_posts
    assert (made.reply_to_id, made.visibility) == (asked, visibility)
    assert made.text == "@kim ask carol or root@evil.example."


async def test_an_answer_keeps_the_content_warning_and_a_model_may_write_its_own(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    async with run_mastodon(model_answer("I saw it."), model_answer("CW: the ending\nShe dies.")) as mastodon:
        emulator.say("kim", "@greenroom_bot have you seen it?", warning="films")
        await mastodon.settle()
        emulator.say("robin", "@greenroom_bot how does it end?")
        await mastodon.settle()
        texts = await mastodon.texts()
    assert texts[0] == "[content warning: films]\nhave you seen it?"
    assert [(post.warning, post.text) for post in emulator.bot_posts] == [
        ("films", "@kim I saw it."),
        ("the ending", "@robin She dies."),
    ]


async def test_a_long_answer_is_a_thread_that_mentions_its_reader_in_each_part(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    async with run_mastodon(model_answer(LONG)) as mastodon:
        asked = emulator.say("kim", "@greenroom_bot tell me everything", visibility="direct")
        await mastodon.settle()
    posts = emulator.bot_posts
    assert len(posts) > 2
    assert [post.reply_to_id for post in posts] == [asked, *(post.id for post in posts[:-1])]
    assert {post.visibility for post in posts} == {"direct"}
    assert all(post.text.startswith("@kim ") for post in posts)
    assert " ".join(emulator.bot_texts) == LONG


async def test_the_thread_above_a_mention_is_stored_and_not_answered(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    first = emulator.say("robin", "The sea is high today.")
    second = emulator.say("kim", "Is it?", reply_to_id=first)
    async with run_mastodon() as mastodon:
        asked = emulator.say("kim", "@greenroom_bot is it?", reply_to_id=second)
        await mastodon.settle()
        [room] = await mastodon.store.worlds.rooms()
        assert await mastodon.texts() == ["The sea is high today.", "Is it?", "is it?"]
        assert (room.type, room.external_id) == (ChannelType.THREAD, f"status:{first}")
        assert (await mastodon.receipt_of(first)).outcome is Outcome.IGNORED
    assert [post.reply_to_id for post in emulator.bot_posts] == [asked]


async def test_what_followers_alone_see_of_a_thread_is_a_room_of_its_own(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    async with run_mastodon() as mastodon:
        first = emulator.say("kim", "@greenroom_bot hello")
        await mastodon.settle()
        emulator.say("kim", "@greenroom_bot a secret", reply_to_id=first, visibility="private")
        emulator.say("kim", "@greenroom_bot a greater secret", reply_to_id=first, visibility="direct")
        await mastodon.settle()
        rooms = await mastodon.store.worlds.rooms()
    host = emulator.url.partition("//")[2]
    names = {f"status:{first}", f"private:{first}", f"direct:kim@{host}"}
    assert {room.external_id for room in rooms} == names
    assert [post.visibility for post in emulator.bot_posts] == ["public", "private", "direct"]


async def test_a_reply_to_another_person_that_repeats_the_mention_is_no_mention(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    async with run_mastodon() as mastodon:
        first = emulator.say("kim", "@greenroom_bot hello")
        await mastodon.settle()
        repeated = emulator.say("robin", "@kim @greenroom_bot hello you", reply_to_id=first)
        await mastodon.settle()
        memory_id = (await mastodon.receipt_of(repeated)).memory_id
        [message] = (await mastodon.store.memories.memories([memory_id])).values()
    mention = message.content.mention
    assert (mention.is_mention, mention.is_reply, mention.mentions_others) == (False, False, True)


async def test_after_downtime_reading_goes_on_at_the_stored_position_and_old_mentions_are_not_answered(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    store = InMemoryStore()
    async with run_mastodon(store=store) as mastodon:
        emulator.say("kim", "@greenroom_bot first")
        await mastodon.settle()
    old = emulator.say("kim", "@greenroom_bot second", created_at=system_clock() - timedelta(hours=2))
    emulator.say("robin", "@greenroom_bot third")
    async with run_mastodon(store=store) as mastodon:
        await mastodon.settle()
        assert (await mastodon.receipt_of(old)).outcome is Outcome.EXPIRED
        assert sorted(await mastodon.texts()) == ["first", "second", "third"]
    assert len(emulator.bot_posts) == 2


async def test_at_the_first_start_what_the_account_has_answered_is_not_answered_again(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    asked = emulator.say("kim", "@greenroom_bot hello")
    emulator.say(emulator.username, "@kim Hello.", is_bot=True, reply_to_id=asked)
    async with run_mastodon() as mastodon:
        await mastodon.settle()
        receipt = await mastodon.receipt_of(asked)
    assert (receipt.outcome, receipt.rule) == (Outcome.IGNORED, "answered already")
    assert len(emulator.bot_posts) == 1


async def test_without_a_stream_the_notifications_are_read_at_intervals(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    emulator.has_streams = False
    async with run_mastodon(MASTODON_POLL_INTERVAL="5") as mastodon:
        await mastodon.settle()
        emulator.say("kim", "@greenroom_bot hello")
        await mastodon.settle()
    assert emulator.bot_texts == ["Noted."]


async def test_a_broken_stream_is_opened_again_and_what_came_between_is_read(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    async with run_mastodon() as mastodon:
        await emulator.wait_until(lambda: emulator.is_streaming(emulator.username))
        emulator.break_streams(emulator.username)
        emulator.say("kim", "@greenroom_bot hello")
        await mastodon.settle()
        await emulator.wait_until(lambda: emulator.is_streaming(emulator.username))
    assert emulator.bot_texts == ["Noted."]


@pytest.mark.usefixtures("immediate_edits")
async def test_an_edit_replaces_a_mention_and_a_deletion_removes_it(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    async with run_mastodon() as mastodon:
        await emulator.wait_until(lambda: emulator.is_streaming(emulator.username))
        kept, gone = emulator.say("kim", "@greenroom_bot helo"), emulator.say("robin", "@greenroom_bot oh")
        await mastodon.settle()
        emulator.edit(kept, "@greenroom_bot hello")
        emulator.delete(gone)
        emulator.say("carol", "@greenroom_bot and then?")  # the stream is in order
        await mastodon.settle()
        await emulator.wait_until(lambda: len(emulator.bot_posts) == 3)
        texts = await mastodon.texts()
    assert sorted(texts) == ["and then?", "hello"]


async def test_favourites_and_boosts_are_reactions_to_the_posts_of_the_character(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    async with run_mastodon() as mastodon:
        emulator.say("kim", "@greenroom_bot hello")
        await mastodon.settle()
        [made] = emulator.bot_posts
        emulator.react("kim", "favourite", made.id)
        emulator.react("robin", "reblog", made.id)
        await mastodon.settle()
        [room] = await mastodon.store.worlds.rooms()
        found = await mastodon.store.memories.recent(room.id, 10, kind=MemoryKind.REACTION)
    assert sorted(reaction.content.text for reaction in found) == ["⭐", "🔁"]


async def test_files_are_read_with_their_descriptions_and_posted_once_they_are_processed(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    emulator.media["77"] = MediaRecord(b"png", "tide.png", "image/png", "A tide table")
    emulator.media_delay = 2
    async with run_mastodon() as mastodon:
        emulator.say("kim", "@greenroom_bot look", media_ids=("77",), poll=("yes", "no"))
        await mastodon.settle()
        [room] = await mastodon.store.worlds.rooms()
        [message, _] = sorted(await mastodon.store.memories.recent(room.id, 10), key=lambda item: item.created_at)
        text = Attachment("2", MediaKind.DOCUMENT, content_type="text/plain", name="a.txt", data=b"a")
        await mastodon.harness.agent.say(room, Content(text="Here.", attachments=(PICTURE, text)))
        await mastodon.settle()
    [attachment] = message.content.attachments
    assert (attachment.kind, attachment.description) == (MediaKind.IMAGE, "A tide table")
    assert attachment.url == f"{emulator.url}/media/77"
    assert message.content.text == "look\n[poll: yes / no]"
    made = emulator.bot_posts[-1]
    assert made.text.endswith("Here.\n(could not be posted: a.txt)")
    [media] = [emulator.media[media_id] for media_id in made.media_ids]
    assert (media.data, media.name, media.description) == (b"png", "sea.png", "The sea")


async def test_a_scheduled_post_goes_to_the_timeline_with_its_visibility(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    async with run_mastodon(MASTODON_POST_ENABLE="true", MASTODON_POST_VISIBILITY="unlisted") as mastodon:
        await mastodon.settle()
        feed = mastodon.adapter.feed(mastodon.handle.agent_id)
        assert feed is not None
        assert feed.interval == (timedelta(minutes=90), timedelta(minutes=150))
        await mastodon.store.worlds.save_world(feed.world, [feed.room])
        await mastodon.harness.agent.say(feed.room, Content(text="Low tide, @kim."))
        await mastodon.settle()
    [made] = emulator.bot_posts
    assert (made.text, made.visibility, made.reply_to_id) == ("Low tide, kim.", "unlisted", "")


async def test_a_message_of_the_character_to_a_person_is_a_direct_post(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    async with run_mastodon() as mastodon:
        emulator.say("kim", "@greenroom_bot hello")
        await mastodon.settle()
        kim = Entity(new_id(), PLATFORM, f"kim@{emulator.url.partition('//')[2]}", ("Kim",))
        opened = await mastodon.adapter.open_direct(mastodon.handle.agent_id, kim)
        assert opened is not None
        world, direct = opened
        await mastodon.store.worlds.save_world(world, [direct])
        await mastodon.harness.agent.say(direct, Content(text="The kettle boils."))
        await mastodon.settle()
    made = emulator.bot_posts[-1]
    assert (made.text, made.visibility, made.reply_to_id) == ("@kim The kettle boils.", "direct", "")


async def test_requests_to_follow_are_accepted_by_the_list_alone(run_mastodon: RunMastodon, emulator: Emulator) -> None:
    host = emulator.url.partition("//")[2]
    async with run_mastodon(MASTODON_ALLOWED_FOLLOWERS=f"@kim@{host}") as mastodon:
        emulator.ask_to_follow("mallory", emulator.username)
        emulator.ask_to_follow("kim", emulator.username)
        await mastodon.settle()
    assert emulator.accepted_followers == ["kim"]


async def test_a_post_that_was_deleted_or_whose_author_blocks_the_account_is_not_answered(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    async with run_mastodon() as mastodon:
        emulator.add_account("kim", is_bot=False)
        emulator.blocked.add(("kim", emulator.username))
        emulator.say("kim", "@greenroom_bot hello")
        await mastodon.settle()
        [delivery] = await mastodon.deliveries()
    assert (delivery.state, emulator.bot_posts) == (DeliveryState.FAILED, [])
    assert "not there any more" in delivery.cause


async def test_the_rate_limit_that_the_server_states_is_kept(emulator: Emulator) -> None:
    until = (system_clock() + timedelta(minutes=3)).isoformat()
    headers = {"X-RateLimit-Reset": until, "X-RateLimit-Remaining": "0"}
    emulator.faults.append(FaultResponse("POST /api/v1/statuses", 429, {"error": "Too many requests"}, headers))
    client = MastodonClient(read_settings(Settings([Layer("a test", emulator.environment)])), {}, system_clock)
    async with client.session:
        for _ in range(2):
            with pytest.raises(NotSent) as caught:
                await client.create_status({"status": "Hello."}, "a key")
            assert 100 < (caught.value.retry_after or 0) <= 180
    assert [call.endpoint for call in emulator.calls] == ["POST /api/v1/statuses"]


async def wait_for_problem(status: ConnectionStatus) -> None:
    while True:
        if status.snapshot.is_problem:
            return
        await asyncio.sleep(0)


async def test_a_refused_token_takes_the_account_off_until_it_is_accepted(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    emulator.tokens.clear()
    async with run_mastodon() as mastodon:
        [status] = mastodon.adapter.connections
        async with asyncio.timeout(DEADLINE):
            await wait_for_problem(status)
        feed = mastodon.adapter.feed(mastodon.handle.agent_id)
        assert feed is not None
        assert "MASTODON_TOKEN" in feed.pause_reason
        assert emulator.environment["MASTODON_TOKEN"] not in status.off_reason


async def test_an_answer_to_a_server_that_refuses_it_fails_with_its_words(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    fault = FaultResponse("POST /api/v1/statuses", 422, {"error": "Validation failed: no"})
    emulator.faults.append(fault)
    async with run_mastodon() as mastodon:
        emulator.say("kim", "@greenroom_bot hello")
        await mastodon.settle()
        [delivery] = await mastodon.deliveries()
    assert (delivery.state, delivery.cause) == (DeliveryState.FAILED, "Mastodon says 422: Validation failed: no")


async def test_a_part_whose_key_the_server_has_forgotten_is_looked_for_among_the_posts(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    async with run_mastodon() as mastodon:
        emulator.say("kim", "@greenroom_bot hello")
        await mastodon.settle()
        [delivery] = await mastodon.deliveries()
        emulator.keys.clear()
        long_ago = system_clock() - timedelta(hours=2)
        known = replace(delivery, first_attempt_at=long_ago)
        assert await mastodon.adapter.reconcile(known) == delivery.external_id
        unknown = replace(known, content=Content(text="Something else."))
        with pytest.raises(NotSent):
            await mastodon.adapter.reconcile(unknown)
    assert len(emulator.bot_posts) == 1


async def test_a_delivery_of_an_account_that_is_not_here_is_undeliverable(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    async with run_mastodon() as mastodon:
        emulator.say("kim", "@greenroom_bot hello")
        await mastodon.settle()
        [delivery] = await mastodon.deliveries()
        with pytest.raises(Undeliverable):
            await mastodon.adapter.deliver(replace(delivery, account="elsewhere"))


async def test_a_notification_that_cannot_be_read_is_recorded_and_the_next_notification_is_read(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    async with run_mastodon() as mastodon:
        await mastodon.settle()
        broken = emulator.say("kim", "@greenroom_bot hello")
        emulator.posts[broken].created_at = BrokenTime()  # type: ignore[assignment]
        emulator.say("robin", "@greenroom_bot hello")
        await mastodon.settle()
        [event] = await mastodon.store.ledger.unreadable_events()
    assert event.event_id.startswith("notification ")
    assert emulator.bot_texts == ["Noted."]


class BrokenTime:
    def isoformat(self) -> str:
        return "yesterday"


async def test_a_thread_that_cannot_be_read_does_not_stop_the_mention_in_it(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    first = emulator.say("robin", "The sea is high.")
    asked = emulator.say("kim", "@greenroom_bot is it?", reply_to_id=first)
    fault = FaultResponse(f"GET /api/v1/statuses/{asked}/context", 200, {"ancestors": [{"id": 1}]})
    emulator.faults.append(fault)
    async with run_mastodon() as mastodon:
        await mastodon.settle()
        assert await mastodon.texts() == ["is it?"]
    assert [post.reply_to_id for post in emulator.bot_posts] == [asked]


@pytest.mark.parametrize(("visibility", "is_quoted"), [("public", True), ("private", False)])
async def test_a_post_above_in_another_room_is_quoted_only_if_it_is_as_visible(
    visibility: str, is_quoted: bool, run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    first = emulator.say("robin", "The key is under the mat.", visibility=visibility)
    asked = emulator.say(
        "kim", "@greenroom_bot did you read?", reply_to_id=first, visibility="direct" if is_quoted else "public"
    )
    async with run_mastodon() as mastodon:
        await mastodon.settle()
        memory_id = (await mastodon.receipt_of(asked)).memory_id
        [message] = (await mastodon.store.memories.memories([memory_id])).values()
        assert await mastodon.texts() == ["did you read?"]
    quotation = message.content.quotation
    assert (quotation.text if quotation else None) == ("The key is under the mat." if is_quoted else None)


async def test_a_part_of_which_is_unknown_whether_it_arrived_is_held_if_the_mention_was_deleted(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    async with run_mastodon() as mastodon:
        asked = emulator.say("kim", "@greenroom_bot hello")
        await mastodon.settle()
        [delivery] = await mastodon.deliveries()
        emulator.delete(asked)
        with pytest.raises(DeliveryHeld):
            await mastodon.adapter.reconcile(delivery)


@pytest.mark.long
async def test_an_unreachable_server_is_reported_and_read_on_once_it_is_back(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    emulator.faults.append(FaultResponse("GET /api/v2/instance", 502, times=2))
    async with run_mastodon() as mastodon:
        asked = emulator.say("kim", "@greenroom_bot hello")
        await mastodon.settle()
        [status] = mastodon.adapter.connections
        assert status.account == "@greenroom_bot"
        assert not status.snapshot.is_problem
    assert [post.reply_to_id for post in emulator.bot_posts] == [asked]


async def test_a_label_that_an_ai_writes_stands_behind_the_mention(
    run_mastodon: RunMastodon, emulator: Emulator
) -> None:
    async with run_mastodon(model_answer(LONG), AI_NOTICE="first", AI_NOTICE_POSTS="on") as mastodon:
        emulator.say("kim", "@greenroom_bot tell me everything")
        await mastodon.settle()
        assert mastodon.adapter.labels_posts
    assert [post.text.count("🤖 AI: ") for post in emulator.bot_posts] == [1, *[0] * (len(emulator.bot_posts) - 1)]
    assert emulator.bot_posts[0].text.startswith("@kim 🤖 AI: This is")
