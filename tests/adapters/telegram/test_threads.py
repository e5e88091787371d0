"""Topics that the bot opens on Telegram: once, with its answer inside; what is refused, and what is unclear."""

from typing import Any

import pytest

from adapters.telegram.emulator import Fault
from adapters.telegram.outgoing import DUPLICATE_NOTICE
from bot import Outcome
from bot.domain.environment import ChannelType
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
