"""Topics that the bot opens on Telegram: once, with its answer inside; what is refused, and what is unclear."""

from typing import Any
from uuid import UUID

import pytest

from adapters.telegram.emulator import Fault
from adapters.telegram.incoming import ChatTarget, derive_room_id
from adapters.telegram.outgoing import DUPLICATE_NOTICE
from bot import Agent, Outcome, Plugin, on
from bot.domain.environment import ChannelType
from bot.events import ReactionReceived
from bot.models import Purpose, TextRequest
from bot.platform import DeliveryKind, DeliveryState
from bot.testing import model_answer
from tests.adapters.telegram.conftest import OpenHarness, TelegramHarness


def answer(request: TextRequest) -> str:
    """Answer the first message with a topic, and any other with words."""
    if request.purpose is Purpose.SUMMARY:
        return model_answer("It did not work.")
    if "and now" in request.prompt:
        return model_answer("Now it runs.")
    return model_answer("Here we go.", actions=["REPLY", "OPEN_THREAD"], parameters={"name": "The engine"})


async def add_forum(
    harness: TelegramHarness, *, is_administrator: bool = True
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Add a group with topics; return it and its owner."""
    kim = harness.people.add_user("Kim")
    forum = harness.people.add_group("The forum", owner=kim, is_forum=True)
    if is_administrator:
        harness.people.change_member(forum, harness.bot.user, "administrator")
        await harness.wait_confirmed()
    return forum, kim


def ask(harness: TelegramHarness, chat: dict[str, Any], person: dict[str, Any], **details: Any) -> None:
    harness.people.say(chat, person, "@ada_bot let's take this to a topic", **details)


def topics(harness: TelegramHarness) -> list[str]:
    return list(harness.telegram.state.topics.values())


@pytest.mark.parametrize("is_in_topic", [False, True], ids=["general", "topic"])
async def test_the_answer_continues_in_a_new_topic(open_harness: OpenHarness, is_in_topic: bool) -> None:
    async with open_harness(answer) as harness:
        forum, kim = await add_forum(harness)
        ask(harness, forum, kim, thread=harness.people.add_topic(forum, kim, "Boats") if is_in_topic else None)
        assert await harness.wait_texts(1, forum) == ["Here we go."]
        [(_, topic)] = [key for key, name in harness.telegram.state.topics.items() if name == "The engine"]
        assert harness.telegram.recorder.messages[0].thread == topic
        harness.people.say(forum, kim, "@ada_bot and now?", thread=topic)
        assert await harness.wait_texts(2, forum) == ["Here we go.", "Now it runs."]
        *_, first, second = await harness.wait_receipts()
        room = await harness.store.worlds.room(second.room_id)
        assert [first.outcome, second.outcome] == [Outcome.ANSWERED] * 2
        assert room is not None
        assert (room.type, room.name, room.external_id) == (ChannelType.THREAD, "The engine", f"{forum['id']}/{topic}")
        assert "Here we go." in harness.model.requests_for(Purpose.REPLY)[-1].prompt


@pytest.mark.parametrize("place", ["group", "private"])
async def test_where_telegram_has_no_topics_none_is_offered(open_harness: OpenHarness, place: str) -> None:
    async with open_harness(answer) as harness:
        kim = harness.people.add_user("Kim")
        group = harness.people.add_group("The pier", owner=kim)
        ask(harness, group if place == "group" else harness.people.open_private_chat(kim), kim)
        assert await harness.wait_texts(1) == ["It did not work."]
        assert not any("OPEN_THREAD" in request.prompt for request in harness.model.requests_for(Purpose.REPLY))
        assert harness.telegram.recorder.calls_of("createForumTopic") == []


async def test_without_the_right_to_manage_topics_it_is_reported_and_the_answer_stays_in_the_chat(
    open_harness: OpenHarness, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_harness(answer) as harness:
        forum, kim = await add_forum(harness, is_administrator=False)
        ask(harness, forum, kim)
        opening, reply = await harness.wait_deliveries()
        assert (opening.kind, opening.state) == (DeliveryKind.THREAD, DeliveryState.FAILED)
        assert (reply.kind, reply.state) == (DeliveryKind.REPLY, DeliveryState.SENT)
        assert harness.telegram.recorder.messages[0].thread is None
        assert topics(harness) == []
    assert "Not enough rights to create a topic: let the bot manage topics" in caplog.text


@pytest.mark.parametrize("policy", ["resend_marked", "hold"])
async def test_a_topic_of_which_it_is_unknown_whether_it_was_opened_is_marked_or_held(
    open_harness: OpenHarness, policy: str
) -> None:
    async with open_harness(answer, settings={"TELEGRAM_UNCLEAR": policy}) as harness:
        harness.telegram.faults.append(Fault("createForumTopic", 500, "oops", is_late=True))
        forum, kim = await add_forum(harness)
        ask(harness, forum, kim)
        opening, _ = await harness.wait_deliveries()
        [shown] = harness.telegram.recorder.messages
        if policy == "hold":
            assert topics(harness) == ["The engine"]
            assert (opening.state, shown.text, shown.thread) == (DeliveryState.UNKNOWN, "It did not work.", None)
        else:
            assert topics(harness) == ["The engine", f"{DUPLICATE_NOTICE.strip()} The engine"]
            assert (opening.state, shown.text) == (DeliveryState.SENT, "Here we go.")
            assert harness.telegram.state.topics[forum["id"], shown.thread or 0] == topics(harness)[1]


@pytest.mark.long
async def test_a_topic_that_was_certainly_not_opened_is_opened_later_without_a_mark(open_harness: OpenHarness) -> None:
    async with open_harness(answer) as harness:
        harness.telegram.faults.append(Fault("createForumTopic", 429, {"ok": False, "parameters": {"retry_after": 1}}))
        forum, kim = await add_forum(harness)
        ask(harness, forum, kim)
        assert await harness.wait_texts(1, forum) == ["Here we go."]
        assert topics(harness) == ["The engine"]


# Where a topic was deleted or is closed, the answer arrives in General; where it cannot, the operator is notified.


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
