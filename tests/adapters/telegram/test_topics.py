"""Where a topic was deleted or is closed, the answer arrives in General; where it cannot, the operator is notified."""

from typing import Any
from uuid import UUID

import pytest

from adapters.telegram.incoming import ChatTarget, derive_room_id
from bot import Agent, Outcome, Plugin, on
from bot.events import ReactionReceived
from bot.platform import DeliveryState
from tests.adapters.telegram.conftest import OpenHarness, TelegramHarness


async def ask_in_topic(harness: TelegramHarness, *, is_deleted: bool = False) -> tuple[dict[str, Any], int]:
    """Ask in a topic that cannot be written to; return its forum and its id."""
    alice = harness.people.add_user("Alice")
    forum = harness.people.add_group("The forum", alice, is_forum=True)
    topic = harness.people.add_topic(forum, alice, "Boats")
    (harness.people.delete_topic if is_deleted else harness.people.close_topic)(forum, topic)
    harness.people.say(forum, alice, "@ada_bot hello", thread=topic)
    return forum, topic


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "closed"])
async def test_an_answer_for_a_topic_that_cannot_be_written_to_arrives_in_general(
    is_deleted: bool, harness: TelegramHarness, caplog: pytest.LogCaptureFixture
) -> None:
    forum, topic = await ask_in_topic(harness, is_deleted=is_deleted)
    assert await harness.wait_texts(1, forum) == ["You said: @ada_bot hello"]
    [shown] = harness.telegram.recorder.messages
    assert shown.thread is None
    [delivery] = await harness.wait_deliveries()
    assert delivery.state is DeliveryState.SENT
    assert f"chat {forum['id']}/{topic}" in caplog.text


async def test_an_administrator_answers_in_a_closed_topic(harness: TelegramHarness) -> None:
    alice = harness.people.add_user("Alice")
    forum = harness.people.add_group("The forum", alice, is_forum=True)
    topic = harness.people.add_topic(forum, alice, "Boats")
    harness.people.change_member(forum, harness.bot.user, "administrator")
    harness.people.close_topic(forum, topic)
    harness.people.say(forum, alice, "@ada_bot hello", thread=topic)
    await harness.wait_texts(1, forum)
    [shown] = harness.telegram.recorder.messages
    assert shown.thread == topic


async def test_the_operator_is_shown_what_to_do_where_general_is_closed_too(
    harness: TelegramHarness, caplog: pytest.LogCaptureFixture
) -> None:
    alice = harness.people.add_user("Alice")
    forum = harness.people.add_group("The forum", alice, is_forum=True)
    topic = harness.people.add_topic(forum, alice, "Boats")
    for closed in (topic, None):
        harness.people.close_topic(forum, closed)
    harness.people.say(forum, alice, "@ada_bot hello", thread=topic)
    [delivery] = await harness.wait_deliveries()
    assert delivery.state is DeliveryState.FAILED
    assert "topic_closed" in delivery.cause.lower()
    assert "the topic General is closed: open it" in caplog.text


def open_direct_messages(harness: TelegramHarness, *users: dict[str, Any]) -> dict[str, Any]:
    """Open the chat in which people write to a channel directly; the bot manages it."""
    chat = harness.people.add_group("Post box", *users)
    chat["is_direct_messages"] = True
    return chat


async def test_each_person_who_writes_to_a_channel_directly_is_answered_in_their_own_topic(
    harness: TelegramHarness,
) -> None:
    people = [harness.people.add_user(name) for name in ("Alice", "Bob")]
    chat = open_direct_messages(harness, *people)
    for number, person in enumerate(people, 1):
        topic = {"topic_id": 70 + number, "user": person}
        harness.people.say(chat, person, f"Hello from {person['first_name']}", direct_messages_topic=topic)
        await harness.wait_texts(number, chat)
    answers = harness.telegram.recorder.messages
    assert [answer.message["direct_messages_topic"]["topic_id"] for answer in answers] == [71, 72]
    assert [answer.text for answer in answers] == ["You said: Hello from Alice", "You said: Hello from Bob"]
    receipts = await harness.wait_receipts()
    rooms = [await harness.store.worlds.room(receipt.room_id) for receipt in receipts]
    assert (
        len({room.world_id for room in rooms if room is not None}) == 2
    )  # what one person wrote is not shown to the other


@pytest.mark.long
async def test_a_command_and_a_file_in_direct_messages_of_a_channel_are_answered_in_their_topic(
    open_harness: OpenHarness,
) -> None:
    async with open_harness() as harness:
        alice = harness.people.add_user("Alice")
        chat = open_direct_messages(harness, alice)
        topic = {"topic_id": 71, "user": alice}
        harness.people.say(chat, alice, "/export_me", direct_messages_topic=topic)
        await harness.wait_texts(2, chat)
        answers = harness.telegram.recorder.messages
        assert [answer.message["direct_messages_topic"]["topic_id"] for answer in answers] == [71, 71]
        assert any(answer.files for answer in answers)


async def test_what_the_channel_itself_writes_in_direct_messages_is_not_answered(harness: TelegramHarness) -> None:
    alice, owner = harness.people.add_user("Alice"), harness.people.add_user("Owner")
    chat = open_direct_messages(harness, alice, owner)
    channel = {"id": -1000000000777, "type": "channel", "title": "Harbour"}
    topic = {"topic_id": 71, "user": alice}
    harness.people.say(chat, owner, "I will see to it.", direct_messages_topic=topic, sender_chat=channel)
    [receipt] = await harness.wait_receipts()
    assert (receipt.outcome, receipt.rule) == (Outcome.IGNORED, "TELEGRAM_ANSWER_CHANNEL_POSTS")


async def test_a_reaction_in_direct_messages_of_a_channel_is_stored_in_its_topic(open_harness: OpenHarness) -> None:
    rooms: list[UUID] = []

    @on(ReactionReceived)
    async def note(agent: Agent, event: ReactionReceived) -> None:
        rooms.append(event.reaction.room_id)

    async with open_harness(plugins=(Plugin("reactions", listeners=[note]),)) as harness:
        alice = harness.people.add_user("Alice")
        chat = open_direct_messages(harness, alice)
        topic = {"topic_id": 71, "user": alice}
        message = harness.people.say(chat, alice, "Hello", direct_messages_topic=topic)
        await harness.wait_texts(1, chat)
        for reacted in (message, harness.telegram.recorder.messages[0].message):
            harness.people.react(reacted, alice, "👍")
        await harness.wait_confirmed()
        await harness.wait_receipts()
    assert rooms == [derive_room_id("1000001", ChatTarget(chat["id"], direct_topic_id=71))] * 2


@pytest.mark.matrix(3)
@pytest.mark.parametrize("answers", [False, True])
@pytest.mark.parametrize("kind", ["post", "mention", "copy", "command"])
async def test_posts_of_channels_are_answered_only_where_a_setting_says_so(
    kind: str, answers: bool, open_harness: OpenHarness
) -> None:
    async with open_harness(settings={"TELEGRAM_ANSWER_CHANNEL_POSTS": str(answers).lower()}) as harness:
        owner = harness.people.add_user("Owner")
        channel = harness.people.add_group("Harbour", owner=owner, kind="channel")
        group = harness.people.add_group("Harbour talk", owner=owner)
        text = {"mention": "@ada_bot what do you say?", "command": "/help"}.get(kind, "Ada, the ferry is late.")
        if kind == "copy":
            harness.people.say(group, owner, text, sender_chat=channel, is_automatic_forward=True)
        else:
            harness.people.say(channel, owner, text)
        place = group if kind == "copy" else channel
        if answers:
            await harness.wait_texts(1, place)
            return
        [receipt] = await harness.wait_receipts()
        assert (receipt.outcome, receipt.rule) == (Outcome.IGNORED, "TELEGRAM_ANSWER_CHANNEL_POSTS")
        assert harness.telegram.recorder.texts(place["id"]) == []
        harness.people.say(group, owner, "@ada_bot hello")  # people are answered in the linked group
        await harness.wait_texts(1, group)
